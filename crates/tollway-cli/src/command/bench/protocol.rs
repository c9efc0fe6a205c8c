//! What the generator has to know about a protocol over TCP: one request, and where a reply ends.

use super::tally::Tally;
use super::template::Template;

/// Requests of one size, replies in order.
pub(super) trait Protocol {
    /// What the replies are called where they turn out not to be.
    const REPLIES: &'static str;

    /// The command that starts a server for this protocol.
    const START: &'static str = "tollway serve";

    /// The request of which all others are copies.
    fn template(&self) -> &Template;

    /// Writes the number of a request into its frame, where the protocol has a place for it.
    #[inline]
    fn number(&self, _frame: &mut [u8], _number: u32) {}

    /// Counts the whole replies at the front of `inbox`, at most `most`, the first of which is to the request with the
    /// number `first`. Returns how many bytes they take.
    fn scan(&self, inbox: &[u8], first: u32, most: u64, tally: &mut Tally) -> Result<usize, Foreign>;
}

/// Bytes that are no reply of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

/// Any of them, with a peer that sends back what it gets.
pub(super) struct Echo<P>(pub(super) P);

impl<P: Protocol> Protocol for Echo<P> {
    const REPLIES: &'static str = "an echo";
    const START: &'static str = "tollway bench echo";

    fn template(&self) -> &Template {
        self.0.template()
    }

    #[inline]
    fn number(&self, frame: &mut [u8], number: u32) {
        self.0.number(frame, number);
    }

    fn scan(&self, inbox: &[u8], _first: u32, most: u64, tally: &mut Tally) -> Result<usize, Foreign> {
        let frame = self.template().frame();
        let replies = (inbox.len() / frame.len()).min(usize::try_from(most).unwrap_or(usize::MAX));
        // The first byte is the same in all requests; a glance at it tells an echo from an answer.
        if inbox.chunks(frame.len()).take(replies.max(1)).any(|reply| reply[0] != frame[0]) {
            return Err(Foreign);
        }
        tally.replies += replies as u64;
        Ok(replies * frame.len())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Scans `replies`, cut at every place, as a connection would: what is not yet whole comes again with the rest.
    pub(in super::super) fn scan_at_every_cut(
        protocol: &impl Protocol,
        replies: &[u8],
        first: u32,
        due: u64,
    ) -> Tally {
        let whole = scan_in_parts(protocol, &[replies], first, due);
        for cut in 0..=replies.len() {
            let (front, back) = replies.split_at(cut);
            let tally = scan_in_parts(protocol, &[front, back], first, due);
            let counts =
                |tally: &Tally| (tally.replies, tally.denied, tally.failed, tally.first_failure.clone());
            assert_eq!(counts(&tally), counts(&whole), "cut at {cut}");
        }
        whole
    }

    fn scan_in_parts(protocol: &impl Protocol, parts: &[&[u8]], first: u32, due: u64) -> Tally {
        let (mut tally, mut inbox) = (Tally::new(), Vec::new());
        for part in parts {
            inbox.extend_from_slice(part);
            let next = first.wrapping_add(u32::try_from(tally.replies).unwrap());
            let used = protocol.scan(&inbox, next, due - tally.replies, &mut tally).unwrap();
            inbox.drain(..used);
        }
        assert!(inbox.is_empty(), "{inbox:?} was left");
        tally
    }

    pub(in super::super) fn refuses(protocol: &impl Protocol, replies: &[u8]) {
        assert_eq!(
            protocol.scan(replies, 0, 9, &mut Tally::new()),
            Err(Foreign),
            "{}",
            replies.escape_ascii()
        );
    }
}
