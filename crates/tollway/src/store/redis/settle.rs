//! Bills, decided by Redis.
//!
//! ```text
//! bill ──┬─ part ─ call ─> reply ─ read ─┬─> decision        one part, unless a Cluster has the buckets in several slots
//!        └─ part ─ call ─> reply ─ read ─┴─> what is left to do
//! ```
//!
//! A bill whose buckets are in one slot is one call, and atomic. Where they are in several, all parts are charged at once,
//! each by itself. If one refuses, or gives no answer, the others are taken back: nobody ever gets more than the limit,
//! but for as long as taking back takes, somebody may get less.

use tollway_core::{Algorithm, Bill, ChargeKind, Decision, Timestamp, Verdict};

use super::call::Call;
use super::part::{Line, Mode, Part, Read};
use super::script::{self, Draft};
use super::undo::Taken;
use super::{Redis, StoreError};

impl Redis {
    /// Settles each bill on its own, in one pipeline. The time is Redis's own unless it is given.
    pub async fn settle(
        &self,
        bills: &[Bill<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Decision, StoreError>> {
        self.decide(bills, Mode::Whole, now).await
    }

    /// The decisions that [`settle`](Self::settle) would make, remembering nothing.
    pub async fn check(
        &self,
        bills: &[Bill<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Decision, StoreError>> {
        self.decide(bills, Mode::Check, now).await
    }

    async fn decide(
        &self,
        bills: &[Bill<'_>],
        mode: Mode,
        now: Option<Timestamp>,
    ) -> Vec<Result<Decision, StoreError>> {
        let by_slot = self.net.is_cluster();
        let parts: Vec<_> = bills.iter().map(|bill| Part::of(bill, &self.namespace, by_slot, mode)).collect();
        let calls = parts.iter().flatten().map(|part| part.call(now)).collect();
        let mut replies = self.send(calls).await.into_iter();
        let (mut decisions, mut left_to_do) = (Vec::with_capacity(bills.len()), Vec::new());
        for (bill, parts) in bills.iter().zip(&parts) {
            let reads: Vec<_> =
                parts.iter().zip(&mut replies).map(|(part, reply)| part.read(reply?, now)).collect();
            let decision = decision(bill, parts, &reads);
            if parts.len() > 1 && mode == Mode::Whole {
                let allowed = decision.as_ref().is_ok_and(Decision::allowed);
                left_to_do.extend(left_after(allowed, parts, &reads, now));
            }
            decisions.push(decision);
        }
        if !left_to_do.is_empty() {
            // What was decided stands, whatever comes of this. A charge that cannot be taken back is paid for by waiting.
            self.send(left_to_do).await;
        }
        decisions
    }
}

type Reads<'a> = [Result<Read<'a>, StoreError>];

/// The decision on a bill, from what the calls for its parts found.
fn decision(bill: &Bill<'_>, parts: &[Part<'_>], reads: &Reads<'_>) -> Result<Decision, StoreError> {
    let mut decisions = vec![Decision::UNLIMITED; bill.charges().len()];
    let mut denied = false;
    for (part, read) in parts.iter().zip(reads) {
        let read = read.as_ref().map_err(Clone::clone)?;
        denied |= read.denied;
        for (line, seen) in part.lines.iter().zip(&read.seen) {
            decisions[line.place] = seen.decide(line.charge.cost(), read.now);
        }
    }
    let decision = bill.answer(&decisions);
    // Who took is who knows. The two can differ where a rate is a hair's breadth from its limit, and two machines round it
    // differently.
    let told = parts.len() == 1 || bill.expression().is_none();
    Ok(match (told, decision.allowed(), denied) {
        (true, true, true) => decision.with_verdict(Verdict::Deny),
        (true, false, false) => decision.with_verdict(Verdict::Allow),
        _ => decision,
    })
}

/// What is left to do when the parts of a bill were charged by themselves: take back what should not have been taken,
/// or take what fits of what did not fit as a whole.
fn left_after(allowed: bool, parts: &[Part<'_>], reads: &Reads<'_>, now: Option<Timestamp>) -> Vec<Call> {
    let charged = parts.iter().zip(reads).filter_map(|(part, read)| Some((part, read.as_ref().ok()?)));
    charged
        .filter_map(|(part, read)| if allowed { take_rest(part, read, now) } else { undo(part, read, now) })
        .collect()
}

fn take_rest(part: &Part<'_>, read: &Read<'_>, now: Option<Timestamp>) -> Option<Call> {
    let left_out = |line: &Line<'_>, allowed: bool| match line.charge.kind() {
        _ if allowed || part.mode == Mode::Whole => false,
        ChargeKind::CheckOnly => false,
        ChargeKind::SpendOnly => true,
        // A rate has nothing that could fit in part, and has counted the request already where refusals count.
        ChargeKind::Spend => !matches!(line.algorithm, Algorithm::SmoothedRate(_)),
    };
    let lines = part.lines.iter().zip(&read.seen);
    let lines =
        lines.filter(|(line, seen)| left_out(line, seen.decide(line.charge.cost(), read.now).allowed()));
    let lines: Vec<_> = lines.map(|(line, _)| line.clone()).collect();
    (!lines.is_empty()).then(|| Part::new(Mode::Rest, lines).call(now))
}

fn undo(part: &Part<'_>, read: &Read<'_>, now: Option<Timestamp>) -> Option<Call> {
    if part.mode == Mode::Whole && read.denied {
        return None;
    }
    let taken = part.lines.iter().zip(&read.seen).filter_map(|(line, seen)| {
        let fits = seen.decide(line.charge.cost(), read.now).allowed();
        let took = line.charge.kind() != ChargeKind::CheckOnly && (fits || part.mode == Mode::Whole);
        let taken = took.then(|| Taken::from(seen, line.charge.cost(), read.now)).flatten()?;
        Some((&*line.key, taken))
    });
    let (keys, taken): (Vec<_>, Vec<_>) = taken.unzip();
    let draft =
        || taken.iter().fold(Draft::new(&script::UNDO, &keys).now(now), |draft, taken| taken.write(draft));
    (!keys.is_empty()).then(|| draft().finish())
}
