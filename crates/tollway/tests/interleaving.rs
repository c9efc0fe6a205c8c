//! Runs lock-free code in every order of its steps. The code is included with loom's atomics in the place of the usual.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
}

#[path = "../src/store/memory/capacity/counter.rs"]
mod counter;

use loom::sync::Arc;
use loom::thread;

use crate::counter::Capacity;

#[test]
fn no_order_takes_more_places_than_there_are_or_loses_one() {
    loom::model(|| {
        let capacity = Arc::new(Capacity::new(1));
        let worker = |capacity: Arc<Capacity>| {
            move || {
                let got = capacity.take().is_some();
                if got {
                    assert!(capacity.taken() <= 1 && capacity.is_full());
                    capacity.give_back(1);
                }
                got
            }
        };
        let other = thread::spawn(worker(capacity.clone()));
        let mine = worker(capacity.clone())();
        let theirs = other.join().unwrap();
        assert!(mine || theirs);
        assert_eq!(capacity.taken(), 0);
    });
}

#[test]
fn what_is_in_use_already_is_counted_above_the_bound() {
    loom::model(|| {
        let capacity = Arc::new(Capacity::new(1));
        let other = capacity.clone();
        let other = thread::spawn(move || {
            other.take_above(2);
            assert_eq!(other.take(), None);
            other.give_back(2);
        });
        let taken = capacity.take();
        assert!(taken.is_none_or(|taken| taken <= capacity.max()));
        other.join().unwrap();
        capacity.give_back(usize::from(taken.is_some()));
        assert!(capacity.has_free(1));
    });
}
