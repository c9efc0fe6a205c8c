//! Writes what was decided under an inline limit as a command of a Redis client, which brings the numbers along.
//!
//! ```text
//! 2s  resp  CL.THROTTLE alice 15 30 60     => *5 :0 :16 :15 :-1 :2     a spend of 1
//! 2s  resp  CL.THROTTLE alice 15 30 60 -2  => *5 :0 :16 :16 :-1 :0     a refund of 2
//! 2s  resp  DEL alice                                                  a reset
//! ```
//!
//! The buckets of all gates' inline limits are those of these commands, whatever protocol asked.

use tollway::trace::{TraceReply, TraceRequest};
use tollway_core::{Algorithm, Charge, Decision, Refund};
use tollway_wire::resp::{ReplyWriter, RespCommand, RespVersion, ThrottleRequest, ThrottleUse, reply_text};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A command that does to a bucket what a request did.
pub(super) struct InlineCommand(Vec<Vec<u8>>);

impl InlineCommand {
    /// Returns the command that spends what a charge costs; `None` if no command can have its numbers.
    pub(super) fn spend(charge: &Charge<'_>, id: &[u8]) -> Option<Self> {
        Self::throttle(charge, id, i64::try_from(charge.cost()).ok()?)
    }

    /// Returns the command that gives back what a charge costs; `None` if no command can have its numbers.
    pub(super) fn refund(charge: &Charge<'_>, id: &[u8]) -> Option<Self> {
        Self::throttle(charge, id, -i64::try_from(charge.cost()).ok()?)
    }

    /// Returns the command that forgets the bucket of an id; `None` if no command can have the id.
    pub(super) fn reset(id: &[u8]) -> Option<Self> {
        let words = [b"DEL", id];
        RespCommand::parse(&words).is_ok().then(|| Self(words.map(<[u8]>::to_vec).to_vec()))
    }

    fn throttle(charge: &Charge<'_>, id: &[u8], quantity: i64) -> Option<Self> {
        let Some(Algorithm::TokenBucket(numbers)) = charge.algorithm() else { return None };
        let period = numbers.period().get();
        if !period.is_multiple_of(NANOS_PER_SECOND) {
            return None;
        }
        let mut words = vec![b"CL.THROTTLE".to_vec(), id.to_vec()];
        let numbers = [numbers.burst() - 1, numbers.count(), period / NANOS_PER_SECOND];
        words.extend(numbers.map(|number| number.to_string().into_bytes()));
        if quantity != 1 {
            words.push(quantity.to_string().into_bytes());
        }
        let command = Self(words);
        command.with_request(|_| ()).map(|()| command)
    }

    /// Returns the reply to a spend.
    pub(super) fn decision_reply(&self, decision: &Decision) -> Option<TraceReply> {
        let mut bytes = Vec::new();
        let reply = &mut ReplyWriter::new(&mut bytes, RespVersion::default());
        self.with_request(|request| request.put_decision(decision, reply))?;
        reply_text(&bytes).ok().map(TraceReply::Resp)
    }

    /// Returns the reply to a refund.
    pub(super) fn refund_reply(&self, refund: &Refund) -> Option<TraceReply> {
        let mut bytes = Vec::new();
        let reply = &mut ReplyWriter::new(&mut bytes, RespVersion::default());
        self.with_request(|request| request.put_refund(refund, reply))?;
        reply_text(&bytes).ok().map(TraceReply::Resp)
    }

    pub(super) fn into_request(self) -> TraceRequest {
        TraceRequest::Resp(self.0)
    }

    /// Calls a function with the request that a gate reads from the words. Returns `None` if it reads none, or one that
    /// only looks because it asks for too much.
    fn with_request<T>(&self, call: impl FnOnce(&ThrottleRequest<'_>) -> T) -> Option<T> {
        let words: Vec<&[u8]> = self.0.iter().map(|word| &**word).collect();
        match RespCommand::parse(&words) {
            Ok(RespCommand::Throttle(request)) if request.usage() != ThrottleUse::TooMuch => {
                Some(call(&request))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway_core::algorithm::TokenBucket;
    use tollway_core::{InlineAlgorithm, InlineLimit};
    use tollway_wire::resp::KEY_MAX;

    use super::*;

    #[test]
    fn numbers_that_no_command_can_have_are_not_written() {
        let limit = InlineLimit::default();
        for (burst, period, cost, expected) in [
            (16, Duration::from_secs(60), 1, Some("resp  CL.THROTTLE \"a b\" 15 30 60")),
            (16, Duration::from_secs(60), 0, Some("resp  CL.THROTTLE \"a b\" 15 30 60 0")),
            (16, Duration::from_secs(60), 16, Some("resp  CL.THROTTLE \"a b\" 15 30 60 16")),
            (16, Duration::from_millis(1_500), 1, None),
        ] {
            let numbers = InlineAlgorithm::new(TokenBucket::new(burst, 30, period).unwrap());
            let charge = limit.charge(&numbers, b"a b", cost).unwrap();
            let command =
                InlineCommand::spend(&charge, b"a b").map(|command| command.into_request().to_string());
            assert_eq!(command.as_deref(), expected);
        }
        let numbers = InlineAlgorithm::new(TokenBucket::new(1, 1, Duration::from_secs(1)).unwrap());
        let most = limit.refund(&numbers, b"a", u64::MAX);
        assert!(InlineCommand::refund(&most, b"a").is_none());
        assert_eq!(InlineCommand::reset(b"a").unwrap().into_request().to_string(), "resp  DEL a");
        assert!(InlineCommand::reset(&[b'a'; KEY_MAX]).is_some());
        assert!(InlineCommand::reset(&[b'a'; KEY_MAX + 1]).is_none());
    }
}
