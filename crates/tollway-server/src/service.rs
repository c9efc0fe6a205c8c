//! Performs requests of any protocol on the engine, and counts and logs what was decided.
//!
//! It turns decoded requests into answers, and awaits the engine and nothing else.

mod counted_policy;
mod decided;
mod inspect;
mod resp;
mod rls;
mod rules;
mod smockron;
mod tapped;
mod text;
mod throttr;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollway::engine::{Engine, VerbAnswer};
use tollway::limiter::LimiterError;
use tollway_core::{ChargeRequest, RuleRequest, Verb};

pub(crate) use self::counted_policy::CountedPolicy;
pub(crate) use self::resp::{RespAnswered, RespConnection, RespNext, RespScratch, RespService, RespSettings};
pub(crate) use self::rls::RlsError;
pub(crate) use self::smockron::{SmockronService, control_message};
pub(crate) use self::text::TextService;
pub(crate) use self::throttr::ThrottrService;
use crate::metrics::WorkerMetrics;
use crate::tap::Tap;
use crate::watch::Watch;

/// Connects one worker's gates with the engine.
pub(crate) struct Service {
    limiter: Arc<Engine>,
    metrics: Arc<WorkerMetrics>,
    policy: ArcSwap<CountedPolicy>,
    watch: Arc<Watch>,
    tap: Arc<Tap>,
    /// The index of the worker, among those that are watched.
    worker: usize,
}

impl Service {
    pub(crate) fn new(
        limiter: Arc<Engine>,
        metrics: Arc<WorkerMetrics>,
        watch: Arc<Watch>,
        tap: Arc<Tap>,
        worker: usize,
    ) -> Self {
        let policy = CountedPolicy::new(limiter.policy(), &metrics, watch.subjects());
        Self { limiter, metrics, policy: ArcSwap::from_pointee(policy), watch, tap, worker }
    }

    /// Returns the engine's current policy, with this worker's counters. Call it once for all requests that arrived
    /// together.
    pub(crate) fn policy(&self) -> Arc<CountedPolicy> {
        let current = self.limiter.policy();
        let counted = self.policy.load();
        if Arc::ptr_eq(counted.policy(), &current) {
            return Arc::clone(&counted);
        }
        let counted = Arc::new(CountedPolicy::new(current, &self.metrics, self.watch.subjects()));
        self.policy.store(Arc::clone(&counted));
        counted
    }

    /// Performs a verb for a gate, and counts and logs the answer.
    pub(crate) async fn perform<'a>(
        &self,
        gate: &'static str,
        policy: &'a CountedPolicy,
        verb: Verb,
        charges: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<VerbAnswer<'a>, LimiterError> {
        let answer = if self.is_recorded(policy, charges, rules) {
            self.perform_recorded(policy, verb, charges, rules).await?
        } else {
            self.limiter.perform(policy.policy(), verb, charges, rules).await?
        };
        let mut decided = self.decided(gate, policy);
        decided.answer(verb, &answer, rules);
        decided.finish();
        Ok(answer)
    }
}
