//! The replies to the requests of a trace: how they are written, and when one matches what was expected.
//!
//! ```text
//! allow remaining=299 retry_after=0s reset_after=36s      deny remaining=0 retry_after=1.5s reset_after=10s limit=B
//! allow unlimited                                         deny remaining=0 reset_after=10s         (no time lifts it)
//! allow full remaining=0 retry_after=0s reset_after=0s    deny full remaining=0 retry_after=1s reset_after=0s
//! allow unreachable remaining=0 retry_after=0s …          deny degraded remaining=0 …     (the store gave no answer)
//! ok remaining=300 reset_after=0s                         full remaining=300 reset_after=0s        (of a refund)
//! ok                          (of a reset and a reload)   error limit "X" does not exist
//! 7 ok N 0.0 2500.0 10                     (of `text`)    0200000000                               (of `throttr`)
//! (none)                                   (silence)      [["web\u0000","DELAY_UNTIL","x","4000"]]   (of `smockron`)
//! {"overall_code":"OK","statuses":[{"code":"OK"}]}        (of `rls`)
//! *5 :0 :16 :15 :-1 :2                     (of `resp`)    -ERR unknown command 'GET'               (of `resp`)
//! allow                                    (of `rule`)    deny retry_after=0.8s                    (of `rule`)
//! allow full, allow unreachable, allow degraded           deny                     (of `rule`; no time lifts it)
//! deny retry_after=0.8s rule=upload        (of a bill that a rule decided)
//! ```

use std::fmt::{self, Write};

use tollway_core::{Decider, Decision, Refund, RuleDecision, RuleRef, Verdict};

use super::{LimitRequest, ZmqMessage, escape, hex, resp_words, rule_request, zmq_frames};

/// The text that stands for no reply at all.
pub(super) const SILENCE: &str = "(none)";

/// A reply that a request of a trace got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum TraceReply {
    /// The reply to a spend or a check.
    Decision {
        /// The decision about the bill.
        decision: Decision,
        /// The limit that decided, where the bill had more than one charge, or a rule.
        limit: Option<String>,
    },
    /// The reply to a spend or a check that a rule decided.
    DecidedByRule {
        /// The decision about the bill.
        decision: RuleDecision,
        /// The rule that decided.
        rule: RuleRef,
    },
    /// The reply to a request at the gate `rule`.
    RuleDecision(RuleDecision),
    /// The reply to a refund.
    Refund(Refund),
    /// The reply to a refund where no limit applies.
    UnlimitedRefund,
    /// The reply to a reset.
    Reset,
    /// The datagram that the gate `text` sent, if it sent one.
    Text(Option<Vec<u8>>),
    /// The bytes that the gate `throttr` wrote; empty until a whole request has arrived.
    Throttr(Vec<u8>),
    /// The reply of the gate `resp` in one line, `*2 :1 "text"`; empty if there was none.
    Resp(String),
    /// The messages that the gate `smockron` published.
    Smockron(Vec<ZmqMessage>),
    /// The reply of the gate `rls`, as JSON.
    Rls(String),
    /// The reply to a reload whose configuration applies from now on.
    Reloaded,
    /// The reply to a request that cannot be decided: the limit or rule does not exist, the id has the wrong format, or
    /// the cost can never fit. Also the reply to a reload whose configuration has errors, which changes nothing.
    Error(String),
}

impl TraceReply {
    /// Returns the reply to a spend or a check. It names what decided, if the bill has more than one part.
    pub fn decision(request: &LimitRequest, decision: Decision) -> Self {
        let has_several = request.charges.len() + request.rules.len() > 1;
        match decision.decider(&request.charges) {
            Decider::Charge(charge) => {
                Self::Decision { decision, limit: has_several.then(|| charge.limit.to_string()) }
            }
            Decider::Rule(index) if has_several => {
                Self::DecidedByRule { decision: decision.into(), rule: request.rules[index].rule.clone() }
            }
            Decider::Rule(_) => Self::RuleDecision(decision.into()),
        }
    }
}

impl fmt::Display for TraceReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision { decision, limit } => write_decision(f, decision, limit.as_deref()),
            Self::RuleDecision(decision) => write_rule_decision(f, decision),
            Self::DecidedByRule { decision, rule } => {
                write_rule_decision(f, decision)?;
                write!(f, " {}", rule_request::RULE)?;
                rule_request::write_rule(f, rule)
            }
            Self::Refund(refund) => {
                let word = if refund.refunded { "ok" } else { "full" };
                write!(f, "{word} remaining={} reset_after={}", refund.remaining, refund.reset_nanos)
            }
            Self::UnlimitedRefund => f.write_str("full unlimited"),
            Self::Reset | Self::Reloaded => f.write_str("ok"),
            Self::Text(None) => f.write_str(SILENCE),
            Self::Text(Some(text)) => write_text(f, text),
            Self::Throttr(bytes) if bytes.is_empty() => f.write_str(SILENCE),
            Self::Throttr(bytes) => hex::write(f, bytes),
            Self::Resp(text) if text.is_empty() => f.write_str(SILENCE),
            Self::Resp(text) => f.write_str(text),
            Self::Smockron(messages) => zmq_frames::write_all(f, messages),
            Self::Rls(json) => f.write_str(json),
            Self::Error(message) => {
                f.write_str("error ")?;
                escape::write_text(f, message.as_bytes())
            }
        }
    }
}

fn write_decision(f: &mut fmt::Formatter<'_>, decision: &Decision, limit: Option<&str>) -> fmt::Result {
    if decision.verdict == Verdict::Unlimited {
        // No limit applied, so there are no numbers to show.
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

/// Writes the decision about a rule. Only a denial has a `retry_after`.
fn write_rule_decision(f: &mut fmt::Formatter<'_>, decision: &RuleDecision) -> fmt::Result {
    write_verdict(f, decision.verdict, decision.degraded)?;
    if decision.allowed() || decision.retry_nanos.is_forever() {
        return Ok(());
    }
    write!(f, " retry_after={}", decision.retry_nanos)
}

fn write_verdict(f: &mut fmt::Formatter<'_>, verdict: Verdict, degraded: bool) -> fmt::Result {
    f.write_str(match verdict {
        Verdict::Allow | Verdict::Unlimited => "allow",
        Verdict::Deny => "deny",
        Verdict::AllowFull => "allow full",
        Verdict::DenyFull => "deny full",
        Verdict::AllowUnreachable => "allow unreachable",
        Verdict::DenyUnreachable => "deny unreachable",
    })?;
    let says_why = !matches!(verdict, Verdict::Allow | Verdict::Deny);
    if degraded && !says_why { f.write_str(" degraded") } else { Ok(()) }
}

/// Writes a datagram, escaped so that it cannot be taken for `(none)` or end the line.
fn write_text(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    match text {
        // No gate sends an empty datagram, so it needs no spelling of its own.
        b"" => f.write_str(SILENCE),
        b"(none)" => f.write_str("\\x28none)"),
        _ => escape::write_text(f, text),
    }
}

/// Returns whether `reply` is the reply that a trace expects.
///
/// Bytes are compared byte by byte, however they are escaped. Everything else is compared field by field, and `error`
/// alone matches any error.
pub fn matches(expected: &str, reply: &TraceReply) -> bool {
    let expected = expected.trim_ascii();
    if displays_as(expected, reply) {
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
        // The text of an error is for people, so its code alone stands for any.
        TraceReply::Resp(reply) if matches!(expected, "-ERR" | "error") => reply.starts_with("-ERR "),
        TraceReply::Resp(reply) => resp_words::parse(expected)
            .is_ok_and(|expected| resp_words::parse(reply).is_ok_and(|reply| expected == reply)),
        TraceReply::Smockron(messages) => {
            zmq_frames::decode_all(expected).is_ok_and(|expected| expected == *messages)
        }
        TraceReply::Error(_) if expected == "error" => true,
        _ => expected.split_ascii_whitespace().eq(reply.to_string().split_ascii_whitespace()),
    }
}

/// Returns whether `reply` displays as `expected`. It compares while the reply is written, without allocating: in a
/// replay of millions of events nearly every reply is as expected.
fn displays_as(expected: &str, reply: &TraceReply) -> bool {
    struct UnmatchedText<'a>(&'a str);
    impl fmt::Write for UnmatchedText<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = UnmatchedText(expected);
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
            (TraceReply::Reloaded, "ok"),
            (TraceReply::Error("no `\n` \\ é".into()), "error no `\\n` \\\\ \\xc3\\xa9"),
        ] {
            assert_eq!(reply.to_string(), text);
            assert!(matches(text, &reply));
        }
    }

    #[test]
    fn rule_decisions_read_as_documented() {
        let (allow, deny) = (RuleDecision::ALLOW, RuleDecision::new(Verdict::Deny, Nanos::from_millis(800)));
        for (decision, text) in [
            (allow, "allow"),
            (deny, "deny retry_after=0.8s"),
            (RuleDecision::new(Verdict::Deny, Nanos::FOREVER), "deny"),
            (allow.with_degraded(), "allow degraded"),
            (deny.with_degraded(), "deny degraded retry_after=0.8s"),
            (allow.with_verdict(Verdict::AllowFull), "allow full"),
            (deny.with_verdict(Verdict::DenyFull), "deny full retry_after=0.8s"),
            (allow.with_verdict(Verdict::AllowUnreachable).with_degraded(), "allow unreachable"),
            (
                deny.with_verdict(Verdict::DenyUnreachable).with_degraded(),
                "deny unreachable retry_after=0.8s",
            ),
        ] {
            assert_eq!(TraceReply::RuleDecision(decision).to_string(), text);
            assert!(matches(text, &TraceReply::RuleDecision(decision)));
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
        let reply = TraceReply::Error("limit \"X\" does not exist".into());
        assert!(matches("error", &reply));
        assert!(matches("error limit \"X\" does not exist", &reply));
        assert!(!matches("error limit \"Y\" does not exist", &reply));
    }
}
