use proptest::prelude::*;

use super::*;

const BOUNDS: DelayBounds =
    DelayBounds { max_delay: Nanos::from_millis(5_000), max_delayed: 3, max_known_delays: 1_000 };

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_millis(millis)
}

/// A table whose calls take names and milliseconds; a waiter is a number.
struct TestTable(DelayTable<u64>);

impl TestTable {
    fn new(bounds: DelayBounds) -> Self {
        Self(DelayTable::new(bounds))
    }

    fn decide(&mut self, name: &str, now: u64, number: u64) -> DelayDecision {
        let key = self.0.hash(name.as_bytes());
        self.0.decide(key, at(now), || number)
    }

    fn record(&mut self, name: &str, until: u64, now: u64) -> Vec<(u64, QueueOutcome)> {
        let key = self.0.hash(name.as_bytes());
        self.0.record(key, at(until), at(now))
    }

    fn status(&mut self, name: &str, position: u64, now: u64) -> QueueStatus {
        let key = self.0.hash(name.as_bytes());
        self.0.status(key, QueuePosition(position), at(now))
    }

    fn leave(&mut self, name: &str, position: Option<u64>) {
        let key = self.0.hash(name.as_bytes());
        self.0.leave(key, position.map(QueuePosition));
    }
}

#[test]
fn who_is_not_delayed_passes() {
    let mut table = TestTable::new(BOUNDS);
    assert_eq!(table.decide("a", 0, 0), DelayDecision::Pass);
    table.record("a", 1_000, 0);
    assert_eq!(table.decide("b", 0, 0), DelayDecision::Pass);
    assert_eq!(table.decide("a", 999, 0), DelayDecision::Slot(at(1_000)));
    assert_eq!(table.decide("a", 1_000, 0), DelayDecision::Pass, "from that moment on");
}

#[test]
fn the_latest_delay_holds_and_one_in_the_past_is_none() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 3_000, 0);
    table.record("a", 2_000, 0);
    assert_eq!(table.decide("a", 1_000, 0), DelayDecision::Slot(at(3_000)));
    table.record("b", 500, 1_000);
    assert_eq!((table.decide("b", 400, 0), table.0.known()), (DelayDecision::Pass, 1));
}

#[test]
fn too_long_a_wait_and_too_many_who_wait_are_rejected() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 6_000, 0);
    assert_eq!(table.decide("a", 999, 0), DelayDecision::Reject(at(6_000)));
    assert_eq!(table.decide("a", 1_000, 0), DelayDecision::Slot(at(6_000)), "five seconds are not too long");
    for name in ["b", "c", "d"] {
        table.record(name, 2_000, 1_000);
    }
    assert_eq!(table.decide("b", 1_000, 0), DelayDecision::Slot(at(2_000)));
    assert_eq!(table.decide("c", 1_000, 0), DelayDecision::Slot(at(2_000)));
    assert_eq!(table.decide("d", 1_000, 0), DelayDecision::Reject(at(2_000)));
    table.leave("c", None);
    assert_eq!(table.decide("d", 1_000, 0), DelayDecision::Slot(at(2_000)));
}

#[test]
fn slots_are_given_out_in_the_order_of_arrival() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 1_000, 0);
    assert_eq!(table.decide("a", 0, 10), DelayDecision::Slot(at(1_000)));
    assert_eq!(table.decide("a", 1, 11), DelayDecision::Queue(at(1_000), QueuePosition(0)));
    assert_eq!(table.decide("a", 2, 12), DelayDecision::Queue(at(1_000), QueuePosition(1)));
    assert_eq!(table.record("a", 2_000, 3), [(11, QueueOutcome::Slot(at(2_000)))]);
    assert_eq!(
        table.status("a", 1, 1_000),
        QueueStatus::Queued(at(2_000)),
        "not yet: another request got a slot"
    );
    assert_eq!(table.record("a", 3_000, 1_000), [(12, QueueOutcome::Slot(at(3_000)))]);
    assert_eq!(table.status("a", 1, 1_000), QueueStatus::Gone);
    assert_eq!(table.record("a", 4_000, 1_000), []);
    table.leave("a", None);
    assert_eq!(table.decide("a", 1_000, 13), DelayDecision::Slot(at(4_000)), "nobody has taken it");
}

#[test]
fn without_an_answer_queued_requests_pass_at_the_slot_before_them() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 1_000, 0);
    table.decide("a", 0, 10);
    assert_eq!(table.decide("a", 0, 11), DelayDecision::Queue(at(1_000), QueuePosition(0)));
    assert_eq!(table.status("a", 0, 999), QueueStatus::Queued(at(1_000)));
    assert_eq!(table.status("a", 0, 1_000), QueueStatus::Pass);
    assert_eq!(table.status("a", 0, 1_000), QueueStatus::Gone);
    table.decide("a", 500, 12);
    table.0.sweep(at(1_000), 10);
    assert_eq!((table.status("a", 1, 1_000), table.0.known()), (QueueStatus::Gone, 0), "swept is forgotten");
    table.record("a", 2_000, 1_000);
    table.decide("a", 1_000, 13);
    table.decide("a", 1_000, 14);
    assert_eq!(table.record("a", 3_000, 2_000), [], "an answer that comes too late holds for those to come");
}

#[test]
fn a_slot_that_is_too_late_for_the_first_in_the_queue_goes_to_the_next() {
    let mut table = TestTable::new(DelayBounds { max_delayed: 10, ..BOUNDS });
    table.record("a", 4_000, 0);
    for (now, number) in [(0, 10), (500, 11), (1_500, 12), (2_500, 13)] {
        table.decide("a", now, number);
    }
    let settled = table.record("a", 7_000, 2_600);
    let expected = [
        (11, QueueOutcome::Reject(at(7_000))),
        (12, QueueOutcome::Reject(at(7_000))),
        (13, QueueOutcome::Slot(at(7_000))),
    ];
    assert_eq!(settled, expected);
}

#[test]
fn a_slot_that_several_gatekeepers_took_is_made_up_for() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 1_000, 0);
    assert_eq!(table.record("a", 1_000, 0), [], "how far it is to the next is not known yet");
    assert_eq!(table.decide("a", 0, 10), DelayDecision::Slot(at(1_000)));
    table.record("a", 1_100, 0);
    // Two others had taken the same.
    table.record("a", 1_100, 1);
    table.record("a", 1_100, 2);
    assert_eq!(table.decide("a", 2, 11), DelayDecision::Slot(at(1_300)));
    // Somebody took what was there before the second of them was heard.
    table.record("a", 1_200, 3);
    assert_eq!(table.decide("a", 3, 12), DelayDecision::Slot(at(1_400)));
    table.leave("a", None);
    // The answers to those two. With that, six requests are known, and six slots are gone.
    table.record("a", 1_400, 4);
    table.record("a", 1_500, 4);
    assert_eq!(table.decide("a", 4, 13), DelayDecision::Slot(at(1_600)));
}

#[test]
fn what_a_master_repeats_after_it_came_back_is_a_reminder() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 1_000, 0);
    table.decide("a", 0, 10);
    table.record("a", 1_100, 0);
    table.0.start_session();
    table.record("a", 1_100, 0);
    assert_eq!(table.decide("a", 0, 11), DelayDecision::Slot(at(1_100)));
}

#[test]
fn however_often_a_time_is_repeated_no_request_waits_forever() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 1_000, 0);
    table.decide("a", 0, 10);
    for _ in 0..1_000 {
        table.record("a", 2_000, 0);
    }
    assert_eq!(table.decide("a", 1_999, 11), DelayDecision::Reject(at(7_000)));
    assert_eq!(table.decide("a", 2_000, 11), DelayDecision::Slot(at(7_000)));
}

#[test]
fn who_gives_up_is_passed_over() {
    let mut table = TestTable::new(BOUNDS);
    table.record("a", 1_000, 0);
    for number in [10, 11, 12] {
        table.decide("a", 0, number);
    }
    table.leave("a", Some(0));
    assert_eq!(table.record("a", 2_000, 0), [(12, QueueOutcome::Slot(at(2_000)))]);
    assert_eq!(table.0.waiting(), 2);
}

#[test]
fn at_the_bound_the_delay_that_ends_first_is_forgotten() {
    let mut table = TestTable::new(DelayBounds { max_known_delays: 2, ..BOUNDS });
    for (name, until) in [("a", 2_000), ("b", 1_000), ("c", 3_000)] {
        table.record(name, until, 0);
    }
    assert_eq!(table.0.known(), 2);
    assert_eq!(table.decide("b", 0, 0), DelayDecision::Pass);
    assert_eq!(table.decide("a", 0, 0), DelayDecision::Slot(at(2_000)));
    table.record("d", 500, 0);
    assert_eq!(table.decide("d", 0, 0), DelayDecision::Pass, "the new one would be the first to go");
}

#[test]
fn delays_that_are_over_go_as_others_come() {
    let mut table = TestTable::new(BOUNDS);
    for number in 0..100 {
        table.record(&number.to_string(), 1_000, 0);
    }
    for number in 0..25 {
        table.record(&format!("later {number}"), 9_000, 5_000);
    }
    assert_eq!(table.0.known(), 25);
}

#[derive(Clone, Debug)]
enum Event {
    Ask { name: usize },
    Tell { name: usize, ahead: u64 },
    Leave,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_usize).prop_map(|name| Event::Ask { name }),
        (0..3_usize, 0..8_000_u64).prop_map(|(name, ahead)| Event::Tell { name, ahead }),
        (0..3_usize, 0..80_u64).prop_map(|(name, tenths)| Event::Tell { name, ahead: tenths * 100 }),
        Just(Event::Leave),
    ]
}

/// A table that keeps everything that was published, and reads all of it again for each request.
#[derive(Default)]
struct Naive {
    /// The name, the time of the message, the time that it names, and true if the slot before was taken.
    told: Vec<(usize, u64, u64, bool)>,
    /// The name and the slot of each request that got one.
    slots: Vec<(usize, u64)>,
    waiting: usize,
}

impl Naive {
    fn until(&self, name: usize) -> u64 {
        let (mut until, mut last, mut step) = (0, 0, 0);
        for (_, now, told, taken) in self.told.iter().filter(|(whose, ..)| *whose == name) {
            if until <= *now {
                (until, last, step) = (0, 0, 0);
            }
            if *told > last.max(*now) {
                if *taken && *told > until && until > 0 {
                    step = told - until;
                }
                let owed = (until - last).saturating_sub((told - last).saturating_sub(step));
                (until, last) = (told + owed, *told);
            } else if *told == last && last > *now {
                until = until.max(last + (until - last + step).min(5_000));
            }
        }
        until
    }

    /// Returns true if a request has the slot on offer.
    fn taken(&self, name: usize) -> bool {
        self.slots.contains(&(name, self.until(name)))
    }

    fn decide(&mut self, name: usize, now: u64) -> &'static str {
        let until = self.until(name);
        if until <= now {
            return "pass";
        }
        if until - now > 5_000 || self.waiting >= 3 {
            return "reject";
        }
        self.waiting += 1;
        if self.taken(name) {
            return "queue";
        }
        self.slots.push((name, until));
        "slot"
    }
}

proptest! {
    #[test]
    fn any_history_is_decided_as_by_a_table_that_forgets_nothing(
        events in proptest::collection::vec((0..2_000_u64, event()), 0..120),
    ) {
        let (mut table, mut naive) = (TestTable::new(BOUNDS), Naive::default());
        let mut now = 0;
        let mut waiting: Vec<(String, Option<u64>)> = Vec::new();
        let mut queue: Vec<(usize, u64, u64)> = Vec::new();
        for (number, (later, event)) in (0_u64..).zip(events) {
            now += later;
            match event {
                Event::Ask { name } => {
                    let ruling = table.decide(&name.to_string(), now, number);
                    let expected = naive.decide(name, now);
                    let word = match ruling {
                        DelayDecision::Pass => "pass",
                        DelayDecision::Slot(_) => "slot",
                        DelayDecision::Queue(..) => "queue",
                        DelayDecision::Reject(_) => "reject",
                    };
                    prop_assert_eq!(word, expected);
                    match ruling {
                        DelayDecision::Slot(until) => {
                            prop_assert_eq!(until, at(naive.until(name)));
                            waiting.push((name.to_string(), None));
                        }
                        DelayDecision::Queue(_, position) => {
                            queue.push((name, number, now));
                            waiting.push((name.to_string(), Some(position.0)));
                        }
                        _ => {}
                    }
                }
                Event::Tell { name, ahead } => {
                    // Requests whose slot came without an answer pass first, as their timers would let them.
                    let over: Vec<usize> = (0..3).filter(|name| naive.until(*name) <= now).collect();
                    queue.retain(|(name, ..)| !over.contains(name));
                    let (before, taken) = (naive.until(name), naive.taken(name));
                    naive.told.push((name, now, now + ahead, taken));
                    let until = naive.until(name);
                    let news = until > before.max(now);
                    let settled = table.record(&name.to_string(), now + ahead, now);
                    let mut expected = Vec::new();
                    while let Some(first) = queue.iter().position(|(whose, ..)| *whose == name && news) {
                        let (_, number, came) = queue.remove(first);
                        if until - came <= 5_000 {
                            naive.slots.push((name, until));
                            expected.push((number, QueueOutcome::Slot(at(until))));
                            break;
                        }
                        expected.push((number, QueueOutcome::Reject(at(until))));
                    }
                    prop_assert_eq!(settled, expected);
                }
                Event::Leave => {
                    // Only requests with a slot leave here, so that the queues stay as they were.
                    if let Some(index) = waiting.iter().position(|(_, position)| position.is_none()) {
                        let (name, position) = waiting.remove(index);
                        table.leave(&name, position);
                        naive.waiting -= 1;
                    }
                }
            }
            prop_assert_eq!(table.0.waiting(), naive.waiting);
            prop_assert_eq!(table.0.delays.len(), table.0.by_end.len());
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nobody_is_delayed_of_whom_nothing_was_said(
        told in proptest::collection::vec((0..50_u64, 1..10_000_u64), 0..200),
    ) {
        let mut table = TestTable::new(DelayBounds { max_known_delays: 10, max_delayed: 1_000, ..BOUNDS });
        for (name, until) in &told {
            table.record(&name.to_string(), *until, 0);
            prop_assert!(table.0.known() <= 10);
        }
        for name in 0..60_u64 {
            let latest = told.iter().filter(|(whose, _)| *whose == name).map(|(_, until)| *until).max();
            match table.decide(&name.to_string(), 0, 0) {
                DelayDecision::Pass => {}
                DelayDecision::Slot(until) | DelayDecision::Reject(until) => prop_assert_eq!(Some(until), latest.map(at)),
                DelayDecision::Queue(..) => prop_assert!(false, "nobody was there before"),
            }
        }
    }
}
