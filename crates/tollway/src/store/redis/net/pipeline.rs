//! A pipeline: the commands of several calls that go to one node in one write.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use super::pending::PendingCall;
use crate::store::redis::call::Script;

/// The number of calls in one write. Redis answers none of them before it has executed all that it read together: with
/// two writes in flight it executes one while we read the replies to the other.
pub(super) const PIPELINE_CALLS: usize = 32;

/// Commands in the order of their calls, and before them the scripts that the node does not know.
#[derive(Debug)]
pub(super) struct Pipeline {
    commands: redis::Pipeline,
    scripts: usize,
    /// The batch of each call, so that the simulator knows whose call a node has executed.
    #[cfg(feature = "simulation")]
    batches: Vec<u64>,
}

impl Pipeline {
    /// Takes the commands of the calls.
    pub(super) fn pack(calls: &mut [PendingCall]) -> Self {
        let mut commands = redis::Pipeline::with_capacity(calls.len());
        let scripts = missing_scripts(calls);
        for script in &scripts {
            commands.cmd("SCRIPT").arg("LOAD").arg(&script.source);
        }
        let scripts = scripts.len();
        #[cfg(feature = "simulation")]
        let batches = calls.iter().map(|call| call.slot.batch()).collect();
        for call in calls {
            if call.asking {
                commands.cmd("ASKING");
            }
            commands.add_command(call.call.command.take());
        }
        Self {
            commands,
            scripts,
            #[cfg(feature = "simulation")]
            batches,
        }
    }

    /// Makes a pipeline of one `PING`, whose reply nobody awaits.
    pub(super) fn ping() -> Self {
        let mut commands = redis::Pipeline::new();
        commands.cmd("PING");
        Self {
            commands,
            scripts: 0,
            #[cfg(feature = "simulation")]
            batches: Vec::new(),
        }
    }

    /// Returns the bytes of each command, and the batch of the call that it is for. Scripts and pings are for none.
    #[cfg(feature = "simulation")]
    pub(super) fn to_wire(&self) -> Vec<(Option<u64>, Vec<u8>)> {
        let batches = std::iter::repeat_n(None, self.scripts).chain(self.batches.iter().copied().map(Some));
        let batches = batches.chain(std::iter::repeat(None));
        batches
            .zip(self.commands.cmd_iter())
            .map(|(batch, command)| (batch, command.get_packed_command()))
            .collect()
    }

    /// Returns the number of replies that come before those to the calls.
    #[cfg(feature = "simulation")]
    pub(super) const fn scripts(&self) -> usize {
        self.scripts
    }

    /// Sends the commands, and returns the replies to the calls.
    pub(super) async fn send(&self, mut connection: MultiplexedConnection) -> RedisResult<Vec<Value>> {
        let awaited = self.commands.len() - self.scripts;
        connection.send_packed_commands(&self.commands, self.scripts, awaited).await
    }

    /// Returns each call with its reply. If a reply is an error, the calls have their commands again, to be repeated.
    pub(super) fn unpack(
        self,
        calls: Vec<PendingCall>,
        replies: Vec<Value>,
    ) -> impl Iterator<Item = (PendingCall, Value)> {
        let failed = replies.iter().any(|reply| matches!(reply, Value::ServerError(_)));
        let mut commands: Vec<_> = match failed {
            true => self.commands.cmd_iter().skip(self.scripts).cloned().collect(),
            false => Vec::new(),
        };
        let mut replies = replies.into_iter().enumerate();
        calls.into_iter().filter_map(move |mut call| {
            let (position, reply) = replies.nth(call.asking.into())?;
            if failed {
                call.call.command = commands[position].take();
            }
            Some((call, reply))
        })
    }
}

/// Returns the scripts that the node must load first, each once.
fn missing_scripts(calls: &[PendingCall]) -> Vec<&'static Script> {
    let mut scripts: Vec<&'static Script> = Vec::new();
    for script in calls.iter().filter(|call| call.with_script).filter_map(|call| call.call.script) {
        if !scripts.iter().any(|known| known.sha == script.sha) {
            scripts.push(script);
        }
    }
    scripts
}
