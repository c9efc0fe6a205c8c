//! Throttr's commands, executed by Redis.

use std::collections::HashMap;

use tollway_core::Timestamp;
use tollway_core::algorithm::{
    Change, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaState, QuotaTtl, TtlUnit,
};

use super::net::Reply;
use super::reply::Answer;
use super::script::{self, Draft};
use super::seen::{self, quota};
use super::{Redis, StoreError};

impl Redis {
    /// Runs the quota commands in one pipeline; commands for one pair are one call, and so keep their order. The time
    /// is Redis's own unless it is given.
    pub async fn run_quota_commands(
        &self,
        commands: &[QuotaCommand<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<QuotaOutcome, StoreError>> {
        let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(commands.len());
        let mut drafts = Vec::with_capacity(commands.len());
        for order in commands {
            let place = *places.entry(order.pair).or_insert(drafts.len());
            if place == drafts.len() {
                let key = self.namespace.of_pair(order.pair);
                drafts.push(Some(Draft::new(&script::EXECUTE, &[&key]).now(now)));
            }
            drafts[place] = drafts[place].take().map(|draft| write(draft, order.operation));
        }
        let replies = self.send(drafts.into_iter().flatten().map(Draft::finish).collect()).await;
        let mut found: Vec<_> = replies.into_iter().map(read).collect();
        let apply = |order: &QuotaCommand<'_>| match &mut found[places[order.pair]] {
            Ok((quota, now)) => Ok(quota.apply(order.operation, *now)),
            Err(error) => Err(error.clone()),
        };
        commands.iter().map(apply).collect()
    }
}

/// What to do, how, and three numbers.
fn write(draft: Draft, operation: QuotaOperation) -> Draft {
    match operation {
        QuotaOperation::Query => draft.arg("q").arg(&["", "", ""]),
        QuotaOperation::Purge => draft.arg("x").arg(&["", "", ""]),
        QuotaOperation::Insert { left, lifetime, over_live } => {
            let draft = draft.arg(if over_live { "i!" } else { "i" });
            draft.arg(left).arg(lifetime.nanos().get()).arg(lifetime.unit.0)
        }
        QuotaOperation::ChangeLeft { change, value } => {
            draft.arg(format!("c{}", sign(change))).arg(value).arg(&["", ""])
        }
        QuotaOperation::ChangeLifetime { change, value } => {
            // Only the quota knows its unit: so many of each.
            let in_units = |unit| QuotaTtl { value, unit: TtlUnit(unit) }.nanos().get();
            draft.arg(format!("l{}", sign(change))).arg(in_units(0)).arg(in_units(1)).arg(in_units(2))
        }
    }
}

const fn sign(change: Change) -> char {
    match change {
        Change::Patch => '=',
        Change::Increase => '+',
        Change::Decrease => '-',
    }
}

/// What there was before the first order.
fn read(reply: Reply) -> Result<(QuotaState, Timestamp), StoreError> {
    let mut answer = Answer::new(reply?)?;
    let now = answer.now()?;
    Ok((seen::read(&answer.value(), quota)?, now))
}
