//! Replies that are still awaited, in the order in which they were asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Reply;
use super::health::Board;
use super::node::NodeId;
use crate::store::redis::StoreError;

/// Which reply, of which batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    sheaf: u64,
    index: usize,
}

/// All batches that wait for replies. Every batch has the same time, so the oldest is always the first to run out of it.
#[derive(Debug)]
pub(super) struct Sheaves {
    /// The number of the first batch in `open`.
    first: u64,
    open: VecDeque<Option<Sheaf>>,
    board: Arc<Board>,
}

/// The replies of one batch, as far as they have come.
#[derive(Debug)]
struct Sheaf {
    asked: Instant,
    places: Vec<Place>,
    missing: usize,
    reply: oneshot::Sender<Vec<Reply>>,
}

#[derive(Debug)]
enum Place {
    /// Not here yet; whose answer it will be, if that is known.
    Awaited(Option<NodeId>),
    Came(Reply),
}

impl Sheaves {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { first: 0, open: VecDeque::new(), board }
    }

    /// Makes room for the replies to a batch of `count` calls, and returns their tickets.
    pub(super) fn open(
        &mut self,
        count: usize,
        asked: Instant,
        reply: oneshot::Sender<Vec<Reply>>,
    ) -> impl Iterator<Item = Ticket> + use<> {
        let sheaf = self.first + self.open.len() as u64;
        let places = (0..count).map(|_| Place::Awaited(None)).collect();
        self.open.push_back(Some(Sheaf { asked, places, missing: count, reply }));
        (0..count).map(move |index| Ticket { sheaf, index })
    }

    /// Does anybody still wait for this reply?
    pub(super) fn is_awaited(&mut self, ticket: Ticket) -> bool {
        self.find(ticket).is_some_and(|sheaf| !sheaf.reply.is_closed())
    }

    /// Notes who is to answer.
    pub(super) fn expect_from(&mut self, ticket: Ticket, node: NodeId) {
        if let Some(sheaf) = self.find(ticket) {
            sheaf.places[ticket.index] = Place::Awaited(Some(node));
        }
    }

    /// Puts a reply in its place. If it was the last of its batch, whoever waits gets all of them.
    pub(super) fn fill(&mut self, ticket: Ticket, reply: Reply) {
        let Some(sheaf) = self.find(ticket) else { return };
        sheaf.places[ticket.index] = Place::Came(reply);
        sheaf.missing -= 1;
        if sheaf.missing == 0 {
            let position = self.position(ticket).expect("it was found a moment ago");
            if let Some(sheaf) = self.open[position].take() {
                self.deliver(sheaf, |_| unreachable!("nothing is missing"));
            }
            self.forget_delivered();
        }
    }

    /// When the oldest batch was asked for.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.open.front()?.as_ref().map(|sheaf| sheaf.asked)
    }

    /// Delivers every batch that was asked for at `until` or before, with `excuse` for each reply that has not come from a node.
    pub(super) fn expire(&mut self, until: Instant, excuse: impl Fn(Option<NodeId>) -> StoreError) {
        while self.oldest().is_some_and(|asked| asked <= until) {
            if let Some(Some(sheaf)) = self.open.pop_front() {
                self.first += 1;
                self.board.timeouts.add(sheaf.missing as u64);
                self.deliver(sheaf, &excuse);
            }
            self.forget_delivered();
        }
    }

    fn deliver(&self, sheaf: Sheaf, excuse: impl Fn(Option<NodeId>) -> StoreError) {
        self.board.waiting.fetch_sub(sheaf.places.len(), Ordering::Relaxed);
        let replies = sheaf.places.into_iter().map(|place| match place {
            Place::Came(reply) => reply,
            Place::Awaited(node) => Err(excuse(node)),
        });
        // Whoever asked may have gone.
        let _ = sheaf.reply.send(replies.collect());
    }

    fn forget_delivered(&mut self) {
        while let Some(None) = self.open.front() {
            self.open.pop_front();
            self.first += 1;
        }
    }

    fn find(&mut self, ticket: Ticket) -> Option<&mut Sheaf> {
        let position = self.position(ticket)?;
        self.open.get_mut(position)?.as_mut()
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        usize::try_from(ticket.sheaf.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis::Value;

    use super::*;

    #[test]
    fn replies_come_in_the_order_of_the_calls() {
        let mut sheaves = Sheaves::new(Arc::default());
        let (tickets, mut replies) = ask(&mut sheaves, 2, Instant::now());
        sheaves.fill(tickets[1], Ok(Value::Int(1)));
        assert!(replies.try_recv().is_err());
        sheaves.fill(tickets[0], Ok(Value::Int(0)));
        assert_eq!(replies.try_recv().unwrap(), [Ok(Value::Int(0)), Ok(Value::Int(1))]);
    }

    #[test]
    fn what_has_not_come_by_the_deadline_is_excused() {
        let mut sheaves = Sheaves::new(Arc::default());
        let started = Instant::now();
        let later = started + Duration::from_millis(1);
        let (early_tickets, mut early) = ask(&mut sheaves, 2, started);
        let (late_tickets, mut late) = ask(&mut sheaves, 1, later);
        sheaves.fill(early_tickets[0], Ok(Value::Okay));
        sheaves.expire(started, |_| StoreError::Busy { waiting: 7 });
        assert_eq!(early.try_recv().unwrap(), [Ok(Value::Okay), Err(StoreError::Busy { waiting: 7 })]);
        assert!(!sheaves.is_awaited(early_tickets[1]) && sheaves.is_awaited(late_tickets[0]));
        sheaves.fill(early_tickets[1], Ok(Value::Okay)); // Too late, and nobody is hurt.
        sheaves.fill(late_tickets[0], Ok(Value::Okay));
        assert_eq!(late.try_recv().unwrap(), [Ok(Value::Okay)]);
        assert_eq!(sheaves.oldest(), None);
    }

    #[test]
    fn nobody_waits_who_has_gone() {
        let mut sheaves = Sheaves::new(Arc::default());
        let (tickets, replies) = ask(&mut sheaves, 1, Instant::now());
        drop(replies);
        assert!(!sheaves.is_awaited(tickets[0]));
    }

    fn ask(
        sheaves: &mut Sheaves,
        count: usize,
        asked: Instant,
    ) -> (Vec<Ticket>, oneshot::Receiver<Vec<Reply>>) {
        let (reply, replies) = oneshot::channel();
        sheaves.board.waiting.fetch_add(count, Ordering::Relaxed);
        (sheaves.open(count, asked, reply).collect(), replies)
    }
}
