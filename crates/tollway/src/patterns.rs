//! Compiles the regular expressions of the policy: finds the first rule that matches a key, and rewrites keys.
//!
//! ```
//! use tollway::core::KeyMatcher;
//! use tollway::patterns::{Pattern, Patterns, Rewrite};
//!
//! let bbc = Rewrite::new(Pattern::new(r"ip=132\.185\.\d+\.\d+$")?, "cust=bbc")?;
//! let rules = ["^ws cust=", "^ws ip=", "^ws"].map(Pattern::new).into_iter().collect::<Result<_, _>>()?;
//! let patterns = Patterns::new(vec![bbc], rules)?;
//!
//! let key = patterns.rewrite(b"ws ip=132.185.0.7");
//! assert_eq!(*key, *b"ws cust=bbc");
//! assert_eq!(patterns.first_match(&key), Some(0));
//! assert_eq!(patterns.first_match(b"ws ip=10.0.0.1"), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All rules are compiled into one automaton, so a key is read once, however many rules there are; the rewrites are
//! another automaton. Keys are bytes: `.` matches any byte, `\d` and `\w` are ASCII, `^` and `$` are the ends of the
//! key.

use std::borrow::Cow;
use std::fmt;

use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson::{NFA, WhichCaptures};
use regex_automata::util::{interpolate, syntax};
use regex_automata::{Input, MatchKind, PatternSet};
use thiserror::Error;
use tollway_core::{KeyMatcher, KeyPatterns};

use crate::cause::Cause;

/// The most rules that a policy can have.
pub const RULES_MAX: usize = 10_000;
/// The most rewrites that a policy can have. Each one that applies reads the key once more.
pub const REWRITES_MAX: usize = 1_000;
/// The most memory that one compiled pattern can take, in bytes.
pub const PATTERN_SIZE_MAX: usize = 256 << 10;
/// The most memory that all compiled patterns together can take, in bytes.
pub const PATTERNS_SIZE_MAX: usize = 16 << 20;
/// The longest replacement that a rewrite can have, in bytes.
pub const REPLACEMENT_MAX: usize = 1_000;
/// The longest key that rewriting can make, in bytes. Without a bound, a few rewrites that each double the key would
/// fill the memory.
pub const REWRITTEN_MAX: usize = 1_000;

/// The memory for the states of the lazy DFA, for each thread, in bytes. It is taken as states are found. A thousand
/// patterns that match anywhere need up to this much; with less, a key takes hundreds of times as long.
const STATES_SIZE_MAX: usize = 32 << 20;

/// A regular expression that was parsed and found small enough.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    size: usize,
}

/// A text that is not a usable pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The text is not a regular expression.
    #[error("is not a valid regular expression")]
    Syntax {
        /// The error of the parser, which shows the expression over several lines.
        source: Cause,
    },
    /// The compiled expression takes more than [`PATTERN_SIZE_MAX`].
    #[error("takes more than {} KiB of memory when compiled", PATTERN_SIZE_MAX >> 10)]
    TooLarge,
}

impl Pattern {
    /// Parses and compiles a regular expression.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let expression = syntax::parse_with(text, &dialect())
            .map_err(|error| PatternError::Syntax { source: Cause::new(error) })?;
        let config = NFA::config().nfa_size_limit(Some(PATTERN_SIZE_MAX)).utf8(false);
        let compiled = NFA::compiler().configure(config).build_from_hir(&expression);
        let size = compiled.map_err(|_| PatternError::TooLarge)?.memory_usage();
        Ok(Self { text: text.to_owned(), size })
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the memory that the compiled pattern takes, in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }
}

impl PatternError {
    /// Returns the error and its cause on one line: `is not a valid regular expression: unclosed group, at character 3`
    /// instead of the several lines that the parser writes.
    pub fn on_one_line(&self) -> String {
        match self {
            Self::Syntax { source } => format!("{self}: {}", reason(&source.to_string())),
            Self::TooLarge => self.to_string(),
        }
    }
}

/// Returns the syntax of patterns: they match bytes instead of characters, and `.` matches any byte.
fn dialect() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false).dot_matches_new_line(true)
}

/// Shortens the parser's message, which shows the expression with an arrow below it, to one line:
/// `unclosed group, at character 3`.
fn reason(message: &str) -> String {
    let is_arrow = |line: &&str| line.contains('^') && line.bytes().all(|byte| matches!(byte, b' ' | b'^'));
    let last = message.lines().last().unwrap_or_default();
    let reason = last.strip_prefix("error: ").unwrap_or(last);
    match message.lines().find(is_arrow).and_then(|arrow| arrow.find('^')) {
        // The message indents the expression by four spaces; characters are counted from 1.
        Some(column) if message.lines().count() == 4 => {
            format!("{reason}, at character {}", column.saturating_sub(3))
        }
        _ => reason.to_owned(),
    }
}

/// A pattern, and the text that replaces its first match in a key.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pattern: Pattern,
    regex: Regex,
    replacement: String,
}

/// A text that is not a usable replacement.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplacementError {
    /// The text uses a group that the pattern does not have.
    #[error("uses ${{{group}}}, a group that the pattern does not have{}", hint(.group))]
    Group {
        /// The number or name that the group has.
        group: String,
    },
    /// The text is longer than [`REPLACEMENT_MAX`].
    #[error("can have at most {REPLACEMENT_MAX} bytes")]
    TooLong,
}

/// Returns the group that was probably meant by a name that starts with a number.
fn hint(group: &str) -> String {
    let digits = group.bytes().take_while(u8::is_ascii_digit).count();
    match group.split_at(digits) {
        ("", _) | (_, "") => String::new(),
        (number, rest) => format!(" (did you mean \"${{{number}}}{rest}\"?)"),
    }
}

impl Rewrite {
    /// Returns a rewrite. In the replacement, `$1` or `${1}` stands for the match of the first group, `$0` for the
    /// whole match, `${name}` for a named group, and `$$` for a dollar sign.
    pub fn new(pattern: Pattern, replacement: &str) -> Result<Self, ReplacementError> {
        if replacement.len() > REPLACEMENT_MAX {
            return Err(ReplacementError::TooLong);
        }
        // No DFA: a rewrite runs only for the few keys it matches, and a table for each of a thousand rewrites costs
        // memory.
        let config = Config::new().utf8_empty(false).onepass(false).dfa(false).hybrid(false);
        let regex = Regex::builder().configure(config).syntax(dialect()).build(&pattern.text);
        let regex = regex.expect("a pattern compiled before");
        match unknown_group(&regex, replacement) {
            Some(group) => Err(ReplacementError::Group { group }),
            None => Ok(Self { pattern, regex, replacement: replacement.to_owned() }),
        }
    }

    /// Returns the pattern that is replaced.
    pub const fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Returns the text that replaces the match.
    pub fn replacement(&self) -> &str {
        &self.replacement
    }

    /// Returns the key with its first match replaced, or unchanged if there is no match.
    fn apply(&self, key: &[u8]) -> Vec<u8> {
        let mut groups = self.regex.create_captures();
        self.regex.captures(key, &mut groups);
        let Some(matched) = groups.get_match() else { return key.to_vec() };
        let mut rewritten = key[..matched.start()].to_vec();
        groups.interpolate_bytes_into(key, self.replacement.as_bytes(), &mut rewritten);
        rewritten.extend_from_slice(&key[matched.end()..]);
        rewritten.truncate(REWRITTEN_MAX);
        rewritten
    }
}

/// Returns the first group in the replacement that the expression does not have.
fn unknown_group(regex: &Regex, replacement: &str) -> Option<String> {
    let groups = regex.captures_len();
    let (mut number, mut name) = (None, None);
    let append = |group: usize, _: &mut String| {
        if group >= groups {
            number.get_or_insert_with(|| group.to_string());
        }
    };
    let by_name = |group: &str| {
        let found = regex.group_info().to_index(regex_automata::PatternID::ZERO, group);
        if found.is_none() {
            name.get_or_insert_with(|| group.to_owned());
        }
        found
    };
    interpolate::string(replacement, append, by_name, &mut String::new());
    name.or(number)
}

/// The rules and rewrites of a policy, each kind compiled into one automaton.
#[derive(Clone)]
pub struct Patterns {
    rewrites: Vec<Rewrite>,
    any_rewrite: Regex,
    rules: Vec<Pattern>,
    any_rule: Regex,
}

/// The patterns are too many, or take too much memory together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "a file can have at most {RULES_MAX} rules and {REWRITES_MAX} rewrites, and they can take at most {} MiB when compiled",
    PATTERNS_SIZE_MAX >> 20
)]
#[non_exhaustive]
pub struct TooManyPatterns;

impl Patterns {
    /// Compiles rewrites, in the order in which they apply, and rules, in the order in which they are tried.
    pub fn new(rewrites: Vec<Rewrite>, rules: Vec<Pattern>) -> Result<Self, TooManyPatterns> {
        let size: usize = rewrites.iter().map(Rewrite::pattern).chain(&rules).map(Pattern::size).sum();
        if rules.len() > RULES_MAX || rewrites.len() > REWRITES_MAX || size > PATTERNS_SIZE_MAX {
            return Err(TooManyPatterns);
        }
        let any_rewrite = any_of(rewrites.iter().map(Rewrite::pattern))?;
        let any_rule = any_of(&rules)?;
        Ok(Self { rewrites, any_rewrite, rules, any_rule })
    }

    /// Returns the rules in the order in which they are tried.
    pub fn rules(&self) -> &[Pattern] {
        &self.rules
    }

    /// Returns the rewrites in the order in which they apply.
    pub fn rewrites(&self) -> &[Rewrite] {
        &self.rewrites
    }
}

/// Compiles one automaton that finds all matching patterns in one pass.
fn any_of<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Result<Regex, TooManyPatterns> {
    let patterns: Vec<_> = patterns.into_iter().map(Pattern::as_str).collect();
    let config = Config::new()
        .match_kind(MatchKind::All)
        .utf8_empty(false)
        .which_captures(WhichCaptures::None)
        .onepass(false)
        .hybrid_cache_capacity(STATES_SIZE_MAX)
        .nfa_size_limit(Some(2 * PATTERNS_SIZE_MAX));
    let built = Regex::builder().configure(config).syntax(dialect()).build_many(&patterns);
    built.map_err(|_| TooManyPatterns)
}

/// Returns the first pattern that matches `key`, among those from the index `from` on.
fn first(automaton: &Regex, key: &[u8], from: usize) -> Option<usize> {
    if from >= automaton.pattern_len() {
        return None;
    }
    let mut matching = PatternSet::new(automaton.pattern_len());
    automaton.which_overlapping_matches(&Input::new(key), &mut matching);
    matching.iter().map(|pattern| pattern.as_usize()).find(|pattern| *pattern >= from)
}

impl KeyMatcher for Patterns {
    fn rewrite<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        let mut key = Cow::Borrowed(key);
        let mut from = 0;
        while let Some(next) = first(&self.any_rewrite, &key, from) {
            key = Cow::Owned(self.rewrites[next].apply(&key));
            from = next + 1;
        }
        key
    }

    fn first_match(&self, rewritten: &[u8]) -> Option<usize> {
        first(&self.any_rule, rewritten, 0)
    }

    fn patterns(&self) -> Option<KeyPatterns<'_>> {
        let rewrites = self.rewrites.iter().map(|rewrite| (rewrite.pattern.as_str(), rewrite.replacement()));
        Some(KeyPatterns {
            rewrites: rewrites.collect(),
            rules: self.rules.iter().map(Pattern::as_str).collect(),
        })
    }
}

/// By default there are no rewrites and no rules.
impl Default for Patterns {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new()).expect("nothing is not too many")
    }
}

/// Writes the patterns as they were written. The automata would fill pages.
impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rewrites = self.rewrites.iter().map(|rewrite| (rewrite.pattern.as_str(), &rewrite.replacement));
        let rewrites: Vec<_> = rewrites.collect();
        let rules: Vec<_> = self.rules.iter().map(Pattern::as_str).collect();
        f.debug_struct("Patterns").field("rewrites", &rewrites).field("rules", &rules).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(rewrites: &[(&str, &str)], rules: &[&str]) -> Patterns {
        let pattern = |text: &str| Pattern::new(text).unwrap();
        let rewrites = rewrites.iter().map(|(text, to)| Rewrite::new(pattern(text), to).unwrap());
        Patterns::new(rewrites.collect(), rules.iter().map(|text| pattern(text)).collect()).unwrap()
    }

    #[test]
    fn the_first_rule_that_matches_anywhere_wins() {
        // The second pattern matches earlier in the key, and the third matches more of it; still the first wins.
        let patterns = patterns(&[], &["global$", "^ws", "^ws global$", ""]);
        for (key, expected) in
            [(&b"ws global"[..], 0), (b"ws ip=1", 1), (b"search ip=1", 3), (b"", 3), (b"\xff\n", 3)]
        {
            assert_eq!(patterns.first_match(key), Some(expected), "{}", key.escape_ascii());
        }
        assert_eq!(super::tests::patterns(&[], &["^ws"]).first_match(b"search"), None);
        assert_eq!(Patterns::default().first_match(b""), None);
    }

    #[test]
    fn keys_are_bytes() {
        for (pattern, key, matches) in [
            ("^a.b$", &b"a\xffb"[..], true),
            ("^a.b$", b"a\nb", true),
            ("^a.b$", "aéb".as_bytes(), false),
            ("^aéb$", "aéb".as_bytes(), true),
            (r"^\xff$", b"\xff", true),
            (r"^\d$", "٣".as_bytes(), false),
            ("(?i)^WS", b"ws", true),
            ("^b", b"a\nb", false),
            ("a$", b"a\n", false),
        ] {
            assert_eq!(patterns(&[], &[pattern]).first_match(key).is_some(), matches, "{pattern}");
        }
    }

    #[test]
    fn rewrites_apply_in_order_each_to_the_result_of_the_one_before() {
        let patterns = patterns(
            &[
                (r"^(\w+) ip=(10)\.(?<rest>.*)$", "$1 net=$2 rest=${rest} $$"),
                ("net=10", "net=ten"),
                ("ten", "TEN"),
                ("a", "b"),
                ("b", "a"),
                ("never", "$0$0"),
            ],
            &[],
        );
        for (key, expected) in [
            ("ws ip=10.1.2.3", "ws net=TEN rest=1.2.3 $"),
            ("ten ten", "TEN ten"),
            ("caat", "caat"),
            ("b", "a"),
            ("x", "x"),
        ] {
            assert_eq!(*patterns.rewrite(key.as_bytes()), *expected.as_bytes(), "{key}");
        }
        assert!(matches!(patterns.rewrite(b"untouched xyz"), Cow::Borrowed(_)));
    }

    #[test]
    fn no_rewriting_makes_a_key_that_fills_memory() {
        let doubling = vec![("^.*$", "$0$0"); 100];
        assert_eq!(patterns(&doubling, &[]).rewrite(b"a").len(), REWRITTEN_MAX);
    }

    #[test]
    fn what_is_no_pattern_says_why_on_one_line() {
        for (text, message) in [
            ("(", "is not a valid regular expression: unclosed group, at character 1"),
            ("^ws (ip", "is not a valid regular expression: unclosed group, at character 5"),
            ("a{2,1}", "is not a valid regular expression: invalid repetition count range"),
            (
                "*",
                "is not a valid regular expression: repetition operator missing expression, at character 1",
            ),
            (
                "(?=a)",
                "is not a valid regular expression: look-around, including look-ahead and look-behind, is not",
            ),
            ("a\n(", "is not a valid regular expression: unclosed group"),
            (r"\p{Greek}", "is not a valid regular expression: Unicode not allowed here"),
            ("(a{100}){1000}", "takes more than 256 KiB of memory when compiled"),
            ("((a{1000}){1000}){1000}", "takes more than 256 KiB of memory when compiled"),
        ] {
            let error = Pattern::new(text).unwrap_err().on_one_line();
            assert!(error.starts_with(message) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn a_replacement_uses_groups_that_there_are() {
        for (replacement, message) in [
            ("$2", "uses ${2}, a group that the pattern does not have"),
            ("$1x", "uses ${1x}, a group that the pattern does not have (did you mean \"${1}x\"?)"),
            ("${name}", "uses ${name}, a group that the pattern does not have"),
        ] {
            let error = Rewrite::new(Pattern::new("(a)").unwrap(), replacement).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        for replacement in ["", "$0 $1 ${1}x $$2 $"] {
            assert!(Rewrite::new(Pattern::new("(a)").unwrap(), replacement).is_ok(), "{replacement}");
        }
        let long = "x".repeat(REPLACEMENT_MAX + 1);
        assert_eq!(Rewrite::new(Pattern::new("a").unwrap(), &long).unwrap_err(), ReplacementError::TooLong);
    }

    #[test]
    fn all_patterns_together_have_a_bound() {
        let large = Pattern::new("(a{100}){50}").unwrap();
        let too_many = PATTERNS_SIZE_MAX / large.size() + 1;
        assert!(Patterns::new(vec![], vec![large; too_many]).is_err());
        let small = Pattern::new("a").unwrap();
        assert!(Patterns::new(vec![], vec![small; RULES_MAX + 1]).is_err());
    }
}
