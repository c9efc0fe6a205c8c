//! `TOLL`, which asks under the limits of the policy.
//!
//! ```text
//! TOLL SPEND Login alice            takes 1
//! TOLL CHECK Login alice 3          would 3 pass?
//! TOLL SPEND Login alice 1 All * 1  one bill: both or none
//! TOLL RESET Login alice All *      forgets both buckets
//! ```
//!
//! The reply has the fields of the HTTP gate: a map, or names and values in turn in version 2.

use tollway_core::{Charge, ChargeRequest, Decision, Refund, Verb, Verdict};

use super::KEY_MAX;
use super::error::{CommandError, shown};
use super::integer;
use super::reply::ReplyWriter;

/// One charge that is asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TollCharge<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The id as the client spells it.
    pub id: &'a [u8],
    /// The units that it would take.
    pub cost: u64,
}

impl<'a> From<TollCharge<'a>> for ChargeRequest<'a> {
    fn from(charge: TollCharge<'a>) -> Self {
        Self::new(charge.limit, charge.id, charge.cost)
    }
}

/// A verb and the charges that it is about, which are parsed when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct TollRequest<'w, 'a> {
    /// The verb.
    pub verb: Verb,
    words: &'w [&'a [u8]],
}

const COMMAND: &str = "toll";

impl<'w, 'a> TollRequest<'w, 'a> {
    /// Parses the words after the name of the command.
    pub(super) fn parse(words: &'w [&'a [u8]]) -> Result<Self, CommandError> {
        let wrong_count = CommandError::WordCount { command: COMMAND };
        let Some((name, words)) = words.split_first() else { return Err(wrong_count) };
        let verb = Verb::ALL.into_iter().find(|verb| name.eq_ignore_ascii_case(verb.name().as_bytes()));
        let Some(verb) = verb else {
            return Err(CommandError::UnknownSubcommand { command: COMMAND, name: shown(name) });
        };
        let request = Self { verb, words };
        let fits = !words.is_empty() && words.len().is_multiple_of(request.words_per_charge());
        if fits { Ok(request) } else { Err(wrong_count) }
    }

    /// Returns the charges in their order.
    pub fn charges(self) -> impl ExactSizeIterator<Item = Result<TollCharge<'a>, CommandError>> {
        let verb = self.verb;
        self.words.chunks(self.words_per_charge()).map(move |words| charge(verb, words))
    }

    /// One charge may leave out its cost, and a reset has none.
    fn words_per_charge(&self) -> usize {
        if self.words.len() == 2 || !self.verb.has_cost() { 2 } else { 3 }
    }
}

fn charge<'a>(verb: Verb, words: &[&'a [u8]]) -> Result<TollCharge<'a>, CommandError> {
    let limit = std::str::from_utf8(words[0]).map_err(|_| CommandError::LimitName)?;
    if words[1].len() > KEY_MAX {
        return Err(CommandError::KeyTooLong);
    }
    let cost = match words.get(2) {
        None => verb.default_cost(),
        Some(word) => match integer::parse(word).map(u64::try_from) {
            Some(Ok(cost)) => cost,
            Some(Err(_)) => return Err(CommandError::TooSmall { field: "cost", min: 0 }),
            None => return Err(CommandError::NoInteger { field: "cost", found: shown(word) }),
        },
    };
    Ok(TollCharge { limit, id: words[1], cost })
}

/// Appends the reply to a spend or a check.
pub fn put_decision(charges: &[Charge<'_>], decision: &Decision, reply: &mut ReplyWriter<'_>) {
    let reason = match decision.verdict {
        Verdict::Allow | Verdict::Deny | Verdict::Unlimited => None,
        Verdict::AllowFull | Verdict::DenyFull => Some("full"),
        Verdict::AllowUnreachable | Verdict::DenyUnreachable => Some("store"),
    };
    let unlimited = decision.verdict == Verdict::Unlimited;
    let extra = usize::from(unlimited) + usize::from(reason.is_some()) + usize::from(decision.degraded);
    reply.map(5 + extra);
    reply.bulk(b"allowed");
    reply.boolean(decision.allowed());
    reply.bulk(b"remaining");
    if unlimited || reason == Some("store") {
        reply.null();
    } else {
        reply.integer(i64::try_from(decision.remaining).unwrap_or(i64::MAX));
    }
    reply.bulk(b"retry_after");
    reply.seconds(decision.retry_nanos);
    reply.bulk(b"reset_after");
    reply.seconds(decision.reset_nanos);
    reply.bulk(b"limit");
    reply.bulk(charges[decision.charge].limit().name().as_bytes());
    if unlimited {
        reply.bulk(b"unlimited");
        reply.boolean(true);
    }
    if let Some(reason) = reason {
        reply.bulk(b"reason");
        reply.bulk(reason.as_bytes());
    }
    if decision.degraded {
        reply.bulk(b"degraded");
        reply.boolean(true);
    }
}

/// Appends the reply to a refund. A refund of several charges is about no single limit.
pub fn put_refund(charges: &[Charge<'_>], refund: &Refund, reply: &mut ReplyWriter<'_>) {
    let unlimited = charges.iter().all(|charge| charge.algorithm().is_none());
    reply.map(3 + usize::from(charges.len() == 1) + usize::from(unlimited));
    reply.bulk(b"refunded");
    reply.boolean(refund.refunded);
    reply.bulk(b"remaining");
    if unlimited {
        reply.null();
    } else {
        reply.integer(i64::try_from(refund.remaining).unwrap_or(i64::MAX));
    }
    reply.bulk(b"reset_after");
    reply.seconds(refund.reset_nanos);
    if let [charge] = charges {
        reply.bulk(b"limit");
        reply.bulk(charge.limit().name().as_bytes());
    }
    if unlimited {
        reply.bulk(b"unlimited");
        reply.boolean(true);
    }
}

/// Appends the reply to a reset.
pub fn put_reset(reply: &mut ReplyWriter<'_>) {
    reply.map(1);
    reply.bulk(b"reset");
    reply.boolean(true);
}
