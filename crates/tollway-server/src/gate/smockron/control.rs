//! Where gatekeepers hear whom to delay: a PUB socket that binds.

use std::io;
use std::pin::pin;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::time::sleep_until;
use tollway_wire::zmtp::{SocketType, ZmtpEvent, encode_handshake, encode_pong};

use super::peer::{Heard, Peer, all_said};
use super::{End, keep_alive};
use crate::gate::Worker;
use crate::service::Subscription;

/// Tells one gatekeeper what it wants to hear until it hangs up, breaks the protocol, or the server drains.
pub(in crate::gate) async fn control(stream: TcpStream, worker: &Worker) {
    let _ = keep_alive(&stream);
    let metrics = &worker.metrics;
    let mut subscription = worker.smockron.hub().join();
    match run(&stream, worker, &mut subscription).await {
        End::Closed => {}
        End::Broken => metrics.smockron.broken.one(),
        End::HalfAFrame => metrics.cut_frame.one(),
        End::Stalled => metrics.cut_write.one(),
    }
}

async fn run(stream: &TcpStream, worker: &Worker, subscription: &mut Subscription) -> End {
    let bounds = &worker.shared.bounds;
    let mut drain = pin!(worker.drain.clone().started());
    let mut peer = Peer::new(SocketType::Pub);
    let mut opening = Vec::new();
    encode_handshake(SocketType::Pub, &mut opening);
    subscription.reply(&opening);
    let mut awaited_until = Instant::now() + bounds.frame_time;
    loop {
        let was_awaited = peer.is_awaited();
        let unsent = !subscription.unsent().is_empty();
        tokio::select! {
            written = stream.writable(), if unsent => match written.and_then(|()| send(stream, subscription)) {
                Ok(()) => {}
                Err(_) => return End::Closed,
            },
            () = subscription.mail(), if !unsent => {}
            heard = peer.hear(stream, worker, |conversation, inbox| {
                all_said(conversation, inbox, |said| answer(&said, subscription, worker))
            }) => match heard {
                Ok(Some(Heard { broken: false, .. })) => {
                    if !was_awaited {
                        awaited_until = Instant::now() + bounds.frame_time;
                    }
                }
                Ok(Some(_)) => return End::Broken,
                Ok(None) | Err(_) => return End::Closed,
            },
            () = sleep_until(awaited_until.into()), if was_awaited => return End::HalfAFrame,
            () = &mut drain => break,
        }
    }
    // What was accounted for when the drain began is published by then. Who has no room now has had his chance.
    tokio::time::sleep(2 * bounds.drain_idle).await;
    while !subscription.unsent().is_empty() && send(stream, subscription).is_ok_and(|()| true) {
        tokio::task::yield_now().await;
    }
    End::Closed
}

fn send(stream: &TcpStream, subscription: &mut Subscription) -> io::Result<()> {
    match stream.try_write(subscription.unsent()) {
        Ok(sent) => {
            subscription.advance(sent);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

fn answer(said: &ZmtpEvent<'_>, subscription: &Subscription, worker: &Worker) {
    match said {
        ZmtpEvent::Subscribe(topic) => {
            let refused = !subscription.subscribe(topic);
            worker.metrics.smockron.topics_refused.add(u64::from(refused));
        }
        ZmtpEvent::Cancel(topic) => subscription.cancel(topic),
        ZmtpEvent::Ping(context) => {
            let mut pong = Vec::new();
            encode_pong(context, &mut pong);
            subscription.reply(&pong);
        }
        // A publisher is told nothing else that matters.
        ZmtpEvent::Greeting | ZmtpEvent::Ready | ZmtpEvent::Message(_) | ZmtpEvent::Ignored => {}
    }
}
