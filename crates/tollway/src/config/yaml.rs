//! Parses YAML into a tree in which every key and value has its position, for error messages.
//!
//! A scalar is its text: `007`, `1e3`, `true` and `1:2` stay as they were written, and the reader of the tree decides
//! what they mean. Aliases, tags and merge keys are refused, so a small file can never become a huge tree.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

use super::errors::{ErrorCollector, Position};
pub(super) use crate::quote::shorten;

/// The largest file that is read, in bytes: enough for some hundred thousand overrides.
pub(super) const FILE_MAX: usize = 16 << 20;
/// The deepest nesting that is read. A valid file needs at most seven levels.
const DEPTH_MAX: usize = 32;
/// The most keys and values that a file can have. This bounds the memory of the tree.
const NODES_MAX: usize = 4_000_000;

const ALIAS: &str = "aliases (\"*\") are not supported; write the value out, or put it in quotes";

/// A value and the position at which it starts.
#[derive(Debug)]
pub(super) struct YamlNode {
    pub(super) at: Position,
    pub(super) value: YamlValue,
}

#[derive(Debug)]
pub(super) enum YamlValue {
    Scalar {
        text: String,
        /// True if the text was written without quotes.
        plain: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
    /// A value that has already been reported as an error.
    Refused,
}

/// A key of a mapping with the value that belongs to it.
#[derive(Debug)]
pub(super) struct YamlEntry {
    pub(super) key: YamlKey,
    pub(super) value: YamlNode,
}

#[derive(Debug)]
pub(super) struct YamlKey {
    pub(super) at: Position,
    pub(super) text: String,
}

impl YamlNode {
    /// Returns whether the value is missing, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, YamlValue::Scalar { text, plain: true } if matches!(&**text, "" | "~" | "null"))
    }

    /// Returns whether the value is missing.
    pub(super) fn is_absent(&self) -> bool {
        matches!(&self.value, YamlValue::Scalar { text, plain: true } if text.is_empty())
    }

    /// Returns the value as an error message names it.
    pub(super) fn quoted(&self) -> String {
        match &self.value {
            YamlValue::Scalar { text, plain: true } => format!("\"{}\"", shorten(text)),
            YamlValue::Scalar { text, plain: false } => format!("the text \"{}\"", shorten(text)),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Map(_) => "a mapping".to_owned(),
            YamlValue::Refused => "this".to_owned(),
        }
    }
}

impl YamlKey {
    /// Returns the key as an error message names it.
    pub(super) fn quoted(&self) -> String {
        shorten(&self.text)
    }
}

impl YamlEntry {
    /// Returns the position of the value, or that of its key if the value is missing.
    pub(super) fn value_at(&self) -> Position {
        if self.value.is_absent() { self.key.at } else { self.value.at }
    }
}

/// Parses the document in the bytes of a file, which has this number. Returns `None` if it is empty or cannot be
/// parsed.
pub(super) fn parse_bytes(bytes: &[u8], file: usize, errors: &mut ErrorCollector) -> Option<YamlNode> {
    match str::from_utf8(bytes) {
        Ok(text) => parse(text, file, errors),
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            errors.add(Position::end_of(file, &valid), "the file is not UTF-8 from here on");
            None
        }
    }
}

/// Parses the document in `text`. Returns `None` if the text is empty or cannot be parsed.
pub(super) fn parse(text: &str, file: usize, errors: &mut ErrorCollector) -> Option<YamlNode> {
    if text.len() > FILE_MAX {
        let message = format!("a file can have at most {FILE_MAX} bytes, and this one has {}", text.len());
        errors.add(Position::start_of(file), message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser stops at a NUL as if the text ended there, and would silently ignore the rest.
    if let Some(index) = text.find(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        let character = text[index..].chars().next().unwrap_or_default();
        let message = format!("the character U+{:04X} is not allowed here", u32::from(character));
        errors.add(Position::end_of(file, &text[..index]), message);
        return None;
    }
    build(text, file, NODES_MAX, errors)
}

fn build(text: &str, file: usize, nodes_max: usize, errors: &mut ErrorCollector) -> Option<YamlNode> {
    YamlBuilder { events: Parser::new_from_str(text), text, file, nodes_left: nodes_max, errors }
        .document()
        .unwrap_or(None)
}

/// Ends the parsing after an error that has already been reported.
struct ParseAborted;

struct YamlBuilder<'a, 'e> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    file: usize,
    nodes_left: usize,
    errors: &'e mut ErrorCollector,
}

impl<'a> YamlBuilder<'a, '_> {
    fn document(&mut self) -> Result<Option<YamlNode>, ParseAborted> {
        let mut document = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(document),
                (Event::DocumentStart(_), at) => {
                    if document.is_some() {
                        return self.abort(at, "a second document starts here; a file can have only one");
                    }
                    let (event, at) = self.next()?;
                    document = Some(self.node(event, at, 0)?);
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Position), ParseAborted> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, self.position(span.start))),
            Some(Err(error)) => {
                let at = self.position(*error.marker());
                let at = if error.info().contains(TABS) { self.tab_after(at) } else { at };
                self.abort(at, explain(error.info()))
            }
            None => Ok((Event::StreamEnd, Position::start_of(self.file))),
        }
    }

    fn position(&self, marker: Marker) -> Position {
        Position { file: self.file, line: marker.line(), column: marker.col() + 1 }
    }

    /// Returns the position of the first tab that indents a line, from the line of `at` on: the parser tells where the
    /// value before it began.
    fn tab_after(&self, at: Position) -> Position {
        let lines = self.text.lines().enumerate().skip(at.line.saturating_sub(1));
        let indented_by_tab = lines.filter_map(|(index, line)| {
            let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
            line[..indent].find('\t').map(|tab| (index, tab))
        });
        let mut found =
            indented_by_tab.map(|(index, tab)| Position { line: index + 1, column: tab + 1, ..at });
        found.next().unwrap_or(at)
    }

    fn abort<T>(&mut self, at: Position, message: impl Into<String>) -> Result<T, ParseAborted> {
        self.errors.add(at, message);
        Err(ParseAborted)
    }

    fn node(&mut self, event: Event<'a>, at: Position, depth: usize) -> Result<YamlNode, ParseAborted> {
        let Some(nodes_left) = self.nodes_left.checked_sub(1) else {
            return self.abort(at, format!("a file can have at most {NODES_MAX} keys and values"));
        };
        self.nodes_left = nodes_left;
        if depth > DEPTH_MAX {
            return self.abort(at, format!("values can nest at most {DEPTH_MAX} levels deep"));
        }
        if let Event::Scalar(_, _, _, Some(_))
        | Event::SequenceStart(_, Some(_))
        | Event::MappingStart(_, Some(_)) = event
        {
            self.errors.add(at, "tags (\"!\") are not supported; remove it, or put the value in quotes");
        }
        let value = match event {
            Event::Scalar(text, style, _, _) => {
                YamlValue::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain }
            }
            Event::SequenceStart(..) => YamlValue::List(self.list(depth + 1)?),
            Event::MappingStart(..) => YamlValue::Map(self.map(depth + 1)?),
            _ => {
                self.errors.add(at, ALIAS);
                YamlValue::Refused
            }
        };
        Ok(YamlNode { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<YamlNode>, ParseAborted> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(event, at, depth)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<YamlEntry>, ParseAborted> {
        let mut entries = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => break,
                (event, at) => self.node(event, at, depth)?,
            };
            let (event, at) = self.next()?;
            let value = self.node(event, at, depth)?;
            if let Some(key) = self.key(key) {
                entries.push(YamlEntry { key, value });
            }
        }
        self.reject_duplicates(&mut entries);
        Ok(entries)
    }

    fn key(&mut self, node: YamlNode) -> Option<YamlKey> {
        match node.value {
            YamlValue::Scalar { text, plain: true } if text == "<<" => {
                self.errors.add(node.at, "merge keys (\"<<\") are not supported; write the fields out");
                None
            }
            YamlValue::Scalar { text, .. } => Some(YamlKey { at: node.at, text }),
            YamlValue::Refused => None,
            YamlValue::List(_) | YamlValue::Map(_) => {
                self.errors.add(node.at, format!("a key must be plain text, not {}", node.quoted()));
                None
            }
        }
    }

    /// Reports keys that occur twice, and keeps the first.
    fn reject_duplicates(&mut self, entries: &mut Vec<YamlEntry>) {
        let mut first = HashMap::with_capacity(entries.len());
        let mut keep = Vec::with_capacity(entries.len());
        for YamlEntry { key, .. } in &*entries {
            let earlier = *first.entry(&*key.text).or_insert(key.at);
            keep.push(earlier == key.at);
            if earlier != key.at {
                let earlier = self.errors.place(earlier);
                self.errors.add(key.at, format!("\"{}\" is given twice, first at {earlier}", key.quoted()));
            }
        }
        let mut keep = keep.into_iter();
        entries.retain(|_| keep.next().unwrap_or(true));
    }
}

/// A part of what the parser says about a tab that indents.
const TABS: &str = "tabs disallowed";

/// Translates an error of the YAML parser into words that say what to change.
fn explain(info: &str) -> String {
    let explanations = [
        ("unknown anchor", ALIAS),
        ("mapping values are not allowed", "unexpected \":\"; is one missing in the line above?"),
        (TABS, "tabs cannot indent; use spaces"),
        ("did not find expected ',' or '}'", "expected \",\" or \"}\"; is a \"{\" not closed?"),
        ("did not find expected ',' or ']'", "expected \",\" or \"]\"; is a \"[\" not closed?"),
        ("did not find expected node content", "expected a value; is a \"[\" or \"{\" not closed?"),
        ("found unexpected end of stream", "this quote is not closed"),
        ("did not find expected key", "expected a key, indented like the ones above"),
        ("did not find expected '-'", "expected a \"-\", indented like the ones above"),
        (
            "found unknown escape character",
            "unknown escape; use single quotes, where a backslash is a plain character",
        ),
        ("unexpected character", "a value cannot start with this character; put it in quotes"),
    ];
    let ours = explanations.iter().find(|(theirs, _)| info.contains(theirs));
    ours.map_or_else(|| format!("invalid YAML: {info}"), |(_, ours)| (*ours).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_counted() {
        for (text, nodes) in [("a", 1), ("[a, b]", 3), ("{a: b, c: d}", 5), ("a: [b, {c: d}]", 7)] {
            for (nodes_max, fits) in [(nodes, true), (nodes - 1, false)] {
                let mut errors = ErrorCollector::new("");
                assert_eq!(build(text, 0, nodes_max, &mut errors).is_some(), fits, "{text} {nodes_max}");
                assert_eq!(errors.finish(Some(())).is_ok(), fits);
            }
        }
    }

    #[test]
    fn a_scalar_is_its_text() {
        let texts = ["007", "1e3", "0x10", "1:2", "true", "null", "~", "2026-01-01", "0.10", "1_000"];
        let node = build(&format!("[{}]", texts.join(", ")), 0, NODES_MAX, &mut ErrorCollector::new(""));
        let Some(YamlNode { value: YamlValue::List(items), .. }) = node else { panic!("{node:?}") };
        let quoted = texts.map(|text| format!("{text:?}"));
        assert_eq!(items.iter().map(YamlNode::quoted).collect::<Vec<_>>(), quoted);
    }
}
