//! What comes back, as the trace writes it.
//!
//! ```text
//! allow remaining=299 retry_after=0s reset_after=36s      deny remaining=0 retry_after=1.5s reset_after=10s limit=B
//! allow unlimited                                         deny remaining=0 reset_after=10s         (no time lifts it)
//! allow full remaining=0 retry_after=0s reset_after=0s    deny full remaining=0 retry_after=1s reset_after=0s
//! allow away remaining=0 retry_after=0s reset_after=0s    deny degraded remaining=0 …     (the store gave no answer)
//! ok remaining=300 reset_after=0s                         full remaining=300 reset_after=0s        (of a refund)
//! ok                                       (of a reset)   error there is no limit `X`
//! 7 ok N 0.0 2500.0 10                     (of `text`)    0200000000                               (of `throttr`)
//! (none)                                   (silence)      [["web\u0000","DELAY_UNTIL","x","4000"]]   (of `smockron`)
//! allow                                    (of `rule`)    deny retry_after=0.8s                    (of `rule`)
//! allow full, allow away, allow degraded   (of `rule`)    deny                     (of `rule`; no time lifts it)
//! ```

use std::fmt::{self, Write};

use tollway_core::{Decision, Refund, RuleDecision, Verdict};

use super::{ZmqMessage, escape, frames, hex};

/// How a trace writes that nothing comes back.
pub(super) const SILENCE: &str = "(none)";

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceReply {
    /// To a spend or a check.
    Decision {
        /// What was decided.
        decision: Decision,
        /// The limit that decided, where the bill had more than one charge.
        limit: Option<String>,
    },
    /// To what was asked of a rule.
    RuleDecision(RuleDecision),
    /// To a refund: what it came to.
    Refund(Refund),
    /// To a refund where no limit applies.
    UnlimitedRefund,
    /// To a reset.
    Reset,
    /// One datagram of the gate `text`, or silence.
    Text(Option<Vec<u8>>),
    /// What the gate `throttr` wrote: nothing, as long as a request has not all arrived.
    Throttr(Vec<u8>),
    /// The messages that the gate `smockron` published.
    Smockron(Vec<ZmqMessage>),
    /// To what cannot be decided: a limit or a rule nobody configured, an id of the wrong format, a cost that never fits.
    Error(String),
}

impl fmt::Display for TraceReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision { decision, limit } => write_decision(f, decision, limit.as_deref()),
            Self::RuleDecision(ruling) => write_ruling(f, ruling),
            Self::Refund(refund) => {
                let word = if refund.refunded { "ok" } else { "full" };
                write!(f, "{word} remaining={} reset_after={}", refund.remaining, refund.reset_nanos)
            }
            Self::UnlimitedRefund => f.write_str("full unlimited"),
            Self::Reset => f.write_str("ok"),
            Self::Text(None) => f.write_str(SILENCE),
            Self::Text(Some(text)) => write_text(f, text),
            Self::Throttr(bytes) if bytes.is_empty() => f.write_str(SILENCE),
            Self::Throttr(bytes) => hex::write(f, bytes),
            Self::Smockron(messages) => frames::write_all(f, messages),
            Self::Error(message) => {
                f.write_str("error ")?;
                escape::write_text(f, message.as_bytes())
            }
        }
    }
}

fn write_decision(f: &mut fmt::Formatter<'_>, decision: &Decision, limit: Option<&str>) -> fmt::Result {
    if decision.verdict == Verdict::Unlimited {
        // Nothing is counted, and no limit decided.
        return f.write_str("allow unlimited");
    }
    write_verdict(f, decision.verdict, decision.degraded)?;
    write!(f, " remaining={}", decision.remaining)?;
    if !decision.retry_nanos.is_forever() {
        write!(f, " retry_after={}", decision.retry_nanos)?;
    }
    write!(f, " reset_after={}", decision.reset_nanos)?;
    if let Some(limit) = limit {
        f.write_str(" limit=")?;
        escape::write_token(f, limit.as_bytes())?;
    }
    Ok(())
}

/// When it would pass is of interest to those who do not.
fn write_ruling(f: &mut fmt::Formatter<'_>, ruling: &RuleDecision) -> fmt::Result {
    write_verdict(f, ruling.verdict, ruling.degraded)?;
    if ruling.allowed() || ruling.retry_nanos.is_forever() {
        return Ok(());
    }
    write!(f, " retry_after={}", ruling.retry_nanos)
}

fn write_verdict(f: &mut fmt::Formatter<'_>, verdict: Verdict, degraded: bool) -> fmt::Result {
    f.write_str(match verdict {
        Verdict::Allow | Verdict::Unlimited => "allow",
        Verdict::Deny => "deny",
        Verdict::AllowFull => "allow full",
        Verdict::DenyFull => "deny full",
        Verdict::AllowAway => "allow away",
        Verdict::DenyAway => "deny away",
    })?;
    let says_why = !matches!(verdict, Verdict::Allow | Verdict::Deny);
    if degraded && !says_why { f.write_str(" degraded") } else { Ok(()) }
}

/// Writes a datagram so that it is not taken for silence, nor for the end of the line.
fn write_text(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    match text {
        // No gate sends an empty datagram, and no trace could tell it from one.
        b"" => f.write_str(SILENCE),
        b"(none)" => f.write_str("\\x28none)"),
        _ => escape::write_text(f, text),
    }
}

/// Is this the reply that a trace expects?
///
/// Bytes agree byte by byte, whichever way they are written. All else agrees field by field, and `error` alone stands
/// for any error.
pub fn matches(expected: &str, reply: &TraceReply) -> bool {
    let expected = expected.trim_ascii();
    if is_exactly(expected, reply) {
        return true;
    }
    match reply {
        TraceReply::Text(Some(text)) => {
            expected != SILENCE && escape::unescape(expected.as_bytes()).is_ok_and(|bytes| *bytes == **text)
        }
        TraceReply::Text(None) => false,
        TraceReply::Throttr(bytes) => {
            hex::decode(expected.as_bytes()).is_ok_and(|expected| expected == *bytes)
        }
        TraceReply::Smockron(messages) => {
            frames::decode_all(expected).is_ok_and(|expected| expected == *messages)
        }
        TraceReply::Error(_) if expected == "error" => true,
        _ => expected.split_ascii_whitespace().eq(reply.to_string().split_ascii_whitespace()),
    }
}

/// Compares while the reply is being written, so that nothing is kept of the millions that are as expected.
fn is_exactly(expected: &str, reply: &TraceReply) -> bool {
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(expected);
    write!(rest, "{reply}").is_ok() && rest.0.is_empty()
}

#[cfg(test)]
mod tests {
    use tollway_core::Nanos;

    use super::*;

    const ALLOW: Decision = Decision::new(Verdict::Allow, 299, Nanos::ZERO, Nanos::from_secs(36));

    fn decided(decision: Decision) -> TraceReply {
        TraceReply::Decision { decision, limit: None }
    }

    #[test]
    fn replies_read_as_documented() {
        let deny_for = |retry| Decision::new(Verdict::Deny, 0, retry, Nanos::from_secs(36));
        let deny = deny_for(Nanos::from_millis(1500));
        for (reply, text) in [
            (decided(ALLOW), "allow remaining=299 retry_after=0s reset_after=36s"),
            (decided(deny), "deny remaining=0 retry_after=1.5s reset_after=36s"),
            (
                TraceReply::Decision { decision: deny, limit: Some("B".into()) },
                "deny remaining=0 retry_after=1.5s reset_after=36s limit=B",
            ),
            (decided(deny_for(Nanos::FOREVER)), "deny remaining=0 reset_after=36s"),
            (
                decided(deny.with_verdict(Verdict::DenyFull)),
                "deny full remaining=0 retry_after=1.5s reset_after=36s",
            ),
            (
                decided(ALLOW.with_verdict(Verdict::AllowFull)),
                "allow full remaining=299 retry_after=0s reset_after=36s",
            ),
            (decided(Decision::UNLIMITED), "allow unlimited"),
            (TraceReply::Refund(Refund::new(true, 300, Nanos::ZERO)), "ok remaining=300 reset_after=0s"),
            (TraceReply::Refund(Refund::new(false, 300, Nanos::ZERO)), "full remaining=300 reset_after=0s"),
            (TraceReply::UnlimitedRefund, "full unlimited"),
            (TraceReply::Reset, "ok"),
            (TraceReply::Error("no `\n` \\ é".into()), "error no `\\n` \\\\ \\xc3\\xa9"),
        ] {
            assert_eq!(reply.to_string(), text);
            assert!(matches(text, &reply));
        }
    }

    #[test]
    fn rulings_read_as_documented() {
        let (allow, deny) = (RuleDecision::ALLOW, RuleDecision::new(Verdict::Deny, Nanos::from_millis(800)));
        for (ruling, text) in [
            (allow, "allow"),
            (deny, "deny retry_after=0.8s"),
            (RuleDecision::new(Verdict::Deny, Nanos::FOREVER), "deny"),
            (allow.with_degraded(), "allow degraded"),
            (deny.with_degraded(), "deny degraded retry_after=0.8s"),
            (allow.with_verdict(Verdict::AllowFull), "allow full"),
            (deny.with_verdict(Verdict::DenyFull), "deny full retry_after=0.8s"),
            (allow.with_verdict(Verdict::AllowAway).with_degraded(), "allow away"),
            (deny.with_verdict(Verdict::DenyAway).with_degraded(), "deny away retry_after=0.8s"),
        ] {
            assert_eq!(TraceReply::RuleDecision(ruling).to_string(), text);
            assert!(matches(text, &TraceReply::RuleDecision(ruling)));
        }
    }

    #[test]
    fn bytes_are_compared_exactly_whichever_way_they_are_written() {
        let text = |text: &str| TraceReply::Text(Some(text.into()));
        for (reply, written, others) in [
            (text("7 ok N"), "7 ok N", &["7\\x20ok N", "\\x37 ok N"][..]),
            (text("key= a => \\\n "), "key= a =\\x3e \\\\\\n\\x20", &["key= a => \\\\\\n\\x20"]),
            (text("(none)"), "\\x28none)", &[]),
            (text("error"), "error", &[]),
            (TraceReply::Text(None), "(none)", &[]),
            (TraceReply::Throttr(vec![0x02, 0xfa]), "02fa", &["02FA", "02 fa"]),
            (TraceReply::Throttr(vec![]), "(none)", &[]),
            (TraceReply::Smockron(vec![]), "[]", &["[ ]"]),
            (
                TraceReply::Smockron(vec![vec![b"d\0".into(), b"\xff".into()]]),
                r#"[["d\u0000","\xff"]]"#,
                &[r#"[ ["\u0064\x00", "\xff"] ]"#],
            ),
        ] {
            assert_eq!(reply.to_string(), written);
            for expected in [written].iter().chain(others) {
                assert!(matches(expected, &reply), "{expected}");
            }
        }
        for (expected, reply) in [
            ("7  ok N", text("7 ok N")),
            ("(none)", text("(none)")),
            ("error", text("7 ok N")),
            ("7 ok N", TraceReply::Text(None)),
            ("02fa00", TraceReply::Throttr(vec![0x02, 0xfa])),
            ("error", TraceReply::Throttr(vec![])),
            ("(none)", TraceReply::Smockron(vec![])),
            ("[[]]", TraceReply::Smockron(vec![])),
            ("(none)", TraceReply::Reset),
        ] {
            assert!(!matches(expected, &reply), "{expected} is not {reply}");
        }
    }

    #[test]
    fn blanks_between_fields_are_free_and_nothing_else_is() {
        let reply = decided(ALLOW);
        assert!(matches("  allow  remaining=299\tretry_after=0s reset_after=36s ", &reply));
        for other in [
            "allow",
            "allow remaining=299 retry_after=0s reset_after=36.0s",
            "allow remaining=29 9 retry_after=0s reset_after=36s",
            "deny remaining=299 retry_after=0s reset_after=36s",
            "error",
        ] {
            assert!(!matches(other, &reply), "{other}");
        }
    }

    #[test]
    fn error_alone_is_any_error() {
        let reply = TraceReply::Error("there is no limit `X`".into());
        assert!(matches("error", &reply));
        assert!(matches("error there is no limit `X`", &reply));
        assert!(!matches("error there is no limit `Y`", &reply));
    }
}
