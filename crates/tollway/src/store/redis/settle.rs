//! Settles bills in Redis.
//!
//! ```text
//! bill ──┬─ part ─ call ─> reply ─ read ─┬─> decision        one part, unless the buckets are in several slots
//!        └─ part ─ call ─> reply ─ read ─┴─> undo, if it is denied
//! ```
//!
//! A bill whose buckets and logs are in one slot is one call, and atomic. If a Cluster has them in several slots, all
//! parts are charged and entered at once, each by itself. If one is denied, or gets no answer, the others are taken
//! back: nobody ever gets more than the limit, but until then somebody may get less.

use tollway_core::{Bill, ChargeKind, Decision, RuleDecision, Timestamp, Verdict};

use super::call::Call;
use super::part::{Mode, Part, Read};
use super::script::{self, CallBuilder};
use super::undo::Taken;
use super::{Redis, StoreError};

impl Redis {
    /// Settles each bill on its own, in one pipeline. The time is that of Redis unless it is given.
    pub async fn settle(
        &self,
        bills: &[Bill<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Decision, StoreError>> {
        overall(self.decide(bills, Mode::Whole, now).await)
    }

    /// Settles a bill, and returns the decision about each of its charges as well. If the bill is denied, they show
    /// what is left of the charges that would have fitted.
    pub async fn settle_each(&self, bill: &Bill<'_>, now: Option<Timestamp>) -> Result<Decided, StoreError> {
        self.decide(std::slice::from_ref(bill), Mode::Whole, now).await.remove(0)
    }

    /// Returns the decisions that [`settle`](Self::settle) would make. Changes nothing.
    pub async fn check(
        &self,
        bills: &[Bill<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Decision, StoreError>> {
        overall(self.decide(bills, Mode::Check, now).await)
    }

    async fn decide(
        &self,
        bills: &[Bill<'_>],
        mode: Mode,
        now: Option<Timestamp>,
    ) -> Vec<Result<Decided, StoreError>> {
        let by_slot = self.net.is_cluster();
        let parts: Vec<_> = bills.iter().map(|bill| Part::of(bill, &self.namespace, by_slot, mode)).collect();
        let calls = parts.iter().flatten().map(|part| part.call(now)).collect();
        let mut replies = self.send(calls).await.into_iter();
        let (mut decisions, mut undos) = (Vec::with_capacity(bills.len()), Vec::new());
        for (bill, parts) in bills.iter().zip(&parts) {
            let reads: Vec<_> =
                parts.iter().zip(&mut replies).map(|(part, reply)| part.read(reply?, now)).collect();
            let decision = decision(bill, parts, &reads);
            let allowed = decision.as_ref().is_ok_and(|(decision, _)| decision.allowed());
            if parts.len() > 1 && mode == Mode::Whole && !allowed {
                let charged = parts.iter().zip(&reads);
                undos.extend(charged.filter_map(|(part, read)| undo(part, read.as_ref().ok()?, now)));
            }
            decisions.push(decision);
        }
        if !undos.is_empty() {
            // The decisions stand, even if this fails. A charge that stays taken makes its client wait.
            self.send(undos).await;
        }
        decisions
    }
}

/// The decision about a bill, and those about its charges.
type Decided = (Decision, Vec<Decision>);

/// Returns the decisions about whole bills.
fn overall(decided: Vec<Result<Decided, StoreError>>) -> Vec<Result<Decision, StoreError>> {
    decided.into_iter().map(|decided| decided.map(|(decision, _)| decision)).collect()
}

pub(super) type Reads<'a> = [Result<Read<'a>, StoreError>];

/// Returns the decisions on a bill and its charges, from what the calls for its parts found.
fn decision(bill: &Bill<'_>, parts: &[Part<'_>], reads: &Reads<'_>) -> Result<Decided, StoreError> {
    let mut decisions = vec![Decision::UNLIMITED; bill.charges().len()];
    let mut denied = false;
    for (part, read) in parts.iter().zip(reads) {
        let read = read.as_ref().map_err(Clone::clone)?;
        denied |= read.denied;
        for (line, seen) in part.lines.iter().zip(&read.seen) {
            decisions[line.place] = seen.decide(line.charge.cost(), read.now);
        }
    }
    for (index, rule) in bill.rules().iter().enumerate() {
        let (at, reached_until) = rates(bill, index, parts, reads)?;
        let until = rule.limit().rule().limits_until_by(|rate| reached_until[rate]);
        decisions.push(RuleDecision::until(until, at).into());
    }
    let decision = bill.answer(&decisions);
    // The script has taken or not, so its verdict holds. The core may differ if a rate is very close to its limit, and
    // two machines round it differently.
    let told = parts.len() == 1 || (bill.expression().is_none() && bill.rules().is_empty());
    let decision = match (told, decision.allowed(), denied) {
        (true, true, true) => decision.with_verdict(Verdict::Deny),
        (true, false, false) => decision.with_verdict(Verdict::Allow),
        _ => decision,
    };
    if !decision.allowed() {
        for (part, read) in parts.iter().zip(reads.iter().flatten()) {
            for (line, seen) in part.lines.iter().zip(&read.seen) {
                if decisions[line.place].allowed() {
                    decisions[line.place] = seen.decide(0, read.now);
                }
            }
        }
    }
    decisions.truncate(bill.charges().len());
    Ok((decision, decisions))
}

/// Returns the time until which each rate of one rule of a bill is reached, and the time of the clock that says so,
/// which is that of the first part.
pub(super) fn rates(
    bill: &Bill<'_>,
    rule: usize,
    parts: &[Part<'_>],
    reads: &Reads<'_>,
) -> Result<(Timestamp, Vec<Timestamp>), StoreError> {
    let mut reached_until = vec![Timestamp::EPOCH; bill.rules()[rule].limit().rule().rates().len()];
    let mut at = None;
    for (part, read) in parts.iter().zip(reads) {
        let read = read.as_ref().map_err(Clone::clone)?;
        let at = *at.get_or_insert(read.now);
        let found = part.rates.iter().zip(&read.reached_until).filter(|(place, _)| place.rule == rule);
        for (place, until) in found {
            reached_until[place.rate] = by_clock(at, *until, read.now);
        }
    }
    Ok((at.unwrap_or_default(), reached_until))
}

/// Converts a time of a node whose clock says `now` to a clock that says `at`.
fn by_clock(at: Timestamp, until: Timestamp, now: Timestamp) -> Timestamp {
    match until.as_nanos() {
        u64::MAX => until,
        _ if until <= now => Timestamp::EPOCH,
        _ => at + until.since(now),
    }
}

/// Returns the call that takes back what a part has taken and entered.
pub(super) fn undo(part: &Part<'_>, read: &Read<'_>, now: Option<Timestamp>) -> Option<Call> {
    let took_charges = part.mode == Mode::Each || !read.denied;
    let charges = part.lines.iter().zip(&read.seen).filter(|_| took_charges).filter_map(|(line, seen)| {
        let fits = seen.decide(line.charge.cost(), read.now).allowed();
        let took = line.charge.kind() != ChargeKind::CheckOnly && fits;
        let taken = took.then(|| Taken::from(seen, line.charge.cost(), read.now)).flatten()?;
        Some((&*line.key, taken))
    });
    let entries = part.logs.iter().zip(&read.entered);
    let entries = entries.filter_map(|(log, entry)| Some((&*log.key, Taken::Entry((*entry)?))));
    let (keys, taken): (Vec<_>, Vec<_>) = charges.chain(entries).unzip();
    let draft = || {
        taken.iter().fold(CallBuilder::new(&script::UNDO, &keys).now(now), |draft, taken| taken.write(draft))
    };
    (!keys.is_empty()).then(|| draft().finish())
}
