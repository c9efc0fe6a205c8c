//! The parser that reads rules.
//!
//! ```text
//! rule   = rate | And(…) | Or(…)            10/s      And('user:10/5m', Or('10/s', '15/m'))
//! part   = 'rate' | "rate" | And(…) | Or(…)
//! rate   = [selector:]COUNT/SPAN[:ignored]   user:10/5m     apikey:5/s:0.1     10 per 5 minutes
//! ```

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use super::{Rate, Retention, Rule, RuleLog};
use crate::bill::Expression;
use crate::rate_spec::{RateSpecError, divider, span_of, whole};
use crate::time::Nanos;

/// The longest text of a rule, in bytes.
pub const RULE_MAX: usize = 4096;

/// The highest count of a rate. A log takes memory for the requests that were entered, not for those that may be.
pub const COUNT_MAX: u64 = 10_000_000;
/// The most rates of a rule: all their logs are looked at in one step.
pub const RATES_MAX: usize = 32;
/// The number of levels that expressions may nest.
const DEPTH_MAX: usize = 16;

/// The shortest span that a rate may have, and what every span is a multiple of.
const SPAN_UNIT_MIN: u64 = 1_000_000;

/// An error for a text that is no rule, with its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub struct RuleError {
    /// The text that was parsed.
    pub rule: String,
    /// The bytes of it that are wrong; none where something is missing.
    pub at: Range<usize>,
    /// The problem that they have.
    pub problem: RuleProblem,
}

/// The problem that a rule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleProblem {
    /// The text has no rate's form.
    #[error("a rate must be [selector:]COUNT/SPAN, such as 10/s or user:100/24h")]
    Rate,
    /// The selector is not a name.
    #[error("the name of a selector must be letters, digits and \"_\", and must not start with a digit")]
    Selector,
    /// The count is not a number in range.
    #[error("a count must be a whole number from 0 to {COUNT_MAX}")]
    Count,
    /// The span has no known unit.
    #[error("a span must be a unit (ms, s, m, h or d), with or without a number in front, such as s or 5m")]
    Span,
    /// The span is zero or too long.
    #[error("a span must be above zero and at most 292 years")]
    SpanRange,
    /// The third field is not a decimal.
    #[error("a third field must be a decimal number (and has no effect)")]
    Ignored,
    /// A part is neither a rate in quotes nor an expression.
    #[error("expected a rate in quotes, And(…) or Or(…)")]
    Part,
    /// A parenthesis follows something other than `And` or `Or`.
    #[error("expected And(…) or Or(…)")]
    Operator,
    /// A quote is not closed.
    #[error("this quote is not closed")]
    Quote,
    /// A part is followed by something other than a comma or a parenthesis.
    #[error("expected \",\" or \")\" after a part")]
    Separator,
    /// The rule is followed by more text.
    #[error("unexpected text after the end of the rule")]
    End,
    /// Longer than [`RULE_MAX`].
    #[error("a rule can have at most {RULE_MAX} bytes")]
    TooLong,
    /// More rates than [`RATES_MAX`].
    #[error("a rule can have at most {RATES_MAX} rates")]
    TooMany,
    /// Too many parentheses in each other.
    #[error("a rule can nest at most {DEPTH_MAX} levels deep")]
    TooDeep,
}

/// The problem, the line it is in, and carets under the place.
impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem)?;
        self.excerpt().map_or(Ok(()), |[line, carets]| write!(f, "\n  {line}\n  {carets}"))
    }
}

impl RuleError {
    /// The character of the rule at which it is wrong, counted from 1.
    pub fn character(&self) -> usize {
        self.rule.get(..self.at.start).unwrap_or_default().chars().count() + 1
    }

    /// The rule on one line, and carets under the place; `None` for one that is too long to show.
    pub fn excerpt(&self) -> Option<[String; 2]> {
        if self.problem == RuleProblem::TooLong {
            return None;
        }
        // A control character would move what is below it.
        let line: String = self.rule.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let width = |range: Range<usize>| self.rule.get(range).unwrap_or_default().chars().count();
        let (before, wrong) = (width(0..self.at.start), width(self.at.clone()).max(1));
        Some([line, format!("{:before$}{}", "", "^".repeat(wrong))])
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.len() > RULE_MAX {
            return Err(RuleError { rule: String::new(), at: 0..0, problem: RuleProblem::TooLong });
        }
        let mut parser = Parser { text, at: 0, rates: Vec::new(), logs: Vec::new() };
        let expression = parser.rule();
        match expression {
            Ok(expression) => Ok(Self { rates: parser.rates, logs: parser.logs, expression }),
            Err((at, problem)) => Err(RuleError { rule: text.to_owned(), at, problem }),
        }
    }
}

/// The place of a problem and the problem that is there.
type Wrong = (Range<usize>, RuleProblem);

/// Makes an expression of its parts.
type Operator = fn(Vec<Expression>) -> Expression;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    rates: Vec<Rate>,
    logs: Vec<RuleLog>,
}

impl<'a> Parser<'a> {
    fn rule(&mut self) -> Result<Expression, Wrong> {
        self.skip_space();
        let bare = !self.rest().starts_with(['\'', '"']) && self.operator().is_none();
        if bare && let Some(paren) = self.rest().find('(') {
            return Err((self.at..self.at + paren.max(1), RuleProblem::Operator));
        }
        let expression = if bare {
            let end = self.text.trim_ascii_end().len().max(self.at);
            let rate = self.rate(self.at..end)?;
            self.at = end;
            rate
        } else {
            self.part(0)?
        };
        self.skip_space();
        if self.at < self.text.len() {
            Err((self.at..self.text.len(), RuleProblem::End))
        } else {
            Ok(expression)
        }
    }

    fn part(&mut self, depth: usize) -> Result<Expression, Wrong> {
        if let Some((operator, len)) = self.operator() {
            if depth == DEPTH_MAX {
                return Err((self.at..self.at + len, RuleProblem::TooDeep));
            }
            self.at += len;
            let parts = self.parts(depth + 1)?;
            return Ok(operator(parts));
        }
        let Some(quote) = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return Err((self.at..self.word_end(), RuleProblem::Part));
        };
        let start = self.at + 1;
        let Some(len) = self.text[start..].find(quote) else {
            return Err((self.at..self.text.len(), RuleProblem::Quote));
        };
        self.at = start + len + 1;
        self.rate(start..start + len)
    }

    /// Reads the parts after an opening parenthesis, up to the closing one. A comma may end the list.
    fn parts(&mut self, depth: usize) -> Result<Vec<Expression>, Wrong> {
        let mut parts = Vec::new();
        loop {
            self.skip_space();
            if self.take(')') {
                return Ok(parts);
            }
            parts.push(self.part(depth)?);
            self.skip_space();
            if !self.take(',') && !self.rest().starts_with(')') {
                return Err((self.at..self.word_end(), RuleProblem::Separator));
            }
        }
    }

    /// An operator and how long it is, with its opening parenthesis.
    fn operator(&self) -> Option<(Operator, usize)> {
        let operators: [(&str, Operator); 2] = [("And", Expression::And), ("Or", Expression::Or)];
        operators.into_iter().find_map(|(name, operator)| {
            let after = self.rest().strip_prefix(name)?;
            let paren = after.trim_ascii_start().strip_prefix('(')?;
            Some((operator, self.rest().len() - paren.len()))
        })
    }

    fn rate(&mut self, range: Range<usize>) -> Result<Expression, Wrong> {
        if self.rates.len() == RATES_MAX {
            return Err((range, RuleProblem::TooMany));
        }
        let text = &self.text[range.clone()];
        let Some(divider) = divider(text) else { return Err((range, RuleProblem::Rate)) };
        let place = |part: Range<usize>| range.start + part.start..range.start + part.end;
        let colon = text[..divider.start].find(':');
        let selector = colon.map(|colon| &text[..colon]);
        if let Some(selector) = selector.filter(|selector| !is_name(selector)) {
            return Err((place(0..selector.len()), RuleProblem::Selector));
        }
        let count_at = trimmed(text, colon.map_or(0, |colon| colon + 1)..divider.start);
        let count = whole(&text[count_at.clone()])
            .filter(|count| *count <= COUNT_MAX)
            .and_then(|count| usize::try_from(count).ok())
            .ok_or((place(count_at), RuleProblem::Count))?;
        let third = text[divider.end..].find(':').map(|colon| divider.end + colon);
        let span_at = trimmed(text, divider.end..third.unwrap_or(text.len()));
        let span = span(&text[span_at.clone()]).map_err(|problem| (place(span_at), problem))?;
        if let Some(third) = third.filter(|third| !is_decimal(&text[third + 1..])) {
            return Err((place(third + 1..text.len()), RuleProblem::Ignored));
        }
        let log = self.log(selector, count, span);
        self.rates.push(Rate { count, span, log, ignored: third.is_some() });
        Ok(Expression::Charge(self.rates.len() - 1))
    }

    /// The place of a selector's log, kept for one more rate.
    fn log(&mut self, selector: Option<&str>, count: usize, span: Nanos) -> usize {
        let place = self.logs.iter().position(|log| log.selector() == selector).unwrap_or_else(|| {
            let retention = Retention { keep: 0, span: Nanos::ZERO };
            self.logs.push(RuleLog { selector: selector.map(Into::into), retention });
            self.logs.len() - 1
        });
        let retention = &mut self.logs[place].retention;
        *retention = retention.and(Retention { keep: count, span });
        place
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_ascii_start().len();
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.rest().starts_with(c);
        self.at += if taken { c.len_utf8() } else { 0 };
        taken
    }

    /// Returns the end of the word that starts here, so that an error can point at it.
    fn word_end(&self) -> usize {
        let stop = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ')' | '(');
        let first = self.rest().chars().next().map_or(0, char::len_utf8);
        self.at + self.rest().find(stop).unwrap_or(self.rest().len()).max(first)
    }
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(fits) && !text.as_bytes()[0].is_ascii_digit()
}

/// Returns the part of `range` that is left without the spaces around it.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = text[range.clone()].trim_ascii_start();
    let start = range.end - part.len();
    start..start + part.trim_ascii_end().len()
}

fn is_decimal(text: &str) -> bool {
    let (before, after) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits(before) && digits(after)
}

fn span(text: &str) -> Result<Nanos, RuleProblem> {
    match span_of(text) {
        Ok(span) if span.get().is_multiple_of(SPAN_UNIT_MIN) => Ok(span),
        Err(RateSpecError::Range) => Err(RuleProblem::SpanRange),
        _ => Err(RuleProblem::Span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_printed_in_their_canonical_form() {
        for (written, canonical) in [
            ("10/s", "10/s"),
            ("10/1s", "10/s"),
            (" user:10/5m ", "user:10/5m"),
            ("'15/m'", "15/m"),
            ("\"100/24h\"", "100/d"),
            ("1/1500ms", "1/1500ms"),
            ("1/90s", "1/90s"),
            ("0/s", "0/s"),
            ("5/minute", "5/m"),
            ("10 per second", "10/s"),
            ("100/day", "100/d"),
            ("10/5 minutes", "10/5m"),
            ("user: 10 / 5 Min", "user:10/5m"),
            ("10 per hour:0.1", "10/h"),
            ("Or('10 per 5 min', \"user:3/24 hours\")", "Or('10/5m', 'user:3/d')"),
            ("apikey:5/s:0.1", "apikey:5/s"),
            ("And()", "And()"),
            ("Or( )", "Or()"),
            ("Or('10/s',\n   '15/m',)", "Or('10/s', '15/m')"),
            (
                "And('apikey:100/h', Or('10/s', And('15/m', 'apikey:5/s:0.1')))",
                "And('apikey:100/h', Or('10/s', And('15/m', 'apikey:5/s')))",
            ),
        ] {
            let rule: Rule = written.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(rule.to_string(), canonical);
            assert_eq!(canonical.parse::<Rule>().map(|rule| rule.to_string()).as_deref(), Ok(canonical));
        }
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (rule, carets, problem) in [
            ("", "^", RuleProblem::Rate),
            ("ten", "^^^", RuleProblem::Rate),
            ("10", "^^", RuleProblem::Rate),
            ("/s", "^", RuleProblem::Count),
            ("-1/s", "^^", RuleProblem::Count),
            ("10000001/s", "^^^^^^^^", RuleProblem::Count),
            ("99999999999999999999/s", "^^^^^^^^^^^^^^^^^^^^", RuleProblem::Count),
            ("10/", "   ^", RuleProblem::Span),
            ("10/5", "   ^", RuleProblem::Span),
            ("10/5w", "   ^^", RuleProblem::Span),
            ("10/5ns", "   ^^^", RuleProblem::Span),
            ("10 per", "^^^^^^", RuleProblem::Rate),
            ("10 per fortnight", "       ^^^^^^^^^", RuleProblem::Span),
            ("ten per second", "^^^", RuleProblem::Count),
            ("Or('10 / 5 fortnights ')", "         ^^^^^^^^^^^^", RuleProblem::Span),
            ("10/0s", "   ^^", RuleProblem::SpanRange),
            ("10/999999999d", "   ^^^^^^^^^^", RuleProblem::SpanRange),
            (":10/s", "^", RuleProblem::Selector),
            ("1st:10/s", "^^^", RuleProblem::Selector),
            ("us er:10/s", "^^^^^", RuleProblem::Selector),
            ("a:5/s:", "      ^", RuleProblem::Ignored),
            ("a:5/s:x", "      ^", RuleProblem::Ignored),
            ("Or(10/s)", "   ^^^^", RuleProblem::Part),
            ("Or(ü)", "   ^", RuleProblem::Part),
            ("Or('10/s' '5/m')", "          ^^^^^", RuleProblem::Separator),
            ("Or('10/s'", "         ^", RuleProblem::Separator),
            ("Or('10/s", "   ^^^^^", RuleProblem::Quote),
            ("Or('10/s',", "          ^", RuleProblem::Part),
            ("Or('10/s') x", "           ^", RuleProblem::End),
            ("'10/s','5/m'", "      ^^^^^^", RuleProblem::End),
            ("Xor('10/s')", "^^^", RuleProblem::Operator),
            ("('10/s')", "^", RuleProblem::Operator),
        ] {
            let error = rule.parse::<Rule>().expect_err(rule);
            assert_eq!(error.problem, problem, "{rule}");
            assert_eq!(error.to_string().lines().last(), Some(&*format!("  {carets}")), "{error}");
        }
    }

    #[test]
    fn everything_that_grows_has_a_bound() {
        let rates = |count: usize| format!("Or({})", "'1/s',".repeat(count));
        let nested = |depth: usize| "And(".repeat(depth) + "'1/s'" + &")".repeat(depth);
        let problem = |rule: &str| rule.parse::<Rule>().err().map(|error| error.problem);
        assert_eq!(problem(&rates(RATES_MAX)), None);
        assert_eq!(problem(&rates(RATES_MAX + 1)), Some(RuleProblem::TooMany));
        assert_eq!(problem(&nested(DEPTH_MAX)), None);
        let too_deep = nested(DEPTH_MAX + 1).parse::<Rule>().unwrap_err();
        assert_eq!((too_deep.problem, too_deep.at), (RuleProblem::TooDeep, 64..68));
        let long = |length: usize| format!("{:length$}", "1/s");
        assert_eq!(problem(&long(RULE_MAX)), None);
        assert_eq!(problem(&long(RULE_MAX + 1)), Some(RuleProblem::TooLong));
    }

    #[test]
    fn rates_of_one_selector_share_a_log_that_serves_them_all() {
        let rule: Rule = "Or('user:10/s', 'user:100/h', '7/m', And('user:3/d'))".parse().unwrap();
        let logs: Vec<_> = rule
            .logs()
            .iter()
            .map(|log| (log.selector(), log.retention().keep(), log.retention().span().as_secs_rounded_up()))
            .collect();
        assert_eq!(logs, [(Some("user"), 100, 86_400), (None, 7, 60)]);
        assert_eq!(rule.rates().iter().map(Rate::log).collect::<Vec<_>>(), [0, 0, 1, 0]);
    }
}
