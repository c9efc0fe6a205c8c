//! Runs quota commands in Redis.

use std::collections::HashMap;

use tollway_core::Timestamp;
use tollway_core::algorithm::{
    Change, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaState, QuotaTtl, TtlUnit,
};

use super::net::Reply;
use super::reply::ScriptReply;
use super::script::{self, CallBuilder};
use super::seen::{self, quota};
use super::{Redis, StoreError};

impl Redis {
    /// Runs the quota commands in one pipeline; commands for one pair are one call, and so keep their command. The time
    /// is that of Redis unless it is given.
    pub async fn run_quota_commands(
        &self,
        commands: &[QuotaCommand<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<QuotaOutcome, StoreError>> {
        let mut places: HashMap<&[u8], usize> = HashMap::with_capacity(commands.len());
        let mut drafts = Vec::with_capacity(commands.len());
        for command in commands {
            let place = *places.entry(command.pair).or_insert(drafts.len());
            if place == drafts.len() {
                let key = self.namespace.of_pair(command.pair);
                drafts.push(Some(CallBuilder::new(&script::QUOTA_COMMANDS, &[&key]).now(now)));
            }
            drafts[place] = drafts[place].take().map(|draft| write(draft, command));
        }
        let replies = self.send(drafts.into_iter().flatten().map(CallBuilder::finish).collect()).await;
        let mut found: Vec<_> = replies.into_iter().map(read).collect();
        let apply = |command: &QuotaCommand<'_>| match &mut found[places[command.pair]] {
            Ok((quota, now)) => Ok(quota.apply(command.operation, command.ttl_max, *now)),
            Err(error) => Err(error.clone()),
        };
        commands.iter().map(apply).collect()
    }
}

/// Adds the longest lifetime, the name of an operation, and three numbers.
fn write(draft: CallBuilder, command: &QuotaCommand<'_>) -> CallBuilder {
    let draft = draft.arg(command.ttl_max.get());
    match command.operation {
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
            // Only the quota knows its unit, so the value is sent in each.
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

/// Parses the quota before the first command, and the time.
fn read(reply: Reply) -> Result<(QuotaState, Timestamp), StoreError> {
    let mut answer = ScriptReply::new(reply?)?;
    let now = answer.now()?;
    Ok((seen::read(&answer.value(), quota)?, now))
}
