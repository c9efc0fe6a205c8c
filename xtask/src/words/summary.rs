//! Finds doc summaries, the first sentences of `///` and `//!` comments, and judges them.

use super::verb;

/// The first sentence of a doc comment, and what it documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The line where it begins, counted from 1.
    pub line: usize,
    /// The kind of item that it documents.
    pub kind: Kind,
    /// The sentence, on one line.
    pub text: String,
}

/// The kinds of items, as far as the rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A module, type, trait, function or macro: its summary needs a verb.
    Item,
    /// A field, variant or constant: a noun phrase is enough.
    Value,
}

/// The rules that a summary can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It begins with a question word or ends with a question mark.
    Question,
    /// It begins like the second half of another sentence.
    Fragment,
    /// It documents an item and has no verb.
    NoVerb,
    /// It documents a value in one or two words without an article.
    TooShort,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Question => "question",
            Self::Fragment => "fragment",
            Self::NoVerb => "no verb",
            Self::TooShort => "too short",
        })
    }
}

/// Words that make a question of a sentence that begins with them.
const QUESTION_WORDS: &[&str] = &[
    "what", "how", "who", "whose", "whom", "where", "when", "why", "which", "whether", "is", "are", "was",
    "were", "does", "do", "did", "has", "have", "had", "can", "could", "may", "might", "must", "should",
    "would", "will", "shall",
];

/// Openings that only make sense after a sentence that the reader has not seen.
const FRAGMENTS: &[&str] = &[
    "the same,",
    "the same as",
    "the same for",
    "the same of",
    "the same but",
    "and ",
    "but ",
    "or ",
    "so many",
    "so much",
    "so long",
    "as little",
    "as many",
    "as much",
    "with this",
    "with these",
    "until when",
    "since when",
    "for how",
    "for whom",
    "for who",
    "by whom",
    "to whom",
    "of whom",
    "of which",
    "in which",
    "from whom",
    "whatever",
    "whoever",
    "whichever",
    "such ",
    "likewise",
    "also ",
    "the other",
    "all of it",
];

impl Summary {
    /// Returns the rule that this summary breaks, if it breaks one.
    pub fn problem(&self) -> Option<Problem> {
        let lower = self.text.to_lowercase();
        let first = lower.split_whitespace().next().unwrap_or_default();
        if QUESTION_WORDS.contains(&first.trim_matches(|c: char| !c.is_alphabetic())) || lower.ends_with('?')
        {
            return Some(Problem::Question);
        }
        if FRAGMENTS.iter().any(|opening| lower.starts_with(opening)) {
            return Some(Problem::Fragment);
        }
        match self.kind {
            Kind::Item => (!verb::is_in(&self.text)).then_some(Problem::NoVerb),
            Kind::Value => (!verb::is_enough_for_a_value(&self.text)).then_some(Problem::TooShort),
        }
    }
}

/// Returns the summary of every doc comment of a Rust source.
pub fn all(source: &str) -> Vec<Summary> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut summaries = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(marker) = marker(lines[at]) else {
            at += 1;
            continue;
        };
        let len = lines[at..].iter().take_while(|line| self::marker(line) == Some(marker)).count();
        let comment = &lines[at..at + len];
        let kind = if marker == "//!" { Kind::Item } else { kind_of(&lines[at + len..]) };
        let blank = comment.iter().take_while(|line| line[3..].trim().is_empty()).count();
        let text = first_sentence(comment);
        if !text.is_empty() {
            summaries.push(Summary { line: at + blank + 1, kind, text });
        }
        at += len;
    }
    summaries
}

/// Returns `///` or `//!` if the line is part of a doc comment.
pub fn marker(line: &str) -> Option<&'static str> {
    let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker))?;
    (!line.starts_with("////")).then_some(marker)
}

/// Returns the kind of the item that begins in these lines, attributes and other comments skipped.
fn kind_of(lines: &[&str]) -> Kind {
    let mut open_brackets = 0;
    for line in lines {
        if open_brackets > 0 || line.starts_with("#[") {
            open_brackets += line.matches('[').count();
            open_brackets = open_brackets.saturating_sub(line.matches(']').count());
        } else if !line.is_empty() && !line.starts_with("//") {
            return kind_of_line(line);
        }
    }
    Kind::Value
}

fn kind_of_line(line: &str) -> Kind {
    let after_visibility = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        Some(rest) => rest,
        None => line,
    };
    let is_qualifier = |word: &&str| ["default", "async", "unsafe", "extern", "\"C\""].contains(word);
    let mut words = after_visibility.split_whitespace().skip_while(is_qualifier);
    let is_item = |word: &str| {
        ["mod", "struct", "enum", "trait", "fn", "type", "union", "macro", "macro_rules!"].contains(&word)
    };
    match words.next() {
        Some("const") if words.next().is_some_and(|next| ["fn", "unsafe", "async"].contains(&next)) => {
            Kind::Item
        }
        Some(word) if is_item(word) => Kind::Item,
        _ => Kind::Value,
    }
}

/// Returns the first sentence of the first paragraph, on one line.
fn first_sentence(comment: &[&str]) -> String {
    let lines = comment.iter().map(|line| line[3..].trim()).skip_while(|line| line.is_empty());
    let paragraph = lines.take_while(|line| !line.is_empty() && !line.starts_with("```")).collect::<Vec<_>>();
    let paragraph = paragraph.join(" ");
    let mut in_code = false;
    for (at, c) in paragraph.char_indices() {
        in_code ^= c == '`';
        let rest = &paragraph[at + c.len_utf8()..];
        let ends = matches!(c, '.' | '?' | '!') && (rest.is_empty() || rest.starts_with(' '));
        let abbreviates = ["e.g", "i.e", "etc", "vs"].iter().any(|short| paragraph[..at].ends_with(short));
        if ends && !in_code && !abbreviates {
            return paragraph[..=at].to_owned();
        }
    }
    paragraph
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: Kind, text: &str) -> Option<Problem> {
        Summary { line: 1, kind, text: text.to_owned() }.problem()
    }

    #[test]
    fn summaries_are_found_with_their_kind_and_line() {
        let source = "//! Reads `a.b` files. More.\n\n/// Returns\n/// the length.\n#[must_use]\npub const fn len() {}\n\
                      struct A {\n    /// The name.\n    pub name: u8,\n}\n";
        let found: Vec<_> = all(source).into_iter().map(|s| (s.line, s.kind, s.text)).collect();
        let expected = [
            (1, Kind::Item, "Reads `a.b` files."),
            (3, Kind::Item, "Returns the length."),
            (8, Kind::Value, "The name."),
        ];
        assert_eq!(found, expected.map(|(line, kind, text)| (line, kind, text.to_owned())));
    }

    #[test]
    fn questions_and_fragments_are_problems_of_every_kind() {
        for kind in [Kind::Item, Kind::Value] {
            for question in
                ["What it counts.", "Is there none?", "How many there are.", "The limit, or nothing?"]
            {
                assert_eq!(problem(kind, question), Some(Problem::Question), "{question}");
            }
            for fragment in ["The same, as bytes.", "As little waited for.", "And then it returns."] {
                assert_eq!(problem(kind, fragment), Some(Problem::Fragment), "{fragment}");
            }
        }
    }

    #[test]
    fn an_item_needs_a_verb_and_a_value_does_not() {
        assert_eq!(problem(Kind::Item, "The policy, to look at."), None);
        assert_eq!(problem(Kind::Item, "A limit by its name."), Some(Problem::NoVerb));
        assert_eq!(problem(Kind::Value, "The number of bytes."), None);
        assert_eq!(problem(Kind::Value, "No span."), Some(Problem::TooShort));
    }
}
