//! Sends the delays in force to subscribers that come, and reads those of a shared store once, at start. One worker
//! does it for all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, sleep};
use tollway_core::{Domain, ErrorChain};
use tracing::{info, warn};

use super::accounting::AccountingShared;
use crate::service::control_message;

/// The pause between reminders, which leaves time for other work: some two hundred thousand delays are sent a second.
const REMIND_EVERY: Duration = Duration::from_millis(10);
/// The interval at which delays that are over are dropped, and the number of parts each time: all in two seconds.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_PARTS: usize = 16;
/// The number of buckets of a shared store that are read in one call, and the pause between calls.
const RECALL_PAGE: usize = 4_096;
const RECALL_EVERY: Duration = Duration::from_millis(10);
/// The pause after a call to which the store gave no answer.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// The shortest time between two log lines about a store that stays unreachable.
const REMIND_LOG_EVERY: Duration = Duration::from_secs(60);

/// Reminds and recalls, for as long as it is polled.
pub(super) async fn remind_and_recall(shared: Arc<AccountingShared>) {
    tokio::join!(remind(&shared), recall_all(&shared));
}

async fn remind(shared: &AccountingShared) {
    let (publisher, metrics) = (&shared.master.publisher, &shared.worker.metrics.smockron);
    let mut sweep = interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut part, mut has_more) = (0_usize, false);
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                (0..SWEEP_PARTS).for_each(|next| publisher.sweep(part.wrapping_add(next)));
                part = part.wrapping_add(SWEEP_PARTS);
            }
            () = publisher.reminder_added(), if !has_more => has_more = publisher.remind_some(metrics),
            // A subscriber that does not read has more for as long as it is connected.
            () = sleep(REMIND_EVERY), if has_more => has_more = publisher.remind_some(metrics),
        }
    }
}

/// Publishes the delays in force in a shared store: those of a master that was here before, or of others.
async fn recall_all(shared: &AccountingShared) {
    if shared.worker.awaits_store() {
        let policy = shared.worker.shared.limiter.policy();
        for domain in policy.domains() {
            recall(shared, domain).await;
        }
    }
}

async fn recall(shared: &AccountingShared, domain: &Domain) {
    let mut from = 0;
    let mut outage = LoggedOutage::default();
    loop {
        match shared.worker.shared.limiter.delays(domain, from, RECALL_PAGE).await {
            Ok(page) => {
                if outage.ends() {
                    info!("the delays in force can be read from the store again");
                }
                let name = domain.name().as_bytes();
                let delays =
                    page.delays.iter().map(|delay| control_message(name, &delay.identifier, delay.until));
                shared.master.publisher.recall(delays.collect(), &shared.worker.metrics.smockron).await;
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
