//! Tests the router without sockets: events with their time go in, actions come out.

use super::*;
use crate::store::redis::net::pending::{Batch, QUEUE_MAX};
use crate::store::redis::net::pipeline::{PIPELINE_CALLS, Pipeline};
use crate::store::redis::net::router::{Action, ConnectFailure};

const DEADLINE: Duration = Duration::from_millis(50);

/// A router, the time, and the pipelines that it has sent.
struct Script {
    router: Router,
    now: Instant,
    health: Arc<SharedHealth>,
    sent: Vec<(usize, u64, Pipeline)>,
    dialed: Vec<(usize, u64, Address)>,
    generation: u64,
}

impl Script {
    fn start(topology: Topology) -> Self {
        let (now, health) = (Instant::now(), Arc::<SharedHealth>::default());
        let url = RedisUrl { deadline: DEADLINE, ..RedisUrl::new(topology) };
        let router = Router::new(&url, Arc::clone(&health), now);
        let mut script = Self { router, now, health, sent: Vec::new(), dialed: Vec::new(), generation: 0 };
        script.gather();
        script
    }

    /// Starts with one node, whose connection is open.
    fn connected() -> Self {
        let mut script = Self::start(Topology::Single(address(1)));
        script.connect();
        script
    }

    fn after(&mut self, millis: u64) -> &mut Self {
        self.now += Duration::from_millis(millis);
        if self.router.alarm().is_some_and(|due| due <= self.now) {
            self.router.on_alarm(self.now);
        }
        self.gather();
        self
    }

    /// Opens the connection that was dialed last.
    fn connect(&mut self) {
        let (node, generation, address) = self.dialed.pop().expect("the router has dialed");
        self.generation = generation;
        self.router.on_connected(node, generation, Ok(address), self.now);
        self.gather();
    }

    fn call(&mut self, count: usize) -> Replies {
        let (caller, replies) = oneshot::channel();
        let waiting = WaitingCalls::begin(&self.health, count).unwrap();
        let calls = (0..count).map(|_| plain(&["PING"])).collect();
        self.router.on_calls(Batch { calls, waiting, caller }, self.now);
        self.gather();
        Replies { replies, count }
    }

    /// Answers the oldest pipeline that is in flight.
    fn answer(&mut self, reply: &Value) {
        let (node, number, pipeline) = self.sent.remove(0);
        let replies = vec![reply.clone(); PIPELINE_CALLS];
        self.router.on_answered(node, self.generation, number, pipeline, Ok(replies), self.now);
        self.gather();
    }

    fn waiting(&self) -> usize {
        self.health.waiting()
    }

    fn gather(&mut self) {
        loop {
            self.router.flush(self.now);
            let mut actions = Vec::new();
            self.router.take_actions(&mut actions);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Send { node, number, pipeline } => self.sent.push((node, number, pipeline)),
                    Action::Dial { node, generation, address, .. } => {
                        self.dialed.push((node, generation, address))
                    }
                    _ => {}
                }
            }
        }
    }
}

fn now_or_never(mut replies: Replies) -> Option<Vec<Reply>> {
    replies.replies.try_recv().ok()
}

fn address(port: u16) -> Address {
    Address { host: "10.0.0.1".to_owned(), port }
}

fn moved(port: u16) -> Value {
    redis::parse_redis_value(format!("-MOVED 0 10.0.0.1:{port}\r\n").as_bytes()).unwrap()
}

#[test]
fn calls_wait_for_the_connection() {
    let mut script = Script::start(Topology::Single(address(1)));
    let replies = script.call(2);
    assert!(script.sent.is_empty());
    script.connect();
    script.answer(&Value::Okay);
    assert_eq!(now_or_never(replies), Some(vec![Ok(Value::Okay); 2]));
}

#[test]
fn a_call_that_waits_for_a_connection_has_a_deadline() {
    let mut script = Script::start(Topology::Single(address(1)));
    let replies = script.call(1);
    script.after(49);
    assert_eq!(script.health.read().timeouts, 0);
    script.after(1);
    let error = StoreError::TimedOut { address: address(1).to_string(), waited: DEADLINE };
    assert_eq!(now_or_never(replies), Some(vec![Err(error)]));
}

#[test]
fn a_queue_does_not_time_out_while_the_node_answers() {
    let mut script = Script::connected();
    let replies = script.call(1_000);
    // Each pipeline takes most of a deadline, and the last one waits for twelve of them.
    while !script.sent.is_empty() {
        script.after(40).answer(&Value::Okay);
    }
    assert_eq!(now_or_never(replies), Some(vec![Ok(Value::Okay); 1_000]));
    let health = script.health.read();
    assert_eq!((health.timeouts, health.shed, health.breaker_openings), (0, 0, 0));
}

#[test]
fn a_silent_node_is_late_after_a_deadline_and_left_when_it_stalls() {
    let mut script = Script::connected();
    let (first, queued) = (script.call(8 * PIPELINE_CALLS), script.call(1));
    script.after(50);
    assert!(
        now_or_never(first).unwrap().iter().all(|reply| matches!(reply, Err(StoreError::TimedOut { .. })))
    );
    assert_eq!(script.health.read().breaker_openings, 0);
    script.after(25);
    assert_eq!(script.health.read().breaker_openings, 1);
    assert!(matches!(now_or_never(queued).unwrap()[0], Err(StoreError::Unreachable { .. })));
    assert!(matches!(now_or_never(script.call(1)).unwrap()[0], Err(StoreError::CircuitOpen { .. })));
    script.connect();
    let replies = script.call(1);
    script.sent.drain(..8);
    script.answer(&Value::Okay);
    assert_eq!(now_or_never(replies), Some(vec![Ok(Value::Okay)]));
}

#[test]
fn a_call_that_waits_too_long_in_the_queue_is_shed() {
    let mut script = Script::connected();
    let (first, last) = (script.call(8 * PIPELINE_CALLS), script.call(1_000));
    // The node is slow, and alive: it would need more than the second that a call may wait.
    assert!(Duration::from_millis(40) * 1_256 / 32 > QUEUE_MAX);
    while !script.sent.is_empty() {
        script.after(40).answer(&Value::Okay);
    }
    assert_eq!(now_or_never(first).unwrap()[0], Ok(Value::Okay));
    let replies = now_or_never(last).unwrap();
    assert!(replies.iter().any(|reply| matches!(reply, Err(StoreError::Busy { .. }))), "{replies:?}");
    assert_eq!(script.health.read().timeouts, 0);
}

#[test]
fn a_reply_after_the_deadline_is_ignored() {
    let mut script = Script::connected();
    let replies = script.call(1);
    script.after(50);
    assert!(matches!(now_or_never(replies).unwrap()[0], Err(StoreError::TimedOut { .. })));
    script.after(10).answer(&Value::Okay);
    let replies = script.call(1);
    script.answer(&Value::Int(2));
    assert_eq!(now_or_never(replies), Some(vec![Ok(Value::Int(2))]));
}

#[test]
fn a_refused_login_is_counted_and_dialed_again_later() {
    let mut script = Script::start(Topology::Single(address(1)));
    let replies = script.call(1);
    for attempt in 1..=3 {
        let (node, generation, _) = script.dialed.pop().unwrap();
        let failure = ConnectFailure { source: Cause::new("WRONGPASS"), misconfigured: true };
        script.router.on_connected(node, generation, Err(failure), script.now);
        script.gather();
        assert_eq!(script.health.read().rejected_connections, attempt);
    }
    assert!(matches!(&now_or_never(replies).unwrap()[0], Err(StoreError::Unreachable { .. })));
    script.connect();
    assert!(script.health.read().is_well());
}

#[test]
fn a_moved_slot_is_followed_to_its_node() {
    let mut script = Script::start(Topology::Cluster(vec![address(1)]));
    let replies = script.call(1);
    script.router.on_slots(Ok(vec![(0..=16383, address(1))]), script.now);
    script.gather();
    script.connect();
    script.answer(&moved(2));
    assert_eq!(script.dialed.last().map(|(node, _, to)| (*node, to.port)), Some((1, 2)));
    script.connect();
    assert_eq!(script.sent[0].0, 1, "it is sent to the node that has the slot");
    script.answer(&Value::Okay);
    assert_eq!(now_or_never(replies), Some(vec![Ok(Value::Okay)]));
    assert_eq!(script.health.read().redirects, 1);
}

#[test]
fn a_connection_that_dies_young_opens_the_circuit_and_an_old_one_does_not() {
    for (lived, is_up_soon) in [(10, false), (2_000, true)] {
        let mut script = Script::connected();
        script.now += Duration::from_millis(lived);
        script.router.on_lost(0, script.generation, Cause::new("closed"), script.now);
        script.gather();
        let replies = script.call(1);
        script.connect();
        assert_eq!(now_or_never(replies).is_none(), is_up_soon, "after {lived} ms");
    }
}

#[test]
fn a_caller_that_goes_before_the_connection_is_open_leaves_nothing_behind() {
    let mut script = Script::start(Topology::Single(address(1)));
    drop(script.call(PIPELINE_CALLS + 1));
    let replies = script.call(1);
    script.connect();
    assert_eq!(script.waiting(), 1, "the call that is awaited");
    script.answer(&Value::Okay);
    assert_eq!(now_or_never(replies), Some(vec![Ok(Value::Okay)]));
    assert_eq!(script.waiting(), 0);
}

#[test]
fn a_caller_that_goes_after_its_call_was_sent_leaves_nothing_behind() {
    let no_script = redis::parse_redis_value(b"-NOSCRIPT No matching script.\r\n").unwrap();
    for reply in [Value::Okay, moved(2), no_script] {
        let mut script = Script::start(Topology::Cluster(vec![address(1)]));
        script.router.on_slots(Ok(vec![(0..=16383, address(1))]), script.now);
        script.gather();
        script.connect();
        drop(script.call(2));
        assert_eq!((script.sent.len(), script.waiting()), (1, 2));
        script.answer(&reply);
        assert_eq!(script.waiting(), 0, "{reply:?}");
    }
}
