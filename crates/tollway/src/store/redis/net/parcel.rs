//! Calls on their way to one node, in one write.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

use super::sheaf::Ticket;
use crate::store::redis::call::{Call, Script};

/// How many calls go in one write. Redis answers none of them before it has executed all that it read together: with two
/// writes under way it executes the one while we read the replies to the other.
pub(super) const PARCEL_CALLS: usize = 32;

/// One call, and who waits for its reply.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) call: Call,
    pub(super) ticket: Ticket,
    /// How often it has been sent and not executed.
    pub(super) attempts: u8,
    /// The node does not know its script, and gets it first.
    pub(super) with_script: bool,
    /// The node is to answer although the slot is not its own yet.
    pub(super) asking: bool,
}

/// Errands whose commands are in one pipeline.
#[derive(Debug)]
pub(super) struct Parcel {
    pipeline: Pipeline,
    /// How many commands come before those of the errands.
    scripts: usize,
    errands: Vec<Errand>,
}

impl Errand {
    pub(super) fn new(call: Call, ticket: Ticket) -> Self {
        Self { call, ticket, attempts: 0, with_script: false, asking: false }
    }
}

impl Parcel {
    /// Packs them, in their order.
    pub(super) fn pack(mut errands: Vec<Errand>) -> Self {
        let mut pipeline = Pipeline::with_capacity(errands.len());
        let scripts = missing_scripts(&errands);
        for script in &scripts {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(&script.source);
        }
        for errand in &mut errands {
            if errand.asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(errand.call.command.take());
        }
        Self { pipeline, scripts: scripts.len(), errands }
    }

    /// A sign of life, for which nobody waits.
    pub(super) fn ping() -> Self {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("PING");
        Self { pipeline, scripts: 0, errands: Vec::new() }
    }

    /// Sends it, and returns what came back.
    pub(super) async fn send(&self, mut connection: MultiplexedConnection) -> RedisResult<Vec<Value>> {
        let awaited = self.pipeline.len() - self.scripts;
        connection.send_packed_commands(&self.pipeline, self.scripts, awaited).await
    }

    /// Every errand with its reply. One whose reply is an error has its command again, to be repeated if need be.
    pub(super) fn unpack(self, replies: Vec<Value>) -> impl Iterator<Item = (Errand, Value)> {
        let Self { pipeline, scripts, errands } = self;
        let failed = replies.iter().any(|reply| matches!(reply, Value::ServerError(_)));
        let mut commands: Vec<Cmd> =
            if failed { pipeline.cmd_iter().skip(scripts).cloned().collect() } else { Vec::new() };
        let mut replies = replies.into_iter().enumerate();
        errands.into_iter().filter_map(move |mut errand| {
            let (position, reply) = replies.nth(errand.asking.into())?;
            if failed {
                errand.call.command = commands[position].take();
            }
            Some((errand, reply))
        })
    }

    /// The errands, when nothing came back.
    pub(super) fn into_errands(self) -> Vec<Errand> {
        self.errands
    }
}

/// The scripts that the node must get first, each once.
fn missing_scripts(errands: &[Errand]) -> Vec<&'static Script> {
    let mut scripts: Vec<&'static Script> = Vec::new();
    for script in errands.iter().filter(|errand| errand.with_script).filter_map(|errand| errand.call.script) {
        if !scripts.iter().any(|known| known.sha == script.sha) {
            scripts.push(script);
        }
    }
    scripts
}
