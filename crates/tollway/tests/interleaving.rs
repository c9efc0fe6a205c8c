//! Runs lock-free code in every order of its steps. The code is included with loom's atomics in the place of the usual.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    pub(super) fn relax() {
        loom::thread::yield_now();
    }
}

#[path = "../src/store/memory/capacity/counter.rs"]
mod counter;
#[path = "../src/store/memory/shard/hot_bucket.rs"]
mod hot_bucket;

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::counter::Capacity;
use crate::hot_bucket::{HotBucket, HotPlace};

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

#[cfg(feature = "journal")]
#[test]
fn no_order_takes_more_of_many_places_than_there_are() {
    loom::model(|| {
        let capacity = Arc::new(Capacity::new(3));
        let other = capacity.clone();
        let other = thread::spawn(move || other.take_up_to(2));
        let taken = capacity.take_up_to(2) + other.join().unwrap();
        assert_eq!((taken, capacity.taken()), (3, 3));
    });
}

/// The table of the bucket 7.
const TABLE: usize = 5;

fn place(slot: usize) -> HotPlace {
    HotPlace { table: TABLE, slot }
}

/// Adds one to both words of the hot bucket 7, if it is there.
fn add_one(hot: &HotBucket) -> bool {
    while let Some(read) = hot.read(7, TABLE, 2) {
        let [first, second] = read.words;
        // Another bucket that is put here has such words.
        assert!(first < 100, "the words of another bucket");
        assert_eq!(first, second, "the words of two states");
        if hot.replace(read, [first + 1, second + 1], 2) {
            return true;
        }
    }
    false
}

/// Returns a model with few preemptions. With any number of them, two changes of the hot bucket take minutes; a bug
/// that needs more than three is rare.
fn bounded() -> Builder {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model
}

#[test]
fn no_order_loses_a_change_of_the_hot_bucket() {
    loom::model(|| {
        let hot = Arc::new(HotBucket::new());
        hot.put(7, [0, 0], place(3));
        let other = hot.clone();
        let other = thread::spawn(move || u64::from(add_one(&other)));
        let mine = u64::from(add_one(&hot));
        let added = mine + other.join().unwrap();
        assert_eq!(hot.take(), Some(([added, added], place(3))));
        assert_eq!(hot.take(), None);
    });
}

/// Changes a hot bucket on one thread while another one, with the lock of the shard, replaces it by a bucket with this
/// tag at this place, whose words must stay as they are.
fn replace_while_it_is_changed(tag: u64, place_after: HotPlace) {
    bounded().check(move || {
        let hot = Arc::new(HotBucket::new());
        hot.put(7, [0, 0], place(3));
        let other = hot.clone();
        let other = thread::spawn(move || u64::from(add_one(&other)));
        let taken = hot.take();
        hot.put(tag, [100, 0], place_after);
        let added = other.join().expect("it adds one or nothing");
        assert_eq!(taken, Some(([added, added], place(3))));
        assert_eq!(hot.take(), Some(([100, 0], place_after)));
    });
}

#[test]
fn no_order_changes_a_bucket_that_was_taken_out_or_the_one_that_came_after_it() {
    replace_while_it_is_changed(8, place(4));
}

/// A limit that has got another algorithm has a bucket with the same tag in another table.
#[test]
fn no_order_takes_words_for_those_of_a_bucket_of_another_table() {
    replace_while_it_is_changed(7, HotPlace { table: TABLE - 1, slot: 3 });
}
