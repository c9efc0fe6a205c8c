//! Commands of operators, which may take seconds: how many keys there are, and which.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Reply;
use super::node::NodeId;
use crate::cause::Cause;
use crate::store::redis::{Address, StoreError};

/// The longest time for the answers of all primaries together.
pub(super) const ADMIN_MAX: Duration = Duration::from_secs(5);

/// A command that goes to one primary, or to all of them.
#[derive(Debug)]
pub(super) struct AdminCommand {
    pub(super) command: Cmd,
    /// The place of the only primary that gets the command; `None` is all of them.
    pub(super) only: Option<usize>,
    pub(super) until: Instant,
    pub(super) reply: oneshot::Sender<Vec<Reply>>,
}

/// The commands that wait until it is known which primaries there are, and whether they are reachable.
#[derive(Debug, Default)]
pub(super) struct AdminCommands(Vec<AdminCommand>);

impl AdminCommands {
    pub(super) fn push(&mut self, command: AdminCommand) {
        self.0.push(command);
    }

    /// Returns each command that can begin, with the primaries that it is for.
    pub(super) fn ready(&mut self, primaries: Option<&[NodeId]>) -> Vec<(AdminCommand, Vec<NodeId>)> {
        let Some(primaries) = primaries else { return Vec::new() };
        let addressed = |command: AdminCommand| {
            let only = command.only.map(|nth| primaries.get(nth).copied().into_iter().collect());
            (command, only.unwrap_or_else(|| primaries.to_vec()))
        };
        self.0.drain(..).map(addressed).collect()
    }

    /// Returns the time when the first command is given up.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.0.iter().map(|command| command.until).min()
    }

    /// Answers the commands that have waited long enough with `error`.
    pub(super) fn give_up(&mut self, now: Instant, error: impl Fn() -> StoreError) {
        for command in self.0.extract_if(.., |command| command.until <= now) {
            // The caller may have gone.
            let _ = command.reply.send(vec![Err(error())]);
        }
    }
}

impl AdminCommand {
    /// Sends the command to one primary after the other, and gives the caller the replies.
    pub(super) async fn run(self, primaries: Vec<(Address, Option<MultiplexedConnection>)>) {
        let mut replies = Vec::with_capacity(primaries.len());
        for (address, connection) in primaries {
            let address = address.to_string();
            replies.push(match connection {
                Some(connection) => self.run_on(address, connection).await,
                None => Err(StoreError::CircuitOpen { address }),
            });
        }
        // The caller may have gone.
        let _ = self.reply.send(replies);
    }

    async fn run_on(&self, address: String, mut connection: MultiplexedConnection) -> Reply {
        match timeout_at(self.until, connection.send_packed_command(&self.command)).await {
            Ok(Ok(Value::ServerError(error))) => {
                Err(StoreError::Refused { address, reason: error.to_string() })
            }
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(StoreError::Unreachable { address, source: Cause::new(error) }),
            Err(_) => Err(StoreError::TimedOut { address, waited: ADMIN_MAX }),
        }
    }
}
