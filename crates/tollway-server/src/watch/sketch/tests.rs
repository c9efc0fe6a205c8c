//! Compares the sketch with an exact count.

use std::collections::HashMap;
use std::time::Duration;

use tollway::config::WatchSettings;
use tollway_core::Policy;
use tollway_wire::http::{SubjectKind, TopBy, TopEntry};

use super::*;
use crate::watch::Watch;
use crate::watch::decision_sampler::{DecisionSampler, ONE_BY_ONE};
use crate::watch::generations::{KEPT, SECONDS};
use crate::watch::top::{Entry, merge};

const SUBJECT: Subject = Subject(7);

/// A sketch beside the exact counts.
struct Checked {
    key: SketchKey,
    sketch: Sketch,
    cells: Option<Cells>,
    /// Chooses what is counted; `None` counts everything.
    sampler: Option<DecisionSampler>,
    exact: HashMap<Vec<u8>, u64>,
}

impl Checked {
    fn new() -> Self {
        Self::with_key(SketchKey::random())
    }

    fn with_key(key: SketchKey) -> Self {
        let (cells, exact) = (Some(Cells::new()), HashMap::new());
        Self { key, sketch: Sketch::new(), cells, sampler: None, exact }
    }

    /// Samples what is added from now on, after this many decisions.
    fn sample_after(&mut self, one_by_one: u64, seed: u64) {
        let mut sampler = DecisionSampler::new(seed);
        sampler.start_tick(u32::try_from(one_by_one).unwrap());
        self.sampler = Some(sampler);
    }

    fn add(&mut self, id: &[u8], cost: u64) {
        let amount = match &mut self.sampler {
            None => cost,
            Some(sampler) => {
                if sampler.skips(cost) {
                    0
                } else {
                    sampler.amount(cost)
                }
            }
        };
        let added = [Added { hash: self.key.hash(SUBJECT, id), subject: SUBJECT, id, amount }];
        match &mut self.cells {
            Some(cells) => self.sketch.add_all(cells, &added),
            None => self.sketch.add_all_without_cells(&added),
        }
        if let Some(sampler) = &mut self.sampler {
            self.sketch.add_units(sampler.take_units());
        }
        *self.exact.entry(id.to_vec()).or_default() += cost;
    }

    fn add_number(&mut self, id: u64, amount: u64) {
        self.add(format!("id-{id}").as_bytes(), amount);
    }

    /// Asserts that the bound of every id holds, whether it has a place or not.
    fn check(&self) {
        check(&self.key, &[self.sketch.counts()], &self.exact);
    }

    /// Returns the ids with the largest counts, as the sketch shows them.
    fn top(&self, count: usize) -> Vec<Vec<u8>> {
        let merged = merge(&[self.sketch.counts()], |_| true);
        let id = |hash| self.sketch.id(hash).expect("it has a place").bytes().to_vec();
        merged.top.iter().take(count).map(|entry| id(entry.hash)).collect()
    }
}

fn check(key: &SketchKey, counts: &[SketchCounts], exact: &HashMap<Vec<u8>, u64>) {
    let total: u64 = counts.iter().map(SketchCounts::total).sum();
    assert_eq!(total, exact.values().sum::<u64>());
    let is_exact = counts.iter().all(SketchCounts::is_exact);
    let units = counts.iter().map(SketchCounts::units).fold(SampledUnits::default(), SampledUnits::and);
    for (id, true_count) in exact {
        let hash = key.hash(SUBJECT, id);
        let counted = counts.iter().map(|counts| counts.bounds(hash)).fold(Bounded::default(), Bounded::and);
        let Bounded { min, max } = units.widen(counted);
        assert!(
            min <= *true_count && *true_count <= max,
            "{}: {min} <= {true_count} <= {max}",
            id.escape_ascii()
        );
        assert!(!is_exact || min == max);
    }
}

/// A sequence of pseudorandom numbers (splitmix64), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The chance of each rank up to it, under Zipf's law.
fn zipf(ids: u32, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut cumulative: Vec<f64> = (1..=ids)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    cumulative.iter_mut().for_each(|chance| *chance /= sum);
    cumulative
}

#[test]
fn a_few_ids_are_counted_exactly() {
    let mut checked = Checked::new();
    for id in 0..20 {
        checked.add_number(id, id + 1);
        checked.add_number(id, 3);
    }
    checked.check();
    let counts = checked.sketch.counts();
    assert!(counts.is_exact());
    assert_eq!(counts.bounds(checked.key.hash(SUBJECT, b"id-4")), Bounded { min: 8, max: 8 });
    assert_eq!(counts.bounds(checked.key.hash(SUBJECT, b"nobody")), Bounded { min: 0, max: 0 });
    assert_eq!(counts.bounds(checked.key.hash(Subject(8), b"id-4")), Bounded { min: 0, max: 0 });
}

#[test]
fn bounds_hold_for_random_streams() {
    let mut random = Random(1);
    for stream in 0..40 {
        let mut checked = Checked::new();
        // As in a generation that is not the newest.
        checked.cells = checked.cells.filter(|_| stream % 4 < 3);
        let (ids, costs) = (1 + random.below(20_000), 1 + random.below(1_000));
        let skew = random.below(4);
        if stream % 3 > 0 {
            checked.sample_after(1 + random.below(10_000), random.next());
        }
        for _ in 0..25_000 {
            // The smallest of a few draws: the more, the more often the first ids come.
            let id = (0..=skew).map(|_| random.below(ids)).min().unwrap_or(0);
            let cost = if stream % 2 == 0 { 1 } else { random.below(costs) };
            checked.add_number(id, cost);
        }
        checked.check();
    }
}

/// The number of short streams between two lines about them.
const STREAMS_PER_LINE: u64 = 50_000;

/// Short streams over the ids of one set, so that places are lost all the time. In some of them nothing is sampled, in
/// others all but the first decisions. `TOLLWAY_STREAMS` sets how many, and `TOLLWAY_SEED` which.
#[test]
fn bounds_hold_for_many_short_streams() {
    let set = |name: &str, usual: u64| std::env::var(name).map_or(usual, |number| number.parse().unwrap());
    let (streams, seed) = (set("TOLLWAY_STREAMS", 5_000), set("TOLLWAY_SEED", 6));
    let (mut random, mut checked) = (Random(seed), Checked::with_key(SketchKey(RapidSecrets::seed(seed))));
    let is_in_one_set = |id: &Vec<u8>| checked.key.hash(SUBJECT, id).set() == 0;
    let ids: Vec<_> =
        (0..).map(|id| format!("id-{id}").into_bytes()).filter(is_in_one_set).take(64).collect();
    let mut sampled = 0;
    for stream in 0..streams {
        if stream % STREAMS_PER_LINE == STREAMS_PER_LINE - 1 {
            println!("{} of {streams} streams of seed {seed}: all bounds hold", stream + 1);
        }
        checked.sketch.clear();
        checked.cells.as_mut().unwrap().clear();
        checked.exact.clear();
        let (used, costs) = (1 + random.below(64), 1 + random.below(20));
        // One stream in four has amounts around those that no longer fit into a cell.
        let scale = if stream % 4 == 3 { 1 << (29 + random.below(6)) } else { 1 };
        // One stream in 64 is long enough that the bounds are wide by chance, and not by all that was skipped.
        let decisions = random.below(if stream % 64 == 0 { 10_000 } else { 400 });
        checked.sample_after(1 + random.below(500), random.next());
        for turn in 0..decisions {
            if turn % 1_000 == 999 {
                checked.sampler.as_mut().unwrap().start_tick(100);
            }
            // The smaller of two, so that some ids come more often than others.
            let id = random.below(used).min(random.below(used));
            checked.add(&ids[usize::try_from(id).unwrap()], random.below(costs) * scale);
        }
        checked.check();
        sampled += u64::from(!checked.sketch.counts().units().is_empty());
    }
    assert!(
        (streams / 10..streams * 9 / 10).contains(&sampled),
        "{sampled} of {streams} streams are sampled"
    );
}

/// A server beside the exact counts: its workers, and all generations that are shown.
struct Watched {
    watch: Watch,
    subject: Subject,
    random: Random,
    exact: HashMap<String, u64>,
}

impl Watched {
    const WORKERS: u64 = 4;

    fn new(seed: u64) -> Self {
        let mut watch = Watch::new(WatchSettings::DEFAULT, usize::try_from(Self::WORKERS).unwrap());
        watch.key = SketchKey(RapidSecrets::seed(seed));
        for (worker, watched) in watch.workers.iter_mut().enumerate() {
            watched.get_mut().unwrap().denied.sampler = DecisionSampler::new((seed << 8) + worker as u64);
        }
        let subject = watch.subjects.number(SubjectKind::Limit, "a");
        Self { watch, subject, random: Random(seed), exact: HashMap::new() }
    }

    /// Denies this many requests, at random workers, in ticks from the oldest generation to the newest.
    fn deny(&mut self, requests: u64, ticks: u64, mut id: impl FnMut(u64, &mut Random) -> String) {
        let window = KEPT as u64 * SECONDS * 1_000;
        for turn in 0..requests {
            let tick = turn * ticks / requests;
            self.watch.tick(self.watch.started + Duration::from_millis(tick * window / ticks));
            let (id, worker) = (id(turn, &mut self.random), self.random.below(Self::WORKERS));
            self.deny_at(usize::try_from(worker).unwrap(), [&*id]);
            *self.exact.entry(id).or_default() += 1;
        }
    }

    /// Denies a batch of requests, which are not added to the exact counts.
    fn deny_at<'a>(&self, worker: usize, ids: impl IntoIterator<Item = &'a str>) {
        let mut recorder = self.watch.recorder(worker).unwrap();
        ids.into_iter().for_each(|id| recorder.denied("http", self.subject, id.as_bytes(), 1, None));
    }

    /// Returns the first ids of `/v1/top`, after a check that their bounds hold and are as narrow as they should be.
    fn listed(&self, count: usize) -> Vec<TopEntry> {
        let (report, _) = self.watch.counted(TopBy::Denied, None, count, &Policy::default());
        let total = self.exact.values().sum::<u64>();
        assert_eq!(report.total, Some(total));
        for TopEntry { id, count_min, count_max, .. } in &report.top {
            let true_count = self.exact[id.as_deref().unwrap()];
            assert!((*count_min..=*count_max).contains(&true_count), "{id:?} with {true_count}");
            // By chance, what was sampled may differ by eight standard deviations, and a little more for few samples.
            let by_chance = 1_000 + 16 * (16 * (count_max / 16).isqrt());
            let width = total / 1_024 + if self.is_sampled() { by_chance } else { 0 };
            assert!(count_max - count_min <= width, "{id:?}: {count_min} to {count_max}");
        }
        report.top
    }

    fn is_sampled(&self) -> bool {
        let generation = KEPT as u64 - 1;
        let is_sampled = |counts: SketchCounts| !counts.units().is_empty();
        self.watch.each_worker().any(|worker| worker.denied.generations.counts(generation).any(is_sampled))
    }

    /// Asserts that the list has the ids with the largest counts.
    fn assert_top_20_are_listed(&self) {
        let listed = self.listed(20);
        let mut exact: Vec<_> = self.exact.iter().map(|(id, count)| (*count, &**id)).collect();
        exact.sort_unstable_by(|a, b| b.cmp(a));
        let is_listed = |id: &str| listed.iter().any(|entry| entry.id.as_deref() == Some(id));
        let missed: Vec<_> = exact[..20].iter().filter(|(_, id)| !is_listed(id)).collect();
        // The last of the top and the next may differ by less than the bounds of one that is listed instead.
        for (count, id) in &missed {
            let is_tie = |entry: &TopEntry| (entry.count_min..=entry.count_max).contains(count);
            assert!(listed.iter().any(is_tie), "{id} with {count}");
        }
        assert!(missed.len() <= 2, "{missed:?}");
    }
}

#[test]
fn the_top_20_of_a_million_ids_are_listed_with_any_key() {
    let cumulative = zipf(1_000_000, 0.99);
    for seed in 0..6 {
        let mut watched = Watched::new(seed);
        watched.deny(100_000, 600, |_, random| {
            let drawn = random.fraction();
            format!("id-{}", cumulative.partition_point(|chance| *chance < drawn))
        });
        assert!(!watched.is_sampled());
        watched.assert_top_20_are_listed();
    }
}

#[test]
fn the_top_20_of_a_million_ids_are_listed_when_most_decisions_are_skipped() {
    let cumulative = zipf(1_000_000, 0.99);
    let ids: Vec<String> = (0..1_000_000).map(|id| format!("id-{id}")).collect();
    let (mut watched, mut exact) = (Watched::new(8), vec![0; ids.len()]);
    // A worker that denies 400,000 a second, in batches of 100, for five seconds.
    for batch in 0..20_000 {
        watched.watch.tick(watched.watch.started + Duration::from_millis(batch / 400 * 100));
        let drawn: Vec<_> = (0..100).map(|_| watched.random.fraction()).collect();
        let ranks: Vec<_> =
            drawn.iter().map(|drawn| cumulative.partition_point(|chance| chance < drawn)).collect();
        watched.deny_at(0, ranks.iter().map(|rank| &*ids[*rank]));
        ranks.iter().for_each(|rank| exact[*rank] += 1);
    }
    watched.exact = ids.into_iter().zip(exact).filter(|(_, count)| *count > 0).collect();
    assert!(watched.is_sampled());
    watched.assert_top_20_are_listed();
}

#[test]
fn an_id_with_one_percent_is_listed_whatever_the_others_are() {
    // Beside 50 or 98 others, most of those have more than one percent too. In three ticks, most are not counted one by
    // one.
    for (seed, others, count) in
        [(0, 0, 20), (1, 10, 20), (2, 1_000, 20), (3, 1_000_000, 20), (4, 50, 100), (5, 98, 100)]
    {
        for (requests, ticks) in [(50_000, 600), (200_000, 3)] {
            let mut watched = Watched::new(seed);
            watched.deny(requests, ticks, |turn, random| match turn % 100 {
                0 => "one percent".to_owned(),
                _ if others == 0 => turn.to_string(),
                _ => random.below(others).to_string(),
            });
            assert_eq!(watched.is_sampled(), ticks == 3);
            let listed = watched.listed(count);
            assert!(
                listed.iter().any(|entry| entry.id.as_deref() == Some("one percent")),
                "beside {others} others, in {ticks} ticks"
            );
        }
    }
}

#[test]
fn an_ordinary_load_is_never_sampled() {
    let watched = Watched::new(7);
    let ids: Vec<String> = (0..20).map(|id| format!("id-{id}")).collect();
    for tick in 0..599 {
        watched.watch.tick(watched.watch.started + Duration::from_millis(tick * 100));
        for batch in 0..ONE_BY_ONE / 64 {
            watched.deny_at(3, ids.iter().cycle().skip(batch as usize % 20).take(64).map(|id| &**id));
        }
    }
    let is_exact = |watched: &Watched| {
        watched.watch.counted(TopBy::Denied, None, 20, &Policy::default()).0.exact.unwrap()
    };
    assert!(is_exact(&watched) && !watched.is_sampled());
    // More than that in one tick is.
    watched.deny_at(3, ["id-0"; 16]);
    assert!(!is_exact(&watched) && watched.is_sampled());
}

#[test]
fn one_heavy_id_after_many_others_is_found() {
    let mut checked = Checked::new();
    (0..100_000).for_each(|id| checked.add_number(id, 1));
    (0..2_000).for_each(|_| checked.add(b"heavy", 1));
    assert_eq!(checked.top(1), [b"heavy"]);
    checked.check();
}

#[test]
fn ids_that_all_fall_into_one_set_break_no_bound() {
    let mut checked = Checked::new();
    let set = checked.key.hash(SUBJECT, b"victim").set();
    let aimed: Vec<u64> = (0..100_000)
        .filter(|id| checked.key.hash(SUBJECT, format!("id-{id}").as_bytes()).set() == set)
        .collect();
    assert!(aimed.len() > 1_000);
    for (turn, id) in aimed.iter().enumerate() {
        checked.add_number(*id, 1);
        if turn % 8 == 0 {
            checked.add(b"victim", 1);
        }
    }
    checked.check();
    // An eighth is more than the sixteenth that keeps a place for certain.
    assert_eq!(checked.top(1), [b"victim"]);
}

#[test]
fn counts_of_workers_are_merged() {
    let mut random = Random(4);
    let key = SketchKey::random();
    let mut workers: Vec<Checked> = (0..4).map(|_| Checked::with_key(key.clone())).collect();
    for _ in 0..200_000 {
        let (worker, id) = (random.below(4), random.below(50_000).min(random.below(50_000)));
        let id = if random.below(50) == 0 { 99_999_999 } else { id };
        workers[usize::try_from(worker).unwrap()].add_number(id, 1 + random.below(3));
    }
    let counts: Vec<_> = workers.iter().map(|worker| worker.sketch.counts()).collect();
    let mut exact: HashMap<Vec<u8>, u64> = HashMap::new();
    for (id, count) in workers.iter().flat_map(|worker| &worker.exact) {
        *exact.entry(id.clone()).or_default() += count;
    }
    check(&key, &counts, &exact);
    let merged = merge(&counts, |_| true);
    for Entry { hash, bounds, .. } in &merged.top {
        let of_parts = counts.iter().map(|part| part.bounds(*hash)).fold(Bounded::default(), Bounded::and);
        assert_eq!(*bounds, of_parts);
    }
    assert_eq!(merged.total, exact.values().sum::<u64>());
    assert_eq!(merged.top[0].hash, key.hash(SUBJECT, b"id-99999999"));
    assert!(merged.top.windows(2).all(|pair| pair[0].bounds.max >= pair[1].bounds.max));
}

#[test]
fn long_ids_are_cut_and_stay_apart() {
    let mut checked = Checked::new();
    let long = [b'x'; ID_MAX + 1];
    let longer = [b'x'; ID_MAX + 2];
    checked.add(&long, 1);
    checked.add(&longer, 2);
    checked.add(&long[..ID_MAX], 4);
    checked.check();
    let id = |id: &[u8]| *checked.sketch.id(checked.key.hash(SUBJECT, id)).unwrap();
    assert_eq!((id(&long).bytes(), id(&long).is_cut()), (&long[..ID_MAX], true));
    assert_eq!((id(&long[..ID_MAX]).bytes().len(), id(&long[..ID_MAX]).is_cut()), (ID_MAX, false));
}

#[test]
fn amounts_that_do_not_fit_into_a_cell_break_no_bound() {
    let (mut checked, mut random) = (Checked::new(), Random(5));
    let large = u64::from(u32::MAX);
    for _ in 0..100_000 {
        let amounts = [1, large - 1, large, large + 1];
        let amount = amounts[usize::try_from(random.below(4)).unwrap()];
        checked.add_number(random.below(5_000), amount);
    }
    checked.check();
}

#[test]
fn an_amount_that_does_not_fit_into_a_cell_does_not_lower_the_threshold() {
    let mut checked = Checked::new();
    let is_in_one_set = |id: &u64| checked.key.hash(SUBJECT, format!("id-{id}").as_bytes()).set() == 0;
    let ids: Vec<u64> = (0..).filter(is_in_one_set).take(WAYS + 1).collect();
    let (first, last) = (&ids[..WAYS], ids[WAYS]);
    first.iter().for_each(|id| checked.add_number(*id, 10_000_000_000));
    checked.add_number(last, 5_000_000_000);
    checked.check();
    checked.add_number(last, 5_000_000_000);
    checked.check();
}

#[test]
fn amounts_that_do_not_fit_stay_at_the_largest_number() {
    let mut checked = Checked::new();
    checked.cells = None;
    let hash = checked.key.hash(SUBJECT, b"a");
    let added = Added { hash, subject: SUBJECT, id: b"a", amount: u64::MAX };
    checked.sketch.add_all_without_cells(&[added; 2]);
    assert_eq!(checked.sketch.counts().total(), u64::MAX);
    assert_eq!(checked.sketch.counts().bounds(checked.key.hash(SUBJECT, b"a")).max, u64::MAX);
}
