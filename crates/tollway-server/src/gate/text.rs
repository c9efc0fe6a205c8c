//! The text protocol over UDP: receives what has arrived, answers all of it, sends at once.

use std::pin::pin;

use tollway_wire::text::encode;
use tracing::warn;

use super::Worker;
use crate::datagrams::{Datagrams, Inbox, Outbox};
use crate::occasion::Occasion;
use crate::service::TextService;

/// How often a drain looks for datagrams that had arrived when it began. A flood must not keep it.
const LAST_LOOKS: usize = 16;

/// Answers everybody until the server drains.
pub(super) async fn converse(datagrams: &Datagrams, worker: &Worker, service: TextService) {
    let mut conversation = Conversation { worker, service, inbox: Inbox::new(), outbox: Outbox::new() };
    let mut draining = pin!(worker.drain.clone().started());
    let mut trouble = Occasion::default();
    loop {
        tokio::select! {
            biased;
            () = &mut draining => break,
            received = datagrams.receive(&mut conversation.inbox) => match received {
                Ok(()) => conversation.answer(datagrams).await,
                Err(error) => {
                    worker.metrics.text.receive_errors.one();
                    if let Some(times) = trouble.now() {
                        warn!(%error, times, "text gate cannot receive datagrams");
                    }
                    tokio::task::yield_now().await;
                }
            },
        }
    }
    for _ in 0..LAST_LOOKS {
        if datagrams.receive_now(&mut conversation.inbox).is_err() {
            return;
        }
        conversation.answer(datagrams).await;
    }
}

struct Conversation<'w> {
    worker: &'w Worker,
    service: TextService,
    inbox: Inbox,
    outbox: Outbox,
}

impl Conversation<'_> {
    async fn answer(&mut self, datagrams: &Datagrams) {
        let Self { worker, service, inbox, outbox } = self;
        if worker.shared.echo {
            for (peer, datagram) in inbox.iter() {
                outbox.push(peer, |out| out.extend_from_slice(datagram));
            }
        } else {
            let answers = service
                .answer(inbox.iter(), |peer, id, reply| outbox.push(peer, |out| encode(id, reply, out)));
            answers.await;
        }
        if !outbox.is_empty() {
            let failed = datagrams.send(outbox).await;
            worker.metrics.text.send_errors.add(failed as u64);
        }
    }
}
