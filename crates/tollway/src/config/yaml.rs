//! YAML as a tree in which everything knows where it stands.
//!
//! A scalar is its text: `007`, `1e3`, `true` and `1:2` are what was written, and whoever reads the tree decides
//! what that means. There are no aliases, tags or merge keys, so a file is never larger than it looks.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

use super::errors::{Errors, Position};
pub(super) use crate::quote::shorten;

/// The largest file: some hundred thousand overrides.
pub(super) const FILE_MAX: usize = 16 << 20;
/// The deepest nesting. The deepest thing there is to say needs seven.
const DEPTH_MAX: usize = 32;
/// The most values in a file: what bounds the memory that a tree takes.
const NODES_MAX: usize = 4_000_000;

const ALIAS: &str = "aliases (`*`) are not understood: write the value out, or put it in quotes";

/// A value and where it starts.
#[derive(Debug)]
pub(super) struct YamlNode {
    pub(super) at: Position,
    pub(super) value: YamlValue,
}

#[derive(Debug)]
pub(super) enum YamlValue {
    Scalar {
        text: String,
        /// Written without quotes.
        plain: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
    /// What was written here has been refused already.
    Refused,
}

/// A key and its value.
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
    /// True of a value left out, and of the words for that.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, YamlValue::Scalar { text, plain: true } if matches!(&**text, "" | "~" | "null"))
    }

    /// True if nothing was written.
    pub(super) fn is_absent(&self) -> bool {
        matches!(&self.value, YamlValue::Scalar { text, plain: true } if text.is_empty())
    }

    /// The value as an error would name it.
    pub(super) fn quoted(&self) -> String {
        match &self.value {
            YamlValue::Scalar { text, plain: true } => shorten(text),
            YamlValue::Scalar { text, plain: false } => format!("the text \"{}\"", shorten(text)),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Map(_) => "a mapping".to_owned(),
            YamlValue::Refused => "this".to_owned(),
        }
    }
}

impl YamlKey {
    /// The key as an error would name it.
    pub(super) fn quoted(&self) -> String {
        shorten(&self.text)
    }
}

impl YamlEntry {
    /// Where the value stands, or its key if there is nothing after it.
    pub(super) fn value_at(&self) -> Position {
        if self.value.is_absent() { self.key.at } else { self.value.at }
    }
}

/// The document in `text`. `None` if there is none to speak of: nothing in it, or an error that left nothing.
pub(super) fn parse(text: &str, errors: &mut Errors) -> Option<YamlNode> {
    if text.len() > FILE_MAX {
        let message = format!("a file may have at most {FILE_MAX} bytes, and this has {}", text.len());
        errors.add(Position::START, message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser takes NUL for the end of the text, and what follows it would be silently left out.
    if let Some(index) = text.find(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        let character = text[index..].chars().next().unwrap_or_default();
        let message = format!("the character U+{:04X} has no place here", u32::from(character));
        errors.add(Position::after(&text[..index]), message);
        return None;
    }
    build(text, NODES_MAX, errors)
}

fn build(text: &str, nodes_max: usize, errors: &mut Errors) -> Option<YamlNode> {
    Builder { events: Parser::new_from_str(text), nodes_left: nodes_max, errors }.document().unwrap_or(None)
}

/// An error that ends the reading has been reported.
struct Stop;

struct Builder<'a, 'e> {
    events: Parser<'a, StrInput<'a>>,
    nodes_left: usize,
    errors: &'e mut Errors,
}

impl<'a> Builder<'a, '_> {
    fn document(&mut self) -> Result<Option<YamlNode>, Stop> {
        let mut document = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(document),
                (Event::DocumentStart(_), at) => {
                    if document.is_some() {
                        return self.stop(at, "a second document starts here: a file has one");
                    }
                    let (event, at) = self.next()?;
                    document = Some(self.node(event, at, 0)?);
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Position), Stop> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, position(span.start))),
            Some(Err(error)) => self.stop(position(*error.marker()), explain(error.info())),
            None => Ok((Event::StreamEnd, Position::START)),
        }
    }

    fn stop<T>(&mut self, at: Position, message: impl Into<String>) -> Result<T, Stop> {
        self.errors.add(at, message);
        Err(Stop)
    }

    fn node(&mut self, event: Event<'a>, at: Position, depth: usize) -> Result<YamlNode, Stop> {
        let Some(nodes_left) = self.nodes_left.checked_sub(1) else {
            return self.stop(at, format!("a file may have at most {NODES_MAX} keys and values"));
        };
        self.nodes_left = nodes_left;
        if depth > DEPTH_MAX {
            return self.stop(at, format!("values may be nested at most {DEPTH_MAX} deep"));
        }
        if let Event::Scalar(_, _, _, Some(_))
        | Event::SequenceStart(_, Some(_))
        | Event::MappingStart(_, Some(_)) = event
        {
            self.errors.add(at, "tags (`!`) are not understood: leave it out, or put the value in quotes");
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

    fn list(&mut self, depth: usize) -> Result<Vec<YamlNode>, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, at) => items.push(self.node(event, at, depth)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<YamlEntry>, Stop> {
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
        self.refuse_twice(&mut entries);
        Ok(entries)
    }

    fn key(&mut self, node: YamlNode) -> Option<YamlKey> {
        match node.value {
            YamlValue::Scalar { text, plain: true } if text == "<<" => {
                self.errors.add(node.at, "merge keys (`<<`) are not understood: write the fields out");
                None
            }
            YamlValue::Scalar { text, .. } => Some(YamlKey { at: node.at, text }),
            YamlValue::Refused => None,
            YamlValue::List(_) | YamlValue::Map(_) => {
                self.errors.add(node.at, format!("a key is a plain text, not {}", node.quoted()));
                None
            }
        }
    }

    /// Keeps the first of each key.
    fn refuse_twice(&mut self, entries: &mut Vec<YamlEntry>) {
        let mut first = HashMap::with_capacity(entries.len());
        let mut keep = Vec::with_capacity(entries.len());
        for YamlEntry { key, .. } in &*entries {
            let earlier = *first.entry(&*key.text).or_insert(key.at);
            keep.push(earlier == key.at);
            if earlier != key.at {
                self.errors.add(key.at, format!("`{}` is given already, at {earlier}", key.quoted()));
            }
        }
        let mut keep = keep.into_iter();
        entries.retain(|_| keep.next().unwrap_or(true));
    }
}

/// What the parser says, in the words of somebody who only wants to limit requests.
fn explain(info: &str) -> String {
    let explanations = [
        ("unknown anchor", ALIAS),
        ("mapping values are not allowed", "a `:` does not fit here: does the line above lack one?"),
        ("tabs disallowed", "a tab cannot indent: use spaces"),
        ("did not find expected ',' or '}'", "expected `,` or `}`: is a `{` not closed?"),
        ("did not find expected ',' or ']'", "expected `,` or `]`: is a `[` not closed?"),
        ("did not find expected node content", "expected a value: is a `[` or `{` not closed?"),
        ("found unexpected end of stream", "this quote is not closed"),
        ("did not find expected key", "expected a key, indented like those above"),
        ("did not find expected '-'", "expected a `-`, indented like those above"),
        (
            "found unknown escape character",
            "this is no escape of YAML: in single quotes a backslash is itself",
        ),
        ("unexpected character", "a value cannot start like this: put it in quotes"),
    ];
    let ours = explanations.iter().find(|(theirs, _)| info.contains(theirs));
    ours.map_or_else(|| format!("not YAML: {info}"), |(_, ours)| (*ours).to_owned())
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_counted() {
        for (text, nodes) in [("a", 1), ("[a, b]", 3), ("{a: b, c: d}", 5), ("a: [b, {c: d}]", 7)] {
            for (nodes_max, fits) in [(nodes, true), (nodes - 1, false)] {
                let mut errors = Errors::default();
                assert_eq!(build(text, nodes_max, &mut errors).is_some(), fits, "{text} {nodes_max}");
                assert_eq!(errors.finish("", Some(())).is_ok(), fits);
            }
        }
    }

    #[test]
    fn a_scalar_is_its_text() {
        let texts = ["007", "1e3", "0x10", "1:2", "true", "null", "~", "2026-01-01", "0.10", "1_000"];
        let node = build(&format!("[{}]", texts.join(", ")), NODES_MAX, &mut Errors::default());
        let Some(YamlNode { value: YamlValue::List(items), .. }) = node else { panic!("{node:?}") };
        assert_eq!(items.iter().map(YamlNode::quoted).collect::<Vec<_>>(), texts);
    }
}
