use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds = Bounds { max_delay: Nanos::from_millis(5_000), max_delayed: 3, max_known: 1_000 };

fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_millis(millis)
}

/// A book that speaks of names and milliseconds; who waits is a number.
struct Scribe(Book<u64>);

impl Scribe {
    fn new(bounds: Bounds) -> Self {
        Self(Book::new(bounds))
    }

    fn decide(&mut self, name: &str, now: u64, number: u64) -> Ruling {
        let key = self.0.key(name.as_bytes());
        self.0.decide(key, at(now), || number)
    }

    fn told(&mut self, name: &str, until: u64, now: u64) -> Vec<(u64, Fate)> {
        let key = self.0.key(name.as_bytes());
        self.0.told(key, at(until), at(now))
    }

    fn look(&mut self, name: &str, ticket: u64, now: u64) -> Standing {
        let key = self.0.key(name.as_bytes());
        self.0.look(key, Ticket(ticket), at(now))
    }

    fn leave(&mut self, name: &str, ticket: Option<u64>) {
        let key = self.0.key(name.as_bytes());
        self.0.leave(key, ticket.map(Ticket));
    }
}

#[test]
fn who_is_not_delayed_passes() {
    let mut book = Scribe::new(BOUNDS);
    assert_eq!(book.decide("a", 0, 0), Ruling::Pass);
    book.told("a", 1_000, 0);
    assert_eq!(book.decide("b", 0, 0), Ruling::Pass);
    assert_eq!(book.decide("a", 999, 0), Ruling::Place(at(1_000)));
    assert_eq!(book.decide("a", 1_000, 0), Ruling::Pass, "from that moment on");
}

#[test]
fn the_latest_delay_holds_and_one_in_the_past_is_none() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 3_000, 0);
    book.told("a", 2_000, 0);
    assert_eq!(book.decide("a", 1_000, 0), Ruling::Place(at(3_000)));
    book.told("b", 500, 1_000);
    assert_eq!((book.decide("b", 400, 0), book.0.known()), (Ruling::Pass, 1));
}

#[test]
fn too_long_a_wait_and_too_many_who_wait_are_rejected() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 6_000, 0);
    assert_eq!(book.decide("a", 999, 0), Ruling::Reject(at(6_000)));
    assert_eq!(book.decide("a", 1_000, 0), Ruling::Place(at(6_000)), "five seconds are not too long");
    for name in ["b", "c", "d"] {
        book.told(name, 2_000, 1_000);
    }
    assert_eq!(book.decide("b", 1_000, 0), Ruling::Place(at(2_000)));
    assert_eq!(book.decide("c", 1_000, 0), Ruling::Place(at(2_000)));
    assert_eq!(book.decide("d", 1_000, 0), Ruling::Reject(at(2_000)));
    book.leave("c", None);
    assert_eq!(book.decide("d", 1_000, 0), Ruling::Place(at(2_000)));
}

#[test]
fn places_are_given_out_in_the_order_of_arrival() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 1_000, 0);
    assert_eq!(book.decide("a", 0, 10), Ruling::Place(at(1_000)));
    assert_eq!(book.decide("a", 1, 11), Ruling::Line(at(1_000), Ticket(0)));
    assert_eq!(book.decide("a", 2, 12), Ruling::Line(at(1_000), Ticket(1)));
    assert_eq!(book.told("a", 2_000, 3), [(11, Fate::Place(at(2_000)))]);
    assert_eq!(book.look("a", 1, 1_000), Standing::Line(at(2_000)), "not yet: another got a place");
    assert_eq!(book.told("a", 3_000, 1_000), [(12, Fate::Place(at(3_000)))]);
    assert_eq!(book.look("a", 1, 1_000), Standing::Gone);
    assert_eq!(book.told("a", 4_000, 1_000), []);
    book.leave("a", None);
    assert_eq!(book.decide("a", 1_000, 13), Ruling::Place(at(4_000)), "nobody has taken it");
}

#[test]
fn without_an_answer_those_in_line_pass_when_the_place_before_them_has_come() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 1_000, 0);
    book.decide("a", 0, 10);
    assert_eq!(book.decide("a", 0, 11), Ruling::Line(at(1_000), Ticket(0)));
    assert_eq!(book.look("a", 0, 999), Standing::Line(at(1_000)));
    assert_eq!(book.look("a", 0, 1_000), Standing::Pass);
    assert_eq!(book.look("a", 0, 1_000), Standing::Gone);
    book.decide("a", 500, 12);
    book.0.sweep(at(1_000), 10);
    assert_eq!((book.look("a", 1, 1_000), book.0.known()), (Standing::Gone, 0), "swept is forgotten");
    book.told("a", 2_000, 1_000);
    book.decide("a", 1_000, 13);
    book.decide("a", 1_000, 14);
    assert_eq!(book.told("a", 3_000, 2_000), [], "an answer that comes too late holds for those to come");
}

#[test]
fn a_place_that_is_too_late_for_the_first_in_line_goes_to_the_next() {
    let mut book = Scribe::new(Bounds { max_delayed: 10, ..BOUNDS });
    book.told("a", 4_000, 0);
    for (now, number) in [(0, 10), (500, 11), (1_500, 12), (2_500, 13)] {
        book.decide("a", now, number);
    }
    let settled = book.told("a", 7_000, 2_600);
    let expected =
        [(11, Fate::Reject(at(7_000))), (12, Fate::Reject(at(7_000))), (13, Fate::Place(at(7_000)))];
    assert_eq!(settled, expected);
}

#[test]
fn a_place_that_several_gatekeepers_took_is_made_up_for() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 1_000, 0);
    assert_eq!(book.told("a", 1_000, 0), [], "how far it is to the next is not known yet");
    assert_eq!(book.decide("a", 0, 10), Ruling::Place(at(1_000)));
    book.told("a", 1_100, 0);
    // Two others had taken the same.
    book.told("a", 1_100, 1);
    book.told("a", 1_100, 2);
    assert_eq!(book.decide("a", 2, 11), Ruling::Place(at(1_300)));
    // Somebody took what was there before the second of them was heard.
    book.told("a", 1_200, 3);
    assert_eq!(book.decide("a", 3, 12), Ruling::Place(at(1_400)));
    book.leave("a", None);
    // The answers to those two. With that, six requests are known of, and six places are gone.
    book.told("a", 1_400, 4);
    book.told("a", 1_500, 4);
    assert_eq!(book.decide("a", 4, 13), Ruling::Place(at(1_600)));
}

#[test]
fn what_is_said_again_by_a_master_that_came_back_is_a_reminder() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 1_000, 0);
    book.decide("a", 0, 10);
    book.told("a", 1_100, 0);
    book.0.met();
    book.told("a", 1_100, 0);
    assert_eq!(book.decide("a", 0, 11), Ruling::Place(at(1_100)));
}

#[test]
fn however_often_it_is_said_nobody_waits_for_ever() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 1_000, 0);
    book.decide("a", 0, 10);
    for _ in 0..1_000 {
        book.told("a", 2_000, 0);
    }
    assert_eq!(book.decide("a", 1_999, 11), Ruling::Reject(at(7_000)));
    assert_eq!(book.decide("a", 2_000, 11), Ruling::Place(at(7_000)));
}

#[test]
fn who_gives_up_is_passed_over() {
    let mut book = Scribe::new(BOUNDS);
    book.told("a", 1_000, 0);
    for number in [10, 11, 12] {
        book.decide("a", 0, number);
    }
    book.leave("a", Some(0));
    assert_eq!(book.told("a", 2_000, 0), [(12, Fate::Place(at(2_000)))]);
    assert_eq!(book.0.waiting(), 2);
}

#[test]
fn at_the_bound_the_delay_that_ends_first_is_forgotten() {
    let mut book = Scribe::new(Bounds { max_known: 2, ..BOUNDS });
    for (name, until) in [("a", 2_000), ("b", 1_000), ("c", 3_000)] {
        book.told(name, until, 0);
    }
    assert_eq!(book.0.known(), 2);
    assert_eq!(book.decide("b", 0, 0), Ruling::Pass);
    assert_eq!(book.decide("a", 0, 0), Ruling::Place(at(2_000)));
    book.told("d", 500, 0);
    assert_eq!(book.decide("d", 0, 0), Ruling::Pass, "the new one would be the first to go");
}

#[test]
fn delays_that_are_over_go_as_others_come() {
    let mut book = Scribe::new(BOUNDS);
    for number in 0..100 {
        book.told(&number.to_string(), 1_000, 0);
    }
    for number in 0..25 {
        book.told(&format!("later {number}"), 9_000, 5_000);
    }
    assert_eq!(book.0.known(), 25);
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

/// One that keeps all it ever heard, and reads all of it again for each question.
#[derive(Default)]
struct Naive {
    /// Name, when it was told and until when, and whether the place before was taken.
    told: Vec<(usize, u64, u64, bool)>,
    /// Name, place, and who has it.
    places: Vec<(usize, u64)>,
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

    /// Is the place on offer somebody's already?
    fn taken(&self, name: usize) -> bool {
        self.places.contains(&(name, self.until(name)))
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
            return "line";
        }
        self.places.push((name, until));
        "place"
    }
}

proptest! {
    #[test]
    fn any_history_is_ruled_as_by_one_that_forgets_nothing(
        events in proptest::collection::vec((0..2_000_u64, event()), 0..120),
    ) {
        let (mut book, mut naive) = (Scribe::new(BOUNDS), Naive::default());
        let mut now = 0;
        let mut waiting: Vec<(String, Option<u64>)> = Vec::new();
        let mut line: Vec<(usize, u64, u64)> = Vec::new();
        for (number, (later, event)) in (0_u64..).zip(events) {
            now += later;
            match event {
                Event::Ask { name } => {
                    let ruling = book.decide(&name.to_string(), now, number);
                    let expected = naive.decide(name, now);
                    let word = match ruling {
                        Ruling::Pass => "pass",
                        Ruling::Place(_) => "place",
                        Ruling::Line(..) => "line",
                        Ruling::Reject(_) => "reject",
                    };
                    prop_assert_eq!(word, expected);
                    match ruling {
                        Ruling::Place(until) => {
                            prop_assert_eq!(until, at(naive.until(name)));
                            waiting.push((name.to_string(), None));
                        }
                        Ruling::Line(_, ticket) => {
                            line.push((name, number, now));
                            waiting.push((name.to_string(), Some(ticket.0)));
                        }
                        _ => {}
                    }
                }
                Event::Tell { name, ahead } => {
                    // Those whose place came without an answer pass first, as they would by their timers.
                    let over: Vec<usize> = (0..3).filter(|name| naive.until(*name) <= now).collect();
                    line.retain(|(name, ..)| !over.contains(name));
                    let (before, taken) = (naive.until(name), naive.taken(name));
                    naive.told.push((name, now, now + ahead, taken));
                    let until = naive.until(name);
                    let news = until > before.max(now);
                    let settled = book.told(&name.to_string(), now + ahead, now);
                    let mut expected = Vec::new();
                    while let Some(first) = line.iter().position(|(whose, ..)| *whose == name && news) {
                        let (_, number, came) = line.remove(first);
                        if until - came <= 5_000 {
                            naive.places.push((name, until));
                            expected.push((number, Fate::Place(at(until))));
                            break;
                        }
                        expected.push((number, Fate::Reject(at(until))));
                    }
                    prop_assert_eq!(settled, expected);
                }
                Event::Leave => {
                    // Only who has a place leaves here, so that the lines are as they were.
                    if let Some(index) = waiting.iter().position(|(_, ticket)| ticket.is_none()) {
                        let (name, ticket) = waiting.remove(index);
                        book.leave(&name, ticket);
                        naive.waiting -= 1;
                    }
                }
            }
            prop_assert_eq!(book.0.waiting(), naive.waiting);
            prop_assert_eq!(book.0.known.len(), book.0.ends.len());
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nobody_is_delayed_of_whom_nothing_was_said(
        told in proptest::collection::vec((0..50_u64, 1..10_000_u64), 0..200),
    ) {
        let mut book = Scribe::new(Bounds { max_known: 10, max_delayed: 1_000, ..BOUNDS });
        for (name, until) in &told {
            book.told(&name.to_string(), *until, 0);
            prop_assert!(book.0.known() <= 10);
        }
        for name in 0..60_u64 {
            let latest = told.iter().filter(|(whose, _)| *whose == name).map(|(_, until)| *until).max();
            match book.decide(&name.to_string(), 0, 0) {
                Ruling::Pass => {}
                Ruling::Place(until) | Ruling::Reject(until) => prop_assert_eq!(Some(until), latest.map(at)),
                Ruling::Line(..) => prop_assert!(false, "nobody was there before"),
            }
        }
    }
}
