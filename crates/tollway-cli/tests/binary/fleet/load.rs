//! Clients that send on schedule, whatever becomes of what they sent.

use std::time::{Duration, Instant};

use hyper::Request;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::members::{Fleet, RATE};
use crate::upstream::full;

/// The one that sends ten times of what it may.
pub(crate) const GREEDY: &str = "greedy";

/// Others send less than they may.
const QUIET: [&str; 4] = ["ann", "ben", "cleo", "dan"];

/// One request, as its client saw it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) client: &'static str,
    pub(crate) at: Instant,
    /// The status, or what went wrong.
    pub(crate) answer: Result<u16, String>,
}

/// Everybody, sending.
pub(crate) struct Load {
    clients: JoinSet<Vec<Sent>>,
    enough: watch::Sender<bool>,
}

impl Load {
    /// Connects everybody, and then lets them send.
    pub(crate) async fn start(fleet: &Fleet) -> Self {
        let (enough, ends) = watch::channel(false);
        let mut clients = vec![client(fleet, GREEDY, RATE * 10, ends.clone()).await];
        for name in QUIET {
            clients.push(client(fleet, name, RATE / 2, ends.clone()).await);
        }
        Self { clients: JoinSet::from_iter(clients), enough }
    }

    /// Stops sending, and returns all requests when they have been answered.
    pub(crate) async fn end(self) -> Vec<Sent> {
        self.enough.send_replace(true);
        self.clients.join_all().await.concat()
    }
}

/// One client, who goes from gatekeeper to gatekeeper.
async fn client(
    fleet: &Fleet,
    name: &'static str,
    per_second: u32,
    ends: watch::Receiver<bool>,
) -> impl Future<Output = Vec<Sent>> + use<> {
    let mut guards = Vec::new();
    for guard in &fleet.guards {
        guards.push(guard.http2().await);
    }
    async move {
        let mut ticks = interval(Duration::from_secs(1) / per_second);
        if per_second < RATE {
            // On a machine that stalls, to catch up would be to hurry.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        }
        let mut requests = JoinSet::new();
        let mut number = 0;
        while !*ends.borrow() {
            ticks.tick().await;
            let guard = number % guards.len();
            let request = Request::get("http://service/")
                .header("x-client", name)
                .header("x-guard", guard)
                .header("x-number", number)
                .body(full(""));
            let at = Instant::now();
            // It is on its way before it is awaited.
            let answered = guards[guard].send_request(request.unwrap());
            requests.spawn(async move {
                let answer = answered.await.map(|response| response.status().as_u16());
                Sent { client: name, at, answer: answer.map_err(|error| format!("{error:?}")) }
            });
            number += 1;
        }
        requests.join_all().await
    }
}
