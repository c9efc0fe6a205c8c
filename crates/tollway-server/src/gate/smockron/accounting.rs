//! Where gatekeepers say what they let through: a SUB socket that binds, and subscribes to everything.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tollway_wire::zmtp::{SocketType, ZmtpEvent, encode_handshake, encode_pong, encode_subscription};

use super::peer::{Peer, all_said};
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
pub(in crate::gate) async fn account(mut stream: TcpStream, worker: &Worker) {
    let _ = keep_alive(&stream);
    let metrics = &worker.metrics;
    match run(&mut stream, worker).await {
        End::Closed => {}
        End::Broken => metrics.smockron.broken.one(),
        End::HalfAFrame => metrics.cut_frame.one(),
        End::Stalled => metrics.cut_write.one(),
    }
    // What it said before the end counts.
    if worker.drain.has_started() {
        worker.backlog.emptied().await;
    }
}

async fn run(stream: &mut TcpStream, worker: &Worker) -> End {
    let bounds = &worker.shared.bounds;
    let mut drain = pin!(worker.drain.clone().started());
    let mut draining = false;
    let mut patience = Patience::new(bounds.frame_time);
    let mut peer = Peer::new(SocketType::Sub);
    let mut replies = Vec::new();
    encode_handshake(SocketType::Sub, &mut replies);
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
        let hear = peer.hear(stream, worker, |conversation, inbox| {
            let (before, mut messages) = (conversation.clone(), 0);
            let heard = all_said(conversation, inbox, |said| match said {
                ZmtpEvent::Message(_) => messages += 1,
                other => reply(&other, &mut replies),
            });
            if !worker.backlog.put(before, &inbox[..heard.taken]) {
                worker.metrics.smockron.overload.add(messages);
            }
            heard
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
        if heard.broken {
            return End::Broken;
        }
        // Others want to be heard, too, and what they said is to be entered.
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

fn reply(said: &ZmtpEvent<'_>, replies: &mut Vec<u8>) {
    match said {
        // Only now: libzmq takes whatever comes before it is ready itself for part of the opening, and hangs up.
        ZmtpEvent::Ready => encode_subscription(b"", replies),
        ZmtpEvent::Ping(context) => encode_pong(context, replies),
        _ => {}
    }
}
