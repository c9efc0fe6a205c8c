//! Parses one line of a trace into an event.

use std::error::Error;
use std::fmt;

use thiserror::Error;
use tollway_core::{ChargeKind, ChargeRequest, Nanos, ParseNanosError, Timestamp, Verb};

use super::escape::unescape;
use super::reply::SILENCE;
use super::rule_request::{self, SELECTORS_MAX};
use super::{LimitRequest, TraceEvent, TraceRequest, hex, resp_words, zmq_frames};

/// A line that is not valid, with the position of the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceError {
    /// The line, counted from 1.
    pub line: u64,
    /// The byte in the line, counted from 1.
    pub column: usize,
    /// The kind of mistake that is there.
    pub problem: TraceProblem,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.problem)
    }
}

impl Error for TraceError {
    /// Returns the cause of the problem. The problem itself is a part of this error's text.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.problem.source()
    }
}

/// The kinds of mistakes that a line can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// A byte is not printable ASCII.
    #[error("byte 0x{byte:02x} is not printable ASCII; write it as \\x{byte:02x}")]
    Byte {
        /// The byte.
        byte: u8,
    },
    /// The line is longer than [`LINE_MAX`](super::LINE_MAX).
    #[error("a line can have at most {max} bytes")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// The first field is not a time.
    #[error("\"{text}\" is not a time since the epoch")]
    Time {
        /// The text that was found.
        text: String,
        /// The error of the time parser.
        source: ParseNanosError,
    },
    /// The event is earlier than the one above it.
    #[error("times must not go back, but {at} comes after {earlier}")]
    RunsBack {
        /// This event's time.
        at: Timestamp,
        /// The time of the event above.
        earlier: Timestamp,
    },
    /// The line ends after the time.
    #[error("a gate and a request must follow the time, such as \"limit spend Name:id\"")]
    NoGate,
    /// The gate does not exist.
    #[error("gate \"{gate}\" does not exist; use limit, rule, text, throttr, resp, smockron, rls or reload")]
    UnknownGate {
        /// The text that was found.
        gate: String,
    },
    /// The line ends after the arrow.
    #[error("a reply must follow \"=>\"; remove the arrow to accept any reply")]
    NoReply,
    /// The gate `limit` does not have this verb.
    #[error("verb \"{verb}\" does not exist; use spend, check, refund or reset")]
    UnknownVerb {
        /// The text that was found; empty at the end of a line.
        verb: String,
    },
    /// The line ends after the verb.
    #[error("at least one charge or rule must follow, such as \"Name:id cost=2\" or \"rule=NAME\"")]
    NoCharge,
    /// The field is neither a charge nor a cost or a kind.
    #[error("\"{text}\" is neither a charge (Name:id) nor a cost (cost=N) or a kind (kind=spend_only)")]
    NotACharge {
        /// The text that was found.
        text: String,
    },
    /// The cost is not a number.
    #[error("\"{text}\" is not a cost; use a whole number from 0 to {}", u64::MAX)]
    Cost {
        /// The text that was found.
        text: String,
    },
    /// The kind does not exist.
    #[error("\"{text}\" is not a kind; use spend, spend_only or check_only")]
    Kind {
        /// The text that was found.
        text: String,
    },
    /// The cost or the kind does not follow a charge.
    #[error("a cost or a kind must follow its charge, once, as in \"Name:id cost=2 kind=spend_only\"")]
    LooseCost,
    /// A reset was given a cost or a kind, and a reset takes nothing.
    #[error("a reset cannot have a cost or a kind")]
    CostOfReset,
    /// A backslash does not start a valid escape.
    #[error("a backslash must start one of \\n, \\r, \\t, \\\\ and \\xff")]
    Escape,
    /// The name of a limit is not UTF-8.
    #[error("the name of a limit must be UTF-8")]
    Name,
    /// The line ends after the gate `rule`.
    #[error("a rule must follow: its name, or an expression in double quotes, such as \"10/s\"")]
    NoRule,
    /// A double quote is not closed.
    #[error("this quote is not closed; write a quote inside it as \\x22")]
    OpenQuote,
    /// The field is neither a selector nor a key.
    #[error("\"{text}\" is neither a selector (name=value) nor a key (key=NAME)")]
    NotASelector {
        /// The text that was found.
        text: String,
    },
    /// A selector or the key is given twice.
    #[error("\"{name}\" is given twice; remove one")]
    Twice {
        /// The name that is given twice.
        name: String,
    },
    /// The request has more selectors than any rule can have.
    #[error("a request can have at most {SELECTORS_MAX} selectors")]
    TooManySelectors,
    /// A rule, a key or the name of a selector is not UTF-8.
    #[error("a rule, its key and the names of its selectors must be UTF-8")]
    NotText,
    /// The line ends after the gate `throttr`.
    #[error("a request in hexadecimal must follow, such as 020100000001016372")]
    NoBytes,
    /// The line ends after the gate `resp`.
    #[error("a command must follow, such as CL.THROTTLE alice 15 30 60")]
    NoCommand,
    /// A character is not a hexadecimal digit.
    #[error("\"{digit}\" is not a hexadecimal digit")]
    Digit {
        /// The text that was found.
        digit: char,
    },
    /// A byte has only one hexadecimal digit.
    #[error("a byte must be two hexadecimal digits, but there is only one here")]
    HalfByte,
    /// The text after the gate `smockron`, or its reply, is not made of JSON arrays of strings.
    #[error(
        "a message must be a JSON array of its frames, such as [\"default\\u0000\",\"ACCEPTED\",\"x\",\"0\",\"\"], and a reply an array of messages"
    )]
    NotFrames,
    /// A message has no frames, which ZeroMQ does not allow.
    #[error("a message must have at least one frame")]
    NoFrames,
    /// The text after the gate `rls` is no JSON object.
    #[error(
        "a request as JSON must follow, such as {{\"domain\":\"shop\",\"descriptors\":[{{\"entries\":[[\"account\",\"alice\"]]}}]}}"
    )]
    NotAnObject,
    /// The line ends after `reload`.
    #[error("a configuration on one line must follow, such as {{limits: {{Login: {{rate: 5/m}}}}}}")]
    NoConfiguration,
    /// A backslash in a frame does not start a valid escape.
    #[error("in a frame, a backslash must start a JSON escape, or \\xff for a byte that is not text")]
    FrameEscape,
}

/// Parses one line. Returns `None` for a blank line or a comment.
///
/// The request ends at the first `=>` between spaces. So a reply may contain one and a request may not: in an id, a
/// space is written `\x20`, and in a text an arrow is written `=\x3e`.
pub fn parse_line(line: &[u8], number: u64) -> Result<Option<TraceEvent>, TraceError> {
    parse_event(line, number).map_err(|(column, problem)| TraceError {
        line: number,
        column: column + 1,
        problem,
    })
}

/// A problem, with the index of the byte at which it starts.
pub(super) type LocatedProblem = (usize, TraceProblem);

fn parse_event(line: &[u8], number: u64) -> Result<Option<TraceEvent>, LocatedProblem> {
    let line = line.trim_ascii_end();
    if matches!(line.trim_ascii_start(), [] | [b'#', ..]) {
        return Ok(None);
    }
    let line = printable(line)?;
    let (ask, expected) = split_at_arrow(line)?;
    let mut fields = LineFields { line: ask, at: 0 };
    let (started, at) = parse_time(&mut fields)?;
    let request = parse_request(&mut fields)?;
    let expected = expected.map(|reply| check_expected_reply(&request, reply)).transpose()?;
    Ok(Some(TraceEvent { line: number, at, request, expected, text: ask[started..].to_owned() }))
}

fn printable(line: &[u8]) -> Result<&str, LocatedProblem> {
    match line.iter().position(|byte| !matches!(byte, b' '..=b'~' | b'\t')) {
        Some(at) => Err((at, TraceProblem::Byte { byte: line[at] })),
        None => Ok(std::str::from_utf8(line).expect("every byte was just seen to be ASCII")),
    }
}

/// Splits a line into the request (with the spaces after it) and the expected reply.
fn split_at_arrow(line: &str) -> Result<(&str, Option<LineField<'_>>), LocatedProblem> {
    let mut fields = LineFields { line, at: 0 };
    let Some(arrow) = fields.find(|field| field.text == "=>") else { return Ok((line, None)) };
    match fields.rest() {
        LineField { text: "", .. } => Err((arrow.at, TraceProblem::NoReply)),
        reply => Ok((&line[..arrow.at], Some(reply))),
    }
}

/// Parses the time in the first field, and returns it with the index at which the field starts.
fn parse_time(fields: &mut LineFields<'_>) -> Result<(usize, Timestamp), LocatedProblem> {
    let time = fields.next_or_empty();
    match time.text.parse::<Nanos>() {
        Ok(since_epoch) => Ok((time.at, Timestamp::EPOCH + since_epoch)),
        Err(source) => Err((time.at, TraceProblem::Time { text: time.text.to_owned(), source })),
    }
}

fn parse_request(fields: &mut LineFields<'_>) -> Result<TraceRequest, LocatedProblem> {
    let gate = fields.next_or_empty();
    match gate.text {
        "limit" => parse_limit_request(fields).map(TraceRequest::Limit),
        "rule" => rule_request::parse(fields).map(TraceRequest::Rule),
        "text" => unescaped(&fields.rest()).map(TraceRequest::Text),
        "throttr" => parse_throttr_request(&fields.rest()).map(TraceRequest::Throttr),
        "resp" => parse_resp_request(&fields.rest()).map(TraceRequest::Resp),
        "smockron" => decode_frames(&fields.rest(), zmq_frames::decode).map(TraceRequest::Smockron),
        "rls" => parse_rls_request(&fields.rest()).map(TraceRequest::Rls),
        "reload" => parse_reload(&fields.rest()).map(TraceRequest::Reload),
        "" => Err((gate.at, TraceProblem::NoGate)),
        other => Err((gate.at, TraceProblem::UnknownGate { gate: other.to_owned() })),
    }
}

fn parse_limit_request(fields: &mut LineFields<'_>) -> Result<LimitRequest, LocatedProblem> {
    let word = fields.next_or_empty();
    let Some(verb) = Verb::ALL.into_iter().find(|verb| verb.name() == word.text) else {
        return Err((word.at, TraceProblem::UnknownVerb { verb: word.text.to_owned() }));
    };
    let rules_at = fields.position_of(rule_request::RULE);
    let charges = parse_charges(&mut LineFields { line: &fields.line[..rules_at], at: fields.at }, verb)?;
    fields.at = rules_at;
    let rules = rule_request::parse_all(fields)?;
    if charges.is_empty() && rules.is_empty() {
        return Err((fields.at, TraceProblem::NoCharge));
    }
    Ok(LimitRequest { verb, charges, rules })
}

fn parse_charges(
    fields: &mut LineFields<'_>,
    verb: Verb,
) -> Result<Vec<ChargeRequest<'static>>, LocatedProblem> {
    let mut charges: Vec<ChargeRequest<'static>> = Vec::with_capacity(1);
    let (mut cost_fits, mut kind_fits) = (false, false);
    for field in fields {
        // The colon is looked for first: `Name:cost=2` is a charge with the id `cost=2`.
        if let Some((name, id)) = field.text.split_once(':') {
            charges.push(parse_charge(name, id, field.at, verb)?);
            (cost_fits, kind_fits) = (true, true);
            continue;
        }
        let Some((name, value)) =
            field.text.split_once('=').filter(|(name, _)| matches!(*name, "cost" | "kind"))
        else {
            return Err((field.at, TraceProblem::NotACharge { text: field.text.to_owned() }));
        };
        if verb == Verb::Reset {
            return Err((field.at, TraceProblem::CostOfReset));
        }
        let fits = if name == "cost" { &mut cost_fits } else { &mut kind_fits };
        let Some(charge) = charges.last_mut().filter(|_| std::mem::take(fits)) else {
            return Err((field.at, TraceProblem::LooseCost));
        };
        let at = field.at + "cost=".len();
        match name {
            "cost" => charge.cost = parse_cost(value, at)?,
            _ => charge.kind = parse_kind(value, at)?,
        }
    }
    Ok(charges)
}

fn parse_charge(
    name: &str,
    id: &str,
    at: usize,
    verb: Verb,
) -> Result<ChargeRequest<'static>, LocatedProblem> {
    let limit = unescaped(&LineField { text: name, at })?;
    let limit = String::from_utf8(limit).map_err(|_| (at, TraceProblem::Name))?;
    let id = unescaped(&LineField { text: id, at: at + name.len() + 1 })?;
    let (limit, id, cost) = (limit.into(), id.into(), verb.default_cost());
    Ok(ChargeRequest { limit, id, cost, kind: ChargeKind::Spend, inline: None })
}

pub(super) fn unescaped(field: &LineField<'_>) -> Result<Vec<u8>, LocatedProblem> {
    let bytes = unescape(field.text.as_bytes()).map_err(|bad| (field.at + bad, TraceProblem::Escape))?;
    Ok(bytes.into_owned())
}

fn parse_cost(digits: &str, at: usize) -> Result<u64, LocatedProblem> {
    match digits.parse() {
        // Rust's parser accepts a plus sign.
        Ok(cost) if !digits.starts_with('+') => Ok(cost),
        _ => Err((at, TraceProblem::Cost { text: digits.to_owned() })),
    }
}

fn parse_kind(name: &str, at: usize) -> Result<ChargeKind, LocatedProblem> {
    let found = ChargeKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| (at, TraceProblem::Kind { text: name.to_owned() }))
}

fn parse_throttr_request(field: &LineField<'_>) -> Result<Vec<u8>, LocatedProblem> {
    if field.text.is_empty() {
        return Err((field.at, TraceProblem::NoBytes));
    }
    hexadecimal(field)
}

fn parse_resp_request(field: &LineField<'_>) -> Result<Vec<Vec<u8>>, LocatedProblem> {
    match resp_words::parse(field.text).map_err(|(bad, problem)| (field.at + bad, problem))? {
        words if words.is_empty() => Err((field.at, TraceProblem::NoCommand)),
        words => Ok(words.into_iter().map(|word| word.bytes).collect()),
    }
}

fn parse_rls_request(field: &LineField<'_>) -> Result<String, LocatedProblem> {
    if field.text.starts_with('{') && field.text.ends_with('}') {
        Ok(field.text.to_owned())
    } else {
        Err((field.at, TraceProblem::NotAnObject))
    }
}

fn parse_reload(field: &LineField<'_>) -> Result<String, LocatedProblem> {
    if field.text.is_empty() {
        return Err((field.at, TraceProblem::NoConfiguration));
    }
    Ok(field.text.to_owned())
}

fn hexadecimal(field: &LineField<'_>) -> Result<Vec<u8>, LocatedProblem> {
    hex::decode(field.text.as_bytes()).map_err(|(bad, problem)| (field.at + bad, problem))
}

fn decode_frames<T>(
    field: &LineField<'_>,
    decode: fn(&str) -> Result<T, LocatedProblem>,
) -> Result<T, LocatedProblem> {
    decode(field.text).map_err(|(bad, problem)| (field.at + bad, problem))
}

/// Returns the expected reply as it was written, after a check that the gate could send it at all.
fn check_expected_reply(request: &TraceRequest, reply: LineField<'_>) -> Result<String, LocatedProblem> {
    let is_error = LineFields { line: reply.text, at: 0 }.next_or_empty().text == "error";
    match request {
        TraceRequest::Text(_) => drop(unescaped(&reply)?),
        TraceRequest::Throttr(_) if !is_error && reply.text != SILENCE => drop(hexadecimal(&reply)?),
        TraceRequest::Resp(_) => {
            drop(resp_words::parse(reply.text).map_err(|(bad, problem)| (reply.at + bad, problem))?);
        }
        TraceRequest::Smockron(_) if !is_error => drop(decode_frames(&reply, zmq_frames::decode_all)?),
        TraceRequest::Throttr(_)
        | TraceRequest::Smockron(_)
        | TraceRequest::Limit(_)
        | TraceRequest::Rule(_)
        | TraceRequest::Rls(_)
        | TraceRequest::Reload(_) => {}
    }
    Ok(reply.text.to_owned())
}

/// A part of a line between spaces, and the index at which it starts.
pub(super) struct LineField<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// An iterator over the fields of an ASCII line that start at `at` or later.
pub(super) struct LineFields<'a> {
    pub(super) line: &'a str,
    pub(super) at: usize,
}

impl<'a> LineFields<'a> {
    /// Returns the next field, or an empty one at the end of the line.
    pub(super) fn next_or_empty(&mut self) -> LineField<'a> {
        let end = self.at;
        self.next().unwrap_or(LineField { text: "", at: end })
    }

    /// Returns where the next field that starts with `prefix` begins, or the end of the line.
    pub(super) fn position_of(&self, prefix: &str) -> usize {
        let mut fields = LineFields { line: self.line, at: self.at };
        fields.find(|field| field.text.starts_with(prefix)).map_or(self.line.len(), |field| field.at)
    }

    /// Returns the rest of the line, without the spaces around it.
    pub(super) fn rest(&self) -> LineField<'a> {
        let rest = self.line[self.at..].trim_ascii_end();
        let text = rest.trim_ascii_start();
        LineField { text, at: self.at + rest.len() - text.len() }
    }
}

impl<'a> Iterator for LineFields<'a> {
    type Item = LineField<'a>;

    fn next(&mut self) -> Option<LineField<'a>> {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let rest = &self.line.as_bytes()[self.at..];
        let start = self.at + rest.iter().position(|byte| !blank(byte))?;
        let rest = &self.line.as_bytes()[start..];
        self.at = start + rest.iter().position(blank).unwrap_or(rest.len());
        Some(LineField { text: &self.line[start..self.at], at: start })
    }
}

#[cfg(test)]
mod tests {
    use tollway_core::RuleRef;

    use tollway_core::ErrorChain;

    use super::*;

    fn charge(limit: &str, id: &[u8], cost: u64) -> ChargeRequest<'static> {
        ChargeRequest::new(limit, id, cost).into_owned()
    }

    fn parsed(line: &str) -> TraceEvent {
        parse_line(line.as_bytes(), 1).unwrap().unwrap()
    }

    #[test]
    fn a_line_has_a_time_a_gate_a_request_and_perhaps_a_reply() {
        let event = parsed("\t0.5s    limit  spend A:1 cost=2  B:2 cost=3   => deny  limit=B \r\n");
        assert_eq!(event.at, Timestamp::from_nanos(500_000_000));
        assert_eq!(event.expected.as_deref(), Some("deny  limit=B"));
        assert_eq!(event.text, "0.5s    limit  spend A:1 cost=2  B:2 cost=3   ");
        let charges = vec![charge("A", b"1", 2), charge("B", b"2", 3)];
        assert_eq!(
            event.request,
            TraceRequest::Limit(LimitRequest { verb: Verb::Spend, charges, rules: Vec::new() })
        );
        assert_eq!(parsed("0s limit check A:1").expected, None);
        let event = parsed("0s limit refund A:1 kind=check_only B:2 cost=3 kind=spend_only C:3 kind=spend");
        let charges = vec![
            charge("A", b"1", 1).with_kind(ChargeKind::CheckOnly),
            charge("B", b"2", 3).with_kind(ChargeKind::SpendOnly),
            charge("C", b"3", 1),
        ];
        assert_eq!(
            event.request,
            TraceRequest::Limit(LimitRequest { verb: Verb::Refund, charges, rules: Vec::new() })
        );
    }

    #[test]
    fn blank_lines_and_comments_say_nothing() {
        for line in ["", "   ", "\t\r\n", "# 0s limit spend A:1", "  #", "# a snowman: ☃"] {
            assert_eq!(parse_line(line.as_bytes(), 1), Ok(None), "{line}");
        }
    }

    #[test]
    fn ids_and_costs_are_never_mixed_up() {
        for (text, expected) in [
            ("spend A:x", vec![charge("A", b"x", 1)]),
            ("refund A:x", vec![charge("A", b"x", 1)]),
            ("check A:x", vec![charge("A", b"x", 1)]),
            ("reset A:x B:y", vec![charge("A", b"x", 0), charge("B", b"y", 0)]),
            ("spend A:x cost=0 B:y", vec![charge("A", b"x", 0), charge("B", b"y", 1)]),
            ("spend A:x cost=18446744073709551615", vec![charge("A", b"x", u64::MAX)]),
            ("spend A:cost=2", vec![charge("A", b"cost=2", 1)]),
            ("spend cost=2:x", vec![charge("cost=2", b"x", 1)]),
            ("spend A:a=b cost=2", vec![charge("A", b"a=b", 2)]),
            ("spend A:b:c:", vec![charge("A", b"b:c:", 1)]),
            ("spend A:", vec![charge("A", b"", 1)]),
            ("spend :x", vec![charge("", b"x", 1)]),
            ("spend A:=>", vec![charge("A", b"=>", 1)]),
            ("spend A:x\\x20=>\\x20y", vec![charge("A", b"x => y", 1)]),
            ("spend A:#", vec![charge("A", b"#", 1)]),
            ("spend A:\\x00\\xff\\\\\\n", vec![charge("A", b"\x00\xff\\\n", 1)]),
            ("spend \\x3a:x", vec![charge(":", b"x", 1)]),
        ] {
            let TraceRequest::Limit(request) = parsed(&format!("0s limit {text}")).request else {
                panic!("{text} is asked of the gate `limit`");
            };
            assert_eq!(request.charges, expected, "{text}");
            assert_eq!(request.to_string().replace('\\', ""), text.replace('\\', ""));
        }
    }

    #[test]
    fn a_text_is_whatever_stands_between_the_blanks() {
        for (line, text, expected) in [
            ("0s text  7 over_limit ws global   => 7 ok N", &b"7 over_limit ws global"[..], Some("7 ok N")),
            ("0s\ttext\tping\t=>\tpong\t", b"ping", Some("pong")),
            ("0s text over_limit a  b\tc", b"over_limit a  b\tc", None),
            ("0s text \\x20ping\\x20 => (none)", b" ping ", Some("(none)")),
            ("0s text ping\\n => (none)", b"ping\n", Some("(none)")),
            ("0s text a =\\x3e b=> c => d => e", b"a => b=> c", Some("d => e")),
            ("0s text # => (none)", b"#", Some("(none)")),
            ("0s text => (none)", b"", Some("(none)")),
            ("0s text", b"", None),
        ] {
            let event = parsed(line);
            assert_eq!(event.request, TraceRequest::Text(text.to_vec()), "{line}");
            assert_eq!(event.expected.as_deref(), expected, "{line}");
            let again = parsed(&format!("0s {}", event.request));
            assert_eq!(again.request, event.request, "{line}");
        }
    }

    #[test]
    fn a_throttr_request_is_bytes_in_hexadecimal() {
        for (line, bytes, expected) in [
            ("2s throttr 0202 => 0200000000", &b"\x02\x02"[..], Some("0200000000")),
            ("2s throttr 02fF  01 => 02 00", b"\x02\xff\x01", Some("02 00")),
            ("2s throttr 02 => (none)", b"\x02", Some("(none)")),
            ("2s throttr 02 => error", b"\x02", Some("error")),
            ("2s throttr 02", b"\x02", None),
        ] {
            let event = parsed(line);
            assert_eq!(event.request, TraceRequest::Throttr(bytes.to_vec()), "{line}");
            assert_eq!(event.expected.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_resp_command_is_its_words() {
        for (line, words, expected) in [
            (
                "2s resp CL.THROTTLE k 15 30 60 => *5 :0 :16 :15 :-1 :2",
                &["CL.THROTTLE", "k", "15", "30", "60"][..],
                Some("*5 :0 :16 :15 :-1 :2"),
            ),
            (r#"2s resp ECHO "a  b" => "a  b""#, &["ECHO", "a  b"], Some(r#""a  b""#)),
            (r#"2s resp ECHO "" '' "a\"b" 'a"b' => "x""#, &["ECHO", "", "", "a\"b", "a\"b"], Some(r#""x""#)),
            (r"2s resp ECHO a\x20b\n", &["ECHO", "a b\n"], None),
        ] {
            let event = parsed(line);
            let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(event.request, TraceRequest::Resp(words), "{line}");
            assert_eq!(event.expected.as_deref(), expected, "{line}");
            assert_eq!(parsed(&format!("2s {}", event.request)).request, event.request, "{line}");
        }
    }

    #[test]
    fn a_smockron_message_is_an_array_of_frames() {
        for (line, frames, expected) in [
            (r#"3s smockron ["d\u0000","ACCEPTED"] => []"#, &[&b"d\0"[..], b"ACCEPTED"][..], Some("[]")),
            (r#"3s smockron ["a b"]  => [["x"],["y"]]"#, &[b"a b"], Some(r#"[["x"],["y"]]"#)),
            (r#"3s smockron [ "\xff" ] => error"#, &[b"\xff"], Some("error")),
            (r#"3s smockron [""]"#, &[b""], None),
        ] {
            let event = parsed(line);
            let message: Vec<_> = frames.iter().map(|frame| frame.to_vec()).collect();
            assert_eq!(event.request, TraceRequest::Smockron(message), "{line}");
            assert_eq!(event.expected.as_deref(), expected, "{line}");
            assert_eq!(parsed(&format!("3s {}", event.request)).request, event.request, "{line}");
        }
    }

    #[test]
    fn a_reload_has_a_configuration_on_one_line() {
        for (line, config, expected) in [
            ("9s reload {limits: {A: {rate: 5/m}}} => ok", "{limits: {A: {rate: 5/m}}}", Some("ok")),
            ("9s reload  limits: {}  => error a => b", "limits: {}", Some("error a => b")),
            (r#"9s reload {rules: {a: "b =\u003e c"}}"#, r#"{rules: {a: "b =\u003e c"}}"#, None),
        ] {
            let event = parsed(line);
            assert_eq!(event.request, TraceRequest::Reload(config.to_owned()), "{line}");
            assert_eq!(event.expected.as_deref(), expected, "{line}");
            assert_eq!(parsed(&format!("9s {}", event.request)).request, event.request, "{line}");
        }
    }

    #[test]
    fn a_rule_has_a_name_or_is_written_out() {
        let named = |name: &str| RuleRef::Named(name.into());
        let written = |text: &str| RuleRef::Written(text.into());
        for (line, rule, key, selectors) in [
            ("upload", named("upload"), None, &[][..]),
            ("upload user=vova apikey=", named("upload"), None, &[("user", &b"vova"[..]), ("apikey", b"")]),
            (r"upload key=a\x20b user=0", named("upload"), Some("a b"), &[("user", b"0")]),
            (r"upload key= \x6bey=v", named("upload"), Some(""), &[("key", b"v")]),
            (r"upload user=a=b:\xff", named("upload"), None, &[("user", b"a=b:\xff")]),
            (r#""10/s""#, written("10/s"), None, &[]),
            (r#""Or('1/s', '5/m')" key=stuff"#, written("Or('1/s', '5/m')"), Some("stuff"), &[]),
            (r#""Or(\x221/s\x22)" u=1"#, written("Or(\"1/s\")"), None, &[("u", b"1")]),
            (r#""" key=="#, written(""), Some("="), &[]),
            (r#""a =\x3e b""#, written("a => b"), None, &[]),
        ] {
            let TraceRequest::Rule(request) = parsed(&format!("1s  rule  {line}  => allow")).request else {
                panic!("{line} is asked of the gate `rule`");
            };
            let given: Vec<_> = request.selectors.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!((&request.rule, request.key.as_deref(), &*given), (&rule, key, selectors), "{line}");
            assert_eq!(TraceRequest::Rule(request).to_string(), format!("rule  {line}"));
        }
    }

    #[test]
    fn the_rules_of_a_bill_follow_its_charges() {
        for (line, charges, rules) in [
            ("spend A:1 rule=upload user=vova", 1, &[("upload", &["user"][..])][..]),
            (
                r#"check A:1 cost=2 B:2 rule=upload key=a:b user=c:d rule="Or('1/s', '5/m')" rule="1/s" k=1"#,
                2,
                &[("upload", &["user"]), ("Or('1/s', '5/m')", &[]), ("1/s", &["k"])],
            ),
            (r"spend rule=upload \x72ule=v user=", 0, &[("upload", &["rule", "user"])]),
            (r"spend rule\x3da:1 rule=b", 1, &[("b", &[])]),
        ] {
            let event = parsed(&format!("1s  limit  {line}  => allow"));
            let TraceRequest::Limit(request) = &event.request else {
                panic!("{line} is of the gate `limit`")
            };
            assert_eq!(request.charges.len(), charges, "{line}");
            let found = request.rules.iter().map(|rule| {
                let (RuleRef::Named(text) | RuleRef::Written(text)) = &rule.rule;
                (&**text, rule.selectors.iter().map(|(name, _)| &**name).collect::<Vec<_>>())
            });
            let expected = rules.iter().map(|(text, selectors)| (*text, selectors.to_vec()));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{line}");
            assert_eq!(event.request.to_string(), format!("limit  {line}"));
        }
    }

    #[test]
    fn the_first_arrow_ends_the_request() {
        let event = parsed("0s limit spend A:x => error `a => b` is no id");
        assert_eq!(event.expected.as_deref(), Some("error `a => b` is no id"));
        assert_eq!(event.text, "0s limit spend A:x ");
    }

    #[test]
    fn a_bad_line_says_where_and_what_would_be_right() {
        for (line, message) in [
            ("0s limit spend A:1 rule=", "7:25: a rule must follow"),
            (
                "0s limit spend A:1 rule=upload B:2",
                "7:32: \"B:2\" is neither a selector (name=value) nor a key",
            ),
            ("0s limit spend A:1 rule=\"1/s", "7:25: this quote is not closed"),
            ("0s limit spend A:1 rule=a user=1 user=2", "7:34: \"user\" is given twice"),
            (
                "x limit spend A:1",
                "7:1: \"x\" is not a time since the epoch: a duration must be numbers with units",
            ),
            ("5 limit spend A:1", "7:1: \"5\" is not a time since the epoch: \"5\" has no unit; use ns, us"),
            ("-1s limit spend A:1", "7:1: \"-1s\" is not a time"),
            (
                "9223372037s limit spend A:1",
                "7:1: \"9223372037s\" is not a time since the epoch: a duration must be at most",
            ),
            ("0s", "7:3: a gate and a request must follow"),
            ("0s => ok", "7:3: a gate and a request must follow"),
            (
                "0s  soap  over_limit x",
                "7:5: gate \"soap\" does not exist; use limit, rule, text, throttr, resp, smockron, rls or reload",
            ),
            ("0s limit", "7:9: verb \"\" does not exist; use spend, check, refund or reset"),
            ("0s limit Spend A:1", "7:10: verb \"Spend\" does not exist"),
            ("0s limit spend", "7:15: at least one charge or rule must follow"),
            ("0s limit spend A", "7:16: \"A\" is neither a charge (Name:id) nor a cost"),
            ("0s limit spend cost=1", "7:16: a cost or a kind must follow its charge"),
            ("0s limit spend A:1 cost=1 cost=2", "7:27: a cost or a kind must follow its charge, once"),
            ("0s limit spend A:1 kind=spend cost=1 kind=spend", "7:38: a cost or a kind must follow"),
            (
                "0s limit refund A:1 kind=both",
                "7:26: \"both\" is not a kind; use spend, spend_only or check_only",
            ),
            ("0s limit reset A:1 kind=spend", "7:20: a reset cannot have a cost or a kind"),
            (
                "0s limit spend A:1 cost=",
                "7:25: \"\" is not a cost; use a whole number from 0 to 18446744073709551615",
            ),
            ("0s limit spend A:1 cost=-1", "7:25: \"-1\" is not a cost"),
            ("0s limit spend A:1 cost=+1", "7:25: \"+1\" is not a cost"),
            ("0s limit spend A:1 cost=1.5", "7:25: \"1.5\" is not a cost"),
            ("0s limit spend A:1 cost=18446744073709551616", "7:25: \"18446744073709551616\" is not a cost"),
            ("0s limit reset A:1 cost=1", "7:20: a reset cannot have a cost"),
            ("0s limit spend A:1 =>", "7:20: a reply must follow \"=>\""),
            ("0s limit spend A:a\\q", "7:19: a backslash must start one of \\n, \\r, \\t, \\\\ and \\xff"),
            ("0s limit spend \\xff:a", "7:16: the name of a limit must be UTF-8"),
            ("0s text  a\\q", "7:11: a backslash must start one of"),
            ("0s text ping => po\\ng\\", "7:22: a backslash must start one of"),
            ("0s text ping =>", "7:14: a reply must follow \"=>\""),
            ("0s text \u{e9}", "7:9: byte 0xc3 is not printable ASCII"),
            (
                "0s rule",
                "7:8: a rule must follow: its name, or an expression in double quotes, such as \"10/s\"",
            ),
            ("0s rule user=vova", "7:9: a rule must follow"),
            ("0s rule \"10/s key=x", "7:9: this quote is not closed; write a quote inside it as \\x22"),
            ("0s rule \"Or(' => ')\"", "7:9: this quote is not closed"),
            ("0s rule upload vova", "7:16: \"vova\" is neither a selector (name=value) nor a key (key=NAME)"),
            ("0s rule upload =vova", "7:16: \"=vova\" is neither a selector"),
            ("0s rule upload a=1 b=2 a=", "7:24: \"a\" is given twice"),
            ("0s rule upload key=1 key=1", "7:22: \"key\" is given twice"),
            (
                "0s rule upload key=\\xff",
                "7:20: a rule, its key and the names of its selectors must be UTF-8",
            ),
            ("0s rule upload user=\\q", "7:21: a backslash must start one of"),
            ("0s throttr", "7:11: a request in hexadecimal must follow"),
            ("0s throttr => 00", "7:11: a request in hexadecimal must follow"),
            ("0s throttr 0x01", "7:13: \"x\" is not a hexadecimal digit"),
            ("0s throttr 01 020", "7:17: a byte must be two hexadecimal digits"),
            ("0s throttr 01 => 0", "7:18: a byte must be two hexadecimal digits"),
            ("0s throttr 01 => ok", "7:18: \"o\" is not a hexadecimal digit"),
            ("0s resp", "7:8: a command must follow, such as CL.THROTTLE"),
            ("0s resp => +PONG", "7:8: a command must follow"),
            ("0s resp ECHO \"a", "7:14: this quote is not closed"),
            ("0s resp ECHO a\\q", "7:15: a backslash must start one of"),
            ("0s resp PING => \"PONG", "7:17: this quote is not closed"),
            ("0s smockron", "7:12: a message must be a JSON array of its frames"),
            ("0s smockron []", "7:13: a message must have at least one frame"),
            (r#"0s smockron ["\y"]"#, "7:15: in a frame, a backslash must start a JSON escape"),
            (r#"0s smockron ["a"] => ["a"]"#, "7:23: a message must be a JSON array of its frames"),
            (
                "0s reload",
                "7:10: a configuration on one line must follow, such as {limits: {Login: {rate: 5/m}}}",
            ),
            ("0s reload  => ok", "7:10: a configuration on one line must follow"),
            ("0s limit spend A:\u{e9}", "7:18: byte 0xc3 is not printable ASCII; write it as \\xc3"),
            ("0s limit spend A:x\ry", "7:19: byte 0x0d is not printable ASCII; write it as \\x0d"),
        ] {
            let error = ErrorChain(&parse_line(line.as_bytes(), 7).unwrap_err()).to_string();
            assert!(error.starts_with(message), "{line}\n{error}");
        }
    }
}
