//! Where gatekeepers say what they let through: a SUB socket that binds, and subscribes to everything.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate::waiting::block_on;
use tollgate_wire::zmtp::{Conversation, Said, SocketType, encode_opening, encode_pong, encode_subscription};

use super::peer::{Heard, Peer, all_said};
use super::{End, keep_alive};
use crate::gate::Worker;
use crate::gate::patience::{OutOfPatience, Patience};

/// Silence is no reason to part: the system notices who is gone.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

impl From<OutOfPatience> for End {
    fn from(error: OutOfPatience) -> Self {
        match error {
            OutOfPatience::TooSlow => Self::Stalled,
            OutOfPatience::Failed => Self::Closed,
        }
    }
}

/// Listens to one gatekeeper until it hangs up, breaks the protocol, or the server drains.
pub(in crate::gate) async fn account(mut stream: TcpStream, worker: &Arc<Worker>) {
    let _ = keep_alive(&stream);
    let metrics = &worker.metrics;
    let mut waiting = JoinSet::new();
    match run(&mut stream, worker, &mut waiting).await {
        End::Closed => {}
        End::Broken => metrics.smockron.broken.one(),
        End::HalfAFrame => metrics.cut_frame.one(),
        End::Stalled => metrics.cut_write.one(),
    }
    // What it said before it went away counts.
    while waiting.join_next().await.is_some() {}
}

async fn run(stream: &mut TcpStream, worker: &Arc<Worker>, waiting: &mut JoinSet<()>) -> End {
    let bounds = &worker.shared.bounds;
    let mut drain = pin!(worker.drain.clone().started());
    let mut draining = false;
    let mut patience = Patience::new(bounds.frame_time);
    let mut peer = Peer::new(SocketType::Sub);
    let mut replies = Vec::new();
    encode_opening(SocketType::Sub, &mut replies);
    let mut until = Instant::now() + bounds.frame_time;
    loop {
        if !replies.is_empty() {
            let until = Instant::now() + bounds.write_time;
            if let Err(error) = patience.write(until, stream.write_all(&replies)).await {
                return error.into();
            }
            replies = Vec::new();
        }
        let was_awaited = peer.is_awaited();
        let mut arrived = Vec::new();
        let hear = peer.hear(stream, worker, |conversation, inbox| {
            if worker.smockron.waits() {
                arrived.push((conversation.clone(), inbox.to_vec()));
                all_said(conversation, inbox, |said| reply(&said, &mut replies))
            } else {
                enter(worker, conversation, inbox, &mut replies)
            }
        });
        let heard = match patience.read(until, hear, (!draining).then_some(drain.as_mut())).await {
            Ok(Some(Some(heard))) => heard,
            Ok(Some(None)) | Err(OutOfPatience::Failed) => return End::Closed,
            Ok(None) => {
                // What is on its way counts, but a gatekeeper never ends by itself.
                draining = true;
                until = Instant::now() + bounds.drain_idle;
                continue;
            }
            Err(OutOfPatience::TooSlow) if draining => return End::Closed,
            Err(OutOfPatience::TooSlow) => return End::HalfAFrame,
        };
        for (conversation, inbox) in arrived {
            enter_later(worker, conversation, inbox, waiting);
        }
        if heard.broken {
            return End::Broken;
        }
        // What was published meanwhile must leave, or mailboxes would be full before anybody could read.
        tokio::task::yield_now().await;
        if draining {
            if Instant::now() >= until {
                return End::Closed;
            }
        } else if !peer.is_awaited() {
            until = Instant::now() + FOR_EVER;
        } else if !was_awaited {
            // Only when another message begins: every byte would else earn another deadline.
            until = Instant::now() + bounds.frame_time;
        }
    }
}

/// Enters all that was said, at once.
fn enter(worker: &Worker, conversation: &mut Conversation, inbox: &[u8], replies: &mut Vec<u8>) -> Heard {
    let mut messages = Vec::new();
    let heard = all_said(conversation, inbox, |said| match said {
        Said::Message(frames) => messages.push(frames),
        other => reply(&other, replies),
    });
    block_on(worker.smockron.account(messages));
    heard
}

/// Has it entered while more is read, if there is room: what does not fit is dropped, for delays that come late help nobody.
fn enter_later(
    worker: &Arc<Worker>,
    mut conversation: Conversation,
    inbox: Vec<u8>,
    waiting: &mut JoinSet<()>,
) {
    while waiting.try_join_next().is_some() {}
    let size = u32::try_from(inbox.len()).unwrap_or(u32::MAX);
    let Ok(room) = Arc::clone(&worker.accounting).try_acquire_many_owned(size) else {
        let mut messages = 0;
        all_said(&mut conversation, &inbox, |said| messages += u64::from(matches!(said, Said::Message(_))));
        worker.metrics.smockron.overload.add(messages);
        return;
    };
    let worker = Arc::clone(worker);
    waiting.spawn(async move {
        let mut messages = Vec::new();
        all_said(&mut conversation, &inbox, |said| {
            if let Said::Message(frames) = said {
                messages.push(frames);
            }
        });
        worker.smockron.account(messages).await;
        drop(room);
    });
}

fn reply(said: &Said<'_>, replies: &mut Vec<u8>) {
    match said {
        // Only now: libzmq takes whatever comes before it is ready itself for part of the opening, and hangs up.
        Said::Ready => encode_subscription(b"", replies),
        Said::Ping(context) => encode_pong(context, replies),
        _ => {}
    }
}
