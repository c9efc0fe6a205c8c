//! A store as a map of naive buckets and complete logs.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use tollway::core::{Algorithm, ChargeKind, Decision, Nanos, Refund, RuleDecision, Timestamp};

use super::bucket::{FormerNumbers, NaiveBucket, Sharing};
use super::naive;
use crate::requests::{Id, LimitName};

/// The rates of the only rule, `Or('user:3/10s', '12/m')`: if they are of one user, the count and the time.
const RATES: [(bool, usize, Nanos); 2] = [(true, 3, Nanos::from_secs(10)), (false, 12, Nanos::from_secs(60))];

/// The time for which an entry counts under the rule.
pub(crate) const RULE_PERIOD: Nanos = Nanos::from_secs(60);

/// The most changes of a limit during which a bucket may stay unused.
const FORMER_MAX: usize = 8;

/// Entries that are older than this are of no rate's interest.
const RETENTION: Nanos = Nanos::from_secs(120);

/// One charge of a bill, with the numbers that its process has for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The limit.
    pub(crate) limit: LimitName,
    /// The id.
    pub(crate) id: Id,
    /// The algorithm with its numbers.
    pub(crate) algorithm: Algorithm,
    /// The cost.
    pub(crate) cost: u64,
    /// The part that it has in its bill.
    pub(crate) kind: ChargeKind,
}

/// The user whose rule is a part of a bill, if it has one.
pub(crate) type AskedRule = Option<Id>;

/// A store that answers by definition. Copies share what did not change since: there is one for each round of a
/// journal.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    sharing: Sharing,
    buckets: HashMap<(LimitName, Id), Rc<Kept>>,
    /// The numbers that each limit had before, the newest last.
    former: Rc<HashMap<LimitName, Vec<FormerNumbers>>>,
    /// The entries of each user, and of everybody together.
    logs: HashMap<Option<Id>, Rc<Vec<Timestamp>>>,
    /// The buckets that have changed since the last replication, in a shared store: no other has a replica.
    changed: Vec<(LimitName, Id)>,
    /// The logs that have changed since then.
    changed_logs: Vec<Option<Id>>,
}

#[derive(Clone, Debug)]
struct Kept {
    bucket: NaiveBucket,
    /// A moment after which it surely takes no place in a store.
    occupies_until: Timestamp,
}

impl Model {
    /// Makes an empty store.
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            buckets: HashMap::new(),
            former: Rc::default(),
            logs: HashMap::new(),
            changed: Vec::new(),
            changed_logs: Vec::new(),
        }
    }

    /// Settles a bill: every charge is tried by itself, then the whole is answered, then it is taken. Charges that a
    /// full store could not remember are `unremembered`, and a full store has `decided` by itself.
    pub(crate) fn settle(
        &mut self,
        lines: &[Line],
        rule: AskedRule,
        now: Timestamp,
        unremembered: &[bool],
        decided: Option<bool>,
    ) -> Decision {
        let answer = self.check(lines, rule, now);
        let allowed = decided.unwrap_or(answer.allowed());
        if allowed && rule.is_some() {
            for log in [rule, None] {
                let entries = Rc::make_mut(self.logs.entry(log).or_default());
                let newest = entries.last().copied().unwrap_or_default();
                entries.push(now.max(newest));
                entries.retain(|entry| now.since(*entry) <= RETENTION);
                if self.sharing == Sharing::Shared {
                    self.changed_logs.push(log);
                }
            }
        }
        for (index, line) in lines.iter().enumerate() {
            if unremembered.get(index) == Some(&true) {
                continue;
            }
            let fits = self.alone(line, now).allowed();
            match line.kind {
                ChargeKind::Spend | ChargeKind::SpendOnly if fits && allowed => {
                    self.spend(line, line.cost, now);
                }
                // One that denies takes nothing, but a strict rate counts the denial, and what is further ahead than
                // its bucket can hold is pulled back.
                ChargeKind::Spend if !fits => self.spend(line, line.cost, now),
                ChargeKind::SpendOnly | ChargeKind::CheckOnly if !fits => self.spend(line, 0, now),
                _ => {}
            }
        }
        answer
    }

    /// Returns the answer to a bill, and takes nothing.
    pub(crate) fn check(&mut self, lines: &[Line], rule: AskedRule, now: Timestamp) -> Decision {
        lines.iter().for_each(|line| self.take_over(line));
        let lines: Vec<_> = lines.iter().map(|line| (line.kind, self.alone(line, now))).collect();
        let rules: Vec<_> = rule.map(|user| self.ruling(user, now)).into_iter().collect();
        naive::answer(None, &lines, &rules)
    }

    /// Gives back to one bucket.
    pub(crate) fn refund(&mut self, line: &Line, now: Timestamp) -> Refund {
        self.take_over(line);
        let kept = self.kept(line);
        kept.bucket.refund(&line.algorithm, line.cost, now).unwrap_or(Refund::UNLIMITED)
    }

    /// Forgets one bucket.
    pub(crate) fn reset(&mut self, limit: LimitName, id: Id) {
        self.buckets.remove(&(limit, id));
        self.note_change((limit, id));
    }

    /// Takes everything that an id may have.
    pub(crate) fn empty(&mut self, line: &Line, now: Timestamp) {
        self.buckets.remove(&(line.limit, line.id));
        self.spend(line, line.algorithm.cost_max(), now);
    }

    /// Takes over one bucket of another store.
    pub(crate) fn adopt(&mut self, other: &Self, limit: LimitName, id: Id) {
        match other.buckets.get(&(limit, id)) {
            Some(kept) => drop(self.buckets.insert((limit, id), Rc::clone(kept))),
            None => drop(self.buckets.remove(&(limit, id))),
        }
    }

    /// Returns true if another store has the same bucket, and not only one that gives the same answers now.
    pub(crate) fn has_bucket_of(&self, other: &Self, limit: LimitName, id: Id) -> bool {
        match (self.buckets.get(&(limit, id)), other.buckets.get(&(limit, id))) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other) || one.bucket == other.bucket,
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns true if another store knows the same of all users, as far as the rule counts it.
    pub(crate) fn has_logs_of(&self, other: &Self, now: Timestamp) -> bool {
        let counted = |model: &Self, user: &Option<Id>| {
            let log = model.logs.get(user).map_or(&[][..], |log| log.as_slice());
            log.iter().copied().filter(|entry| *entry + RULE_PERIOD > now).collect::<Vec<_>>()
        };
        self.logs.keys().chain(other.logs.keys()).all(|user| counted(self, user) == counted(other, user))
    }

    /// Takes over what another store knows of a user, and of everybody together.
    pub(crate) fn adopt_log(&mut self, other: &Self, user: AskedRule) {
        self.logs.insert(user, other.logs.get(&user).cloned().unwrap_or_default());
    }

    /// Changes the numbers of a limit at this moment.
    pub(crate) fn change(&mut self, limit: LimitName, old: &Algorithm, new: &Algorithm, now: Timestamp) {
        let former = Rc::make_mut(&mut self.former).entry(limit).or_default();
        former.push((*old, now));
        let surplus = former.len().saturating_sub(FORMER_MAX);
        former.drain(..surplus);
        for ((name, _), kept) in &mut self.buckets {
            if *name == limit {
                let kept = Rc::make_mut(kept);
                kept.occupies_until = kept.occupies_until.max(now + occupied_for(new));
            }
        }
    }

    /// Returns true if a full store may have dropped the bucket: it was going to be full by now, and counts only
    /// because its limit has got other numbers since.
    pub(crate) fn may_be_dropped(&self, line: &Line, now: Timestamp) -> bool {
        self.buckets.get(&(line.limit, line.id)).is_some_and(|kept| kept.bucket.was_full(now))
    }

    /// Returns the answer to one charge alone, and changes nothing.
    pub(crate) fn peek(&self, line: &Line, now: Timestamp) -> Decision {
        let mut bucket = self.bucket(line);
        bucket.take_over(self.former(line.limit), &line.algorithm);
        bucket.spend(&line.algorithm, line.cost, now)
    }

    /// Returns the answer to the rule alone, for this user.
    pub(crate) fn peek_rule(&self, user: AskedRule, now: Timestamp) -> Decision {
        let rules: Vec<_> = user.map(|user| self.ruling(user, now)).into_iter().collect();
        naive::answer(None, &[], &rules)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.buckets.clear();
        self.former = Rc::default();
        self.logs.clear();
    }

    /// Returns true if the id surely has a bucket, because something of it is used.
    pub(crate) fn is_used(&self, line: &Line, now: Timestamp) -> bool {
        let nothing = Line { cost: 0, ..*line };
        match line.algorithm {
            // A rate that has faded is forgotten at another moment.
            Algorithm::SmoothedRate(_) => false,
            _ => self.peek(&nothing, now).remaining < line.algorithm.cost_max(),
        }
    }

    /// Returns the largest number of buckets that may take a place now.
    pub(crate) fn occupied_max(&self, now: Timestamp) -> usize {
        self.buckets.values().filter(|kept| kept.occupies_until > now).count()
    }

    /// Copies what has changed since the last time to a replica.
    pub(crate) fn replicate(&mut self, replica: &mut Self) {
        for key in self.changed.drain(..) {
            match self.buckets.get(&key) {
                Some(kept) => drop(replica.buckets.insert(key, Rc::clone(kept))),
                None => drop(replica.buckets.remove(&key)),
            }
        }
        for log in self.changed_logs.drain(..) {
            replica.logs.insert(log, self.logs.get(&log).cloned().unwrap_or_default());
        }
    }

    /// Converts the bucket of a line to the numbers that its limit has now.
    fn take_over(&mut self, line: &Line) {
        if let Some(kept) = self.buckets.get_mut(&(line.limit, line.id))
            && kept.bucket.is_outdated(&line.algorithm)
        {
            let former = self.former.get(line.limit).map_or(&[][..], Vec::as_slice);
            Rc::make_mut(kept).bucket.take_over(former, &line.algorithm);
        }
    }

    fn alone(&self, line: &Line, now: Timestamp) -> Decision {
        self.bucket(line).spend(&line.algorithm, line.cost, now)
    }

    fn bucket(&self, line: &Line) -> NaiveBucket {
        let kept = self.buckets.get(&(line.limit, line.id));
        kept.map_or_else(|| NaiveBucket::new(&line.algorithm, self.sharing), |kept| kept.bucket.clone())
    }

    fn former(&self, limit: LimitName) -> &[FormerNumbers] {
        self.former.get(limit).map_or(&[][..], Vec::as_slice)
    }

    fn spend(&mut self, line: &Line, cost: u64, now: Timestamp) {
        let kept = self.kept(line);
        let _ = kept.bucket.spend(&line.algorithm, cost, now);
        kept.occupies_until = kept.occupies_until.max(now + occupied_for(&line.algorithm));
    }

    fn kept(&mut self, line: &Line) -> &mut Kept {
        let (key, sharing) = ((line.limit, line.id), self.sharing);
        self.note_change(key);
        let kept = self.buckets.entry(key).or_insert_with(|| {
            let bucket = NaiveBucket::new(&line.algorithm, sharing);
            Rc::new(Kept { bucket, occupies_until: Timestamp::EPOCH })
        });
        Rc::make_mut(kept)
    }

    fn note_change(&mut self, key: (LimitName, Id)) {
        if self.sharing == Sharing::Shared {
            self.changed.push(key);
        }
    }

    /// Tries every moment at which a rate may be free again.
    fn ruling(&self, user: Id, now: Timestamp) -> RuleDecision {
        let log = |of_user: bool| {
            let key = of_user.then_some(user);
            self.logs.get(&key).map_or(&[][..], |log| log.as_slice())
        };
        let limits = |at: Timestamp| {
            RATES.iter().any(|(of_user, count, period)| {
                log(*of_user).iter().filter(|entry| at < **entry + *period).count() >= *count
            })
        };
        let ends =
            RATES.iter().flat_map(|(of_user, _, period)| log(*of_user).iter().map(|entry| *entry + *period));
        let mut moments: Vec<_> = ends.filter(|end| *end > now).chain([now]).collect();
        moments.sort_unstable();
        let free = moments.into_iter().find(|at| !limits(*at)).unwrap_or(Timestamp::MAX);
        RuleDecision::until(free, now)
    }
}

/// Returns whether two decisions are the same. The wait of a smoothed rate is not predicted, so of a bill that has one
/// and others only the answer is compared: which charge decided may depend on that wait.
pub(crate) fn same(expected: &Decision, found: &Decision, lines: &[Line], rule: AskedRule) -> bool {
    let is_rate = |line: &Line| matches!(line.algorithm, Algorithm::SmoothedRate(_));
    match lines {
        [line] if is_rate(line) && rule.is_none() => {
            (expected.verdict, expected.remaining, expected.reset_nanos)
                == (found.verdict, found.remaining, found.reset_nanos)
        }
        lines if lines.iter().any(is_rate) => expected.allowed() == found.allowed(),
        _ => expected == found,
    }
}

/// Returns a time after which a bucket surely takes no place: windows are kept for up to twice their period.
fn occupied_for(algorithm: &Algorithm) -> Nanos {
    let longest = match algorithm {
        Algorithm::TokenBucket(limit) => limit.fill_time(),
        Algorithm::SmoothedRate(limit) => limit.forget_after(f64::MAX),
        _ => algorithm.window(),
    };
    longest.saturating_mul(4)
}
