//! Pending calls, and the batches of callers that wait for their replies.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Reply;
use super::health::WaitingCalls;
use crate::store::redis::call::Call;

/// The longest time that a call waits in a queue of the driver while its node answers others. The deadline does not
/// run meanwhile: the node is not the one that is late.
pub(super) const QUEUE_MAX: Duration = Duration::from_secs(1);

/// The number of times that one call is sent again. Nodes that disagree about a slot could redirect it for ever.
const ATTEMPTS_MAX: u8 = 16;

/// The slot in a pending batch that a reply will fill.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplySlot {
    batch: u64,
    index: usize,
}

#[cfg(feature = "simulation")]
impl ReplySlot {
    /// Returns the number of the batch, counted from 0 in the order in which batches came.
    pub(super) fn batch(self) -> u64 {
        self.batch
    }
}

/// One call that has no reply yet.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) call: Call,
    pub(super) slot: ReplySlot,
    /// The time when it is given up: the end of its deadline, or of [`QUEUE_MAX`] while that does not run.
    due: Instant,
    deadline_runs: bool,
    attempts: u8,
    /// True if the node does not know the script, so that it must be loaded first.
    pub(super) with_script: bool,
    /// True if the node must answer although the slot is not its own yet.
    pub(super) asking: bool,
}

impl PendingCall {
    pub(super) fn new(call: Call, slot: ReplySlot, now: Instant) -> Self {
        let due = now + QUEUE_MAX;
        Self { call, slot, due, deadline_runs: false, attempts: 0, with_script: false, asking: false }
    }

    /// Starts the deadline, unless it runs already: from now on the store is what the call waits for.
    pub(super) fn start_deadline(&mut self, now: Instant, deadline: Duration) {
        if !self.deadline_runs {
            (self.due, self.deadline_runs) = (now + deadline, true);
        }
    }

    /// Returns the time when the call is given up.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Returns true if the call is given up because of the store, and false if it only waited in the queue.
    pub(super) fn is_late(&self) -> bool {
        self.deadline_runs
    }

    /// Prepares the call to be sent again after a node answered that it did not execute it. Returns `None` after too
    /// many attempts.
    pub(super) fn retry(mut self) -> Option<Self> {
        self.attempts += 1;
        self.asking = false;
        (self.attempts <= ATTEMPTS_MAX).then_some(self)
    }

    /// Forgets the attempts, for a call that pauses before each.
    pub(super) fn forget_attempts(&mut self) {
        self.attempts = 0;
    }
}

/// The calls that one caller sends together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) calls: Vec<Call>,
    pub(super) waiting: WaitingCalls,
    pub(super) caller: oneshot::Sender<Vec<Reply>>,
}

/// All batches that wait for replies.
#[derive(Debug, Default)]
pub(super) struct PendingBatches {
    /// The number of the first batch in `open`.
    first: u64,
    open: VecDeque<Option<PendingBatch>>,
}

/// The replies of one batch, as far as they have come.
#[derive(Debug)]
struct PendingBatch {
    replies: Vec<Option<Reply>>,
    missing: usize,
    waiting: WaitingCalls,
    caller: oneshot::Sender<Vec<Reply>>,
}

impl PendingBatches {
    /// Opens a batch, and returns its calls.
    pub(super) fn open(&mut self, batch: Batch, now: Instant) -> impl Iterator<Item = PendingCall> + use<> {
        let Batch { calls, waiting, caller } = batch;
        let batch = self.first + self.open.len() as u64;
        let replies = calls.iter().map(|_| None).collect();
        self.open.push_back(Some(PendingBatch { replies, missing: calls.len(), waiting, caller }));
        let pending = move |(index, call)| PendingCall::new(call, ReplySlot { batch, index }, now);
        calls.into_iter().enumerate().map(pending)
    }

    /// Returns true if nobody awaits a slot: it is full, or its caller has gone. A batch whose caller has gone is
    /// closed, because its calls are dropped, and no reply would ever close it.
    pub(super) fn close_unless_awaited(&mut self, slot: ReplySlot) -> bool {
        let place = self.position(slot).and_then(|position| self.open.get_mut(position));
        let Some(place) = place else { return true };
        if place.take_if(|batch| batch.caller.is_closed()).is_some() {
            self.forget_closed();
            return true;
        }
        place.as_ref().is_none_or(|batch| batch.replies[slot.index].is_some())
    }

    /// Fills a slot, unless it is full. The last reply of a batch delivers all of them.
    pub(super) fn fill(&mut self, slot: ReplySlot, reply: Reply) {
        let Some(position) = self.position(slot) else { return };
        let Some(place) = self.open.get_mut(position) else { return };
        let Some(batch) = place.as_mut().filter(|batch| batch.replies[slot.index].is_none()) else { return };
        batch.replies[slot.index] = Some(reply);
        batch.missing -= 1;
        if batch.missing > 0 {
            return;
        }
        if let Some(PendingBatch { replies, caller, waiting, .. }) = place.take() {
            drop(waiting);
            // The caller may have gone.
            let _ = caller.send(replies.into_iter().flatten().collect());
        }
        self.forget_closed();
    }

    fn forget_closed(&mut self) {
        while let Some(None) = self.open.front() {
            self.open.pop_front();
            self.first += 1;
        }
    }

    fn position(&self, slot: ReplySlot) -> Option<usize> {
        usize::try_from(slot.batch.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redis::Value;

    use super::*;
    use crate::store::redis::StoreError;
    use crate::store::redis::net::health::SharedHealth;

    #[test]
    fn replies_are_delivered_in_the_order_of_the_calls() {
        let mut batches = PendingBatches::default();
        let (slots, mut replies) = open(&mut batches, 2);
        batches.fill(slots[1], Ok(Value::Int(1)));
        assert!(replies.try_recv().is_err());
        batches.fill(slots[0], Ok(Value::Int(0)));
        assert_eq!(replies.try_recv().unwrap(), [Ok(Value::Int(0)), Ok(Value::Int(1))]);
    }

    #[test]
    fn the_first_reply_of_a_slot_stays() {
        let mut batches = PendingBatches::default();
        let (slots, mut replies) = open(&mut batches, 2);
        let (later_slots, mut later) = open(&mut batches, 1);
        batches.fill(slots[0], Err(StoreError::Busy { waiting: 7 }));
        assert!(batches.close_unless_awaited(slots[0]) && !batches.close_unless_awaited(slots[1]));
        batches.fill(slots[0], Ok(Value::Okay)); // It came after the deadline.
        batches.fill(later_slots[0], Ok(Value::Okay));
        assert_eq!(later.try_recv().unwrap(), [Ok(Value::Okay)]);
        batches.fill(slots[1], Ok(Value::Okay));
        assert_eq!(replies.try_recv().unwrap(), [Err(StoreError::Busy { waiting: 7 }), Ok(Value::Okay)]);
        assert!(batches.open.is_empty());
    }

    #[test]
    fn a_batch_whose_caller_has_gone_is_closed() {
        let mut batches = PendingBatches::default();
        let (slots, replies) = open(&mut batches, 2);
        let (later_slots, mut later) = open(&mut batches, 1);
        drop(replies);
        assert!(batches.close_unless_awaited(slots[1]) && batches.close_unless_awaited(slots[0]));
        assert_eq!(batches.open.len(), 1);
        batches.fill(slots[0], Ok(Value::Okay)); // It was in flight.
        batches.fill(later_slots[0], Ok(Value::Okay));
        assert_eq!(later.try_recv().unwrap(), [Ok(Value::Okay)]);
        assert!(batches.open.is_empty());
    }

    fn open(batches: &mut PendingBatches, count: usize) -> (Vec<ReplySlot>, oneshot::Receiver<Vec<Reply>>) {
        let (caller, replies) = oneshot::channel();
        let waiting = WaitingCalls::begin(&Arc::<SharedHealth>::default(), count).unwrap();
        let calls = (0..count).map(|_| Call { slot: 0, command: redis::cmd("PING"), script: None }).collect();
        let batch = Batch { calls, waiting, caller };
        (batches.open(batch, Instant::now()).map(|call| call.slot).collect(), replies)
    }
}
