//! What is done for all gatekeepers together, by one worker.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, sleep};
use tollway_core::{Domain, ErrorChain};
use tracing::{info, warn};

use crate::gate::Worker;
use crate::service::control;

/// Between the reminders of delays that hold: at most some two hundred thousand a second, and the workers do other things.
const REMIND_EVERY: Duration = Duration::from_millis(10);
/// How often delays that are over are forgotten, and how much of them is looked through each time: all in two seconds.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_PARTS: usize = 16;
/// How many buckets of a shared store are looked at in one call, and how long it is left alone in between.
const RECALL_PAGE: usize = 4_096;
const RECALL_EVERY: Duration = Duration::from_millis(10);
/// How long a store that does not answer is left alone.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// The shortest time between two log lines about a store that stays unreachable.
const REMIND_LOG_EVERY: Duration = Duration::from_secs(60);

/// Reminds, forgets, and recalls, until the server drains.
pub(in crate::gate) async fn keep(worker: &Worker) {
    tokio::select! {
        () = remind(worker) => {}
        () = async {
            recall_all(worker).await;
            std::future::pending().await
        } => {}
        () = worker.drain.clone().started() => {}
    }
}

/// Tells gatekeepers that come which delays hold already, and forgets those that are over.
async fn remind(worker: &Worker) {
    let hub = worker.smockron.hub();
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut part = 0_usize;
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                let now = now(worker);
                (0..SWEEP_PARTS).for_each(|next| hub.sweep(part.wrapping_add(next), now));
                part = part.wrapping_add(SWEEP_PARTS);
            }
            () = hub.newcomer() => {
                while hub.remind_some(now(worker), &worker.metrics.smockron) {
                    sleep(REMIND_EVERY).await;
                }
            }
        }
    }
}

/// Publishes the delays that hold in a shared store: those of a master that was here before, or of others.
async fn recall_all(worker: &Worker) {
    if worker.smockron.waits() {
        let policy = worker.shared.limiter.policy();
        for domain in policy.domains() {
            recall(worker, domain).await;
        }
    }
}

async fn recall(worker: &Worker, domain: &Domain) {
    let mut from = 0;
    let mut outage = LoggedOutage::default();
    loop {
        match worker.shared.limiter.delays(domain, from, RECALL_PAGE).await {
            Ok(page) => {
                if outage.ends() {
                    info!("the delays in force can be read from the store again");
                }
                let name = domain.name().as_bytes();
                let controls = page.delays.iter().map(|delay| control(name, &delay.identifier, delay.until));
                worker.smockron.hub().recall(controls.collect(), &worker.metrics.smockron);
                let Some(next) = page.next else { return };
                from = next;
                sleep(RECALL_EVERY).await;
            }
            Err(error) => {
                if outage.is_worth_a_line(Instant::now()) {
                    warn!(error = %ErrorChain(&error), "cannot read the delays in force from the store; trying again");
                }
                sleep(STORE_RETRY).await;
            }
        }
    }
}

/// In milliseconds since 1970.
fn now(worker: &Worker) -> u64 {
    worker.shared.limiter.clock().now().as_nanos() / 1_000_000
}

/// An outage of the store that the log tells once when it begins and once when it ends, with a reminder a minute.
#[derive(Debug, Default)]
struct LoggedOutage {
    logged: Option<Instant>,
}

impl LoggedOutage {
    /// Notes a failure, and returns true if the log should tell.
    fn is_worth_a_line(&mut self, now: Instant) -> bool {
        let tells = self.logged.is_none_or(|logged| now - logged >= REMIND_LOG_EVERY);
        if tells {
            self.logged = Some(now);
        }
        tells
    }

    /// Notes a success, and returns true if an outage ends with it.
    fn ends(&mut self) -> bool {
        self.logged.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_and_ends_and_once_a_minute() {
        let (mut outage, began) = (LoggedOutage::default(), Instant::now());
        let lines = (0..150).filter(|second| outage.is_worth_a_line(began + STORE_RETRY * *second));
        assert_eq!(lines.collect::<Vec<_>>(), [0, 60, 120]);
        assert!(outage.ends() && !outage.ends());
        assert!(outage.is_worth_a_line(began + STORE_RETRY * 151), "the next outage");
    }
}
