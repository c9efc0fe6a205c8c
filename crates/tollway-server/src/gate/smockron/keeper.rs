//! What is done for all gatekeepers together, by one worker.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, sleep};
use tollway_core::{Domain, ErrorChain};
use tracing::warn;

use crate::gate::Worker;
use crate::occasion::Occasion;
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
    let mut trouble = Occasion::default();
    loop {
        match worker.shared.limiter.delays(domain, from, RECALL_PAGE).await {
            Ok(page) => {
                let name = domain.name().as_bytes();
                let controls = page.delays.iter().map(|delay| control(name, &delay.identifier, delay.until));
                worker.smockron.hub().recall(controls.collect(), &worker.metrics.smockron);
                let Some(next) = page.next else { return };
                from = next;
                sleep(RECALL_EVERY).await;
            }
            Err(error) => {
                if let Some(times) = trouble.now() {
                    warn!(error = %ErrorChain(&error), times, "cannot read the delays in force from the store");
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
