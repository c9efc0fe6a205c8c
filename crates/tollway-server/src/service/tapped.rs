//! Makes decisions that are recorded. [`Tap`](crate::tap::Tap) says why they are made under its lock.

use std::slice;

use tollway::block_on;
use tollway::engine::{Charges, Engine, VerbAnswer};
use tollway::limiter::LimiterError;
use tollway::store::StoreError;
use tollway_core::algorithm::{QuotaCommand, QuotaOutcome};
use tollway_core::descriptor::{DescriptorBill, DescriptorOutcome, RateLimitRequest};
use tollway_core::rule::RuleBill;
use tollway_core::{Bill, Charge, ChargeRequest, Decision, Refund, RuleDecision, RuleRequest, Verb};
use tollway_wire::rls::put_trace_json;

use super::rls::respond;
use super::throttr::answered_requests;
use super::{CountedPolicy, Service};
use crate::tap::TapGuard;

impl Service {
    /// Returns whether an answer is recorded, at least in part. While nobody records, it only reads a number.
    #[inline]
    pub(super) fn is_recorded(
        &self,
        policy: &CountedPolicy,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> bool {
        let Some(sample) = self.tap.sample() else { return false };
        let is_in = |request: &ChargeRequest<'_>| {
            let charge = policy.policy().bucket_request(request);
            charge.is_ok_and(|charge| sample.has(charge.id()))
        };
        charges.iter().any(is_in) || rules.iter().any(|rule| sample.has_rule(rule))
    }

    /// Decides, records, and waits until what was decided is on the disk, if it must be. With a store of its own, the
    /// server decides under the lock of the tap, at its time. A shared store has its own time and order, and nobody may
    /// wait for it under a lock: it decides before.
    pub(super) async fn decide<T>(
        &self,
        decide: impl AsyncFnOnce(&Engine) -> T,
        record: impl FnOnce(&mut TapGuard<'_>, &T),
    ) -> T {
        let decided = if self.limiter.is_shared() {
            let decided = decide(&self.limiter).await;
            record(&mut self.tap.begin(), &decided);
            decided
        } else {
            let mut tap = self.tap.begin();
            let decided = block_on(decide(tap.engine().unwrap_or(&self.limiter)));
            record(&mut tap, &decided);
            decided
        };
        self.limiter.until_kept().await;
        decided
    }

    /// Performs a verb, and records the answer.
    pub(super) async fn perform_recorded<'a>(
        &self,
        policy: &'a CountedPolicy,
        verb: Verb,
        charges: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<VerbAnswer<'a>, LimiterError> {
        let perform = async |engine: &Engine| engine.perform(policy.policy(), verb, charges, rules).await;
        self.decide(perform, |tap, answer| {
            if let Ok(answer) = answer {
                tap.answer(policy.policy(), verb, answer, rules);
            }
        })
        .await
    }

    /// Settles a batch of bills of one charge each, and records those decisions that are in the sample.
    #[inline]
    pub(super) async fn settle_charges(
        &self,
        policy: &CountedPolicy,
        charges: &[Charge<'_>],
        bills: &[Bill<'_>],
        decisions: &mut Vec<Decision>,
    ) {
        let is_recorded =
            self.tap.sample().is_some_and(|sample| charges.iter().any(|charge| sample.has(charge.id())));
        if !is_recorded {
            return self.limiter.settle_into(bills, decisions).await;
        }
        let settle = async move |engine: &Engine| {
            engine.settle_into(bills, decisions).await;
            decisions
        };
        self.decide(settle, |tap, decisions| {
            let decided = charges.iter().zip(&**decisions);
            decided.for_each(|(charge, decision)| tap.spend(policy.policy(), charge, decision));
        })
        .await;
    }

    /// Gives back what a charge cost, and records it if its id is in the sample.
    pub(super) async fn refund_charge(
        &self,
        policy: &CountedPolicy,
        charge: &Charge<'_>,
    ) -> Result<Refund, StoreError> {
        let charges = slice::from_ref(charge);
        if !self.tap.sample().is_some_and(|sample| sample.has(charge.id())) {
            return self.limiter.refund_charges(charges).await;
        }
        let refund = async |engine: &Engine| engine.refund_charges(charges).await;
        self.decide(refund, |tap, refund| {
            if let Ok(refund) = refund {
                let answer = VerbAnswer::Refund(Charges::One(charge.clone()), *refund);
                tap.answer(policy.policy(), Verb::Refund, &answer, &[]);
            }
        })
        .await
    }

    /// Forgets the buckets of these charges, and records it if some are in the sample.
    pub(super) async fn reset_charges(
        &self,
        policy: &CountedPolicy,
        charges: &[Charge<'_>],
    ) -> Result<(), StoreError> {
        let is_recorded =
            self.tap.sample().is_some_and(|sample| charges.iter().any(|charge| sample.has(charge.id())));
        if !is_recorded {
            return self.limiter.reset_charges(charges).await;
        }
        let reset = async |engine: &Engine| engine.reset_charges(charges).await;
        self.decide(reset, |tap, reset| {
            if reset.is_ok() {
                let answer = VerbAnswer::Reset(Charges::Many(charges.to_vec()));
                tap.answer(policy.policy(), Verb::Reset, &answer, &[]);
            }
        })
        .await
    }

    /// Runs the Throttr requests of a batch, and records those that are in the sample with their replies. `requests`
    /// has the same requests as bytes.
    #[inline]
    pub(super) async fn run_quota_commands(
        &self,
        commands: &[QuotaCommand<'_>],
        requests: &[u8],
        outcomes: &mut Vec<QuotaOutcome>,
    ) {
        let is_recorded =
            self.tap.sample().is_some_and(|sample| commands.iter().any(|command| sample.has(command.pair)));
        if !is_recorded {
            return self.limiter.run_quota_commands(commands, outcomes).await;
        }
        let run = async move |engine: &Engine| {
            engine.run_quota_commands(commands, outcomes).await;
            outcomes
        };
        self.decide(run, |tap, outcomes| {
            // Not before: a policy that was replaced meanwhile would be recorded as a reload back to it.
            let policy = self.limiter.policy();
            answered_requests(requests, outcomes)
                .for_each(|(request, reply)| tap.throttr(&policy, &request, &reply));
        })
        .await;
    }

    /// Decides a request to Envoy's service, and records it if it is in the sample.
    pub(super) async fn settle_descriptors(
        &self,
        policy: &CountedPolicy,
        request: &RateLimitRequest<'_>,
        bill: &DescriptorBill<'_>,
    ) -> Result<DescriptorOutcome, LimiterError> {
        if !self.tap.sample().is_some_and(|sample| sample.has_bill(request, bill)) {
            return self.limiter.settle_descriptors(bill).await;
        }
        let settle = async |engine: &Engine| engine.settle_descriptors(bill).await;
        self.decide(settle, |tap, outcome| match outcome {
            Ok(outcome) => {
                let reply = trace_reply(bill, outcome);
                tap.rls(policy.policy(), request, bill, outcome, reply.as_deref());
            }
            Err(LimiterError::Store(_)) => self.tap.skip(1),
            // A mistake of the client is no decision.
            Err(_) => {}
        })
        .await
    }

    /// Decides by a rule, and records the decision if it is in the sample.
    pub(super) async fn resolve_bill(
        &self,
        policy: &CountedPolicy,
        request: impl FnOnce() -> RuleRequest<'static>,
        bill: &RuleBill<'_>,
    ) -> RuleDecision {
        let request = self.tap.sample().map(|sample| (sample, request()));
        let Some((_, request)) = request.filter(|(sample, request)| sample.has_rule(request)) else {
            return self.limiter.resolve(bill).await;
        };
        let resolve = async |engine: &Engine| engine.resolve(bill).await;
        self.decide(resolve, |tap, decision| tap.rule(policy.policy(), &request, decision)).await
    }
}

/// Returns the reply to a request to Envoy's service in the form of traces; `None` if the store did not decide.
fn trace_reply(bill: &DescriptorBill<'_>, outcome: &DescriptorOutcome) -> Option<String> {
    let DescriptorOutcome { decision, charges, refunds, .. } = outcome;
    if decision.degraded || charges.iter().any(|of_charge| of_charge.degraded) || refunds.contains(&None) {
        return None;
    }
    let mut json = Vec::new();
    respond(bill, &bill.charges(), outcome, |response| put_trace_json(&mut json, response));
    String::from_utf8(json).ok()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use tollway::config::{ShowIds, WatchSettings};
    use tollway::{Clock, Config};
    use tollway_core::Nanos;
    use tollway_core::algorithm::QuotaOperation;
    use tollway_testbed::RedisServer;
    use tollway_wire::http::{RecordQuery, RecordedIds};

    use super::*;
    use crate::audit::Auditor;
    use crate::metrics::WorkerMetrics;
    use crate::tap::Tap;
    use crate::watch::Watch;

    #[test]
    fn a_quota_command_that_waits_during_a_reload_is_recorded_after_it() {
        let redis = RedisServer::start();
        let config = |limit: &str| {
            let text =
                format!("limits: {{ {limit}: {{ rate: 1/s }} }}\nstore: {}?deadline=30s\n", redis.url());
            Config::parse(&text, "policy.yaml").unwrap()
        };
        let limiter = Arc::new(Engine::open(config("Old"), Clock::monotonic()).unwrap());
        let watch = Arc::new(Watch::new(WatchSettings::DEFAULT, 1));
        let tap = Arc::new(Tap::new(Arc::clone(&limiter), 1));
        let service = Service::new(
            Arc::clone(&limiter),
            Arc::new(WorkerMetrics::default()),
            Arc::clone(&watch),
            Arc::clone(&tap),
            Auditor::new(Arc::default(), Arc::clone(&limiter), watch),
            0,
        );
        let (mut output, context) = (Vec::new(), &mut Context::from_waker(Waker::noop()));
        let query = RecordQuery { sample: 1, ids: RecordedIds::Plain };
        let mut recorder = tap.join(&query, ShowIds::Plain, &mut output).unwrap();

        let pair = b"\x01\x01cr";
        let commands = [QuotaCommand { pair, operation: QuotaOperation::Query, ttl_max: Nanos::FOREVER }];
        let (request, mut outcomes) = (b"\x02\x02\0\0\0\x01\x01cr", Vec::new());
        redis.freeze();
        {
            let mut run = pin!(service.run_quota_commands(&commands, request, &mut outcomes));
            assert!(run.as_mut().poll(context).is_pending());
            limiter.reload(config("New").policy);
            redis.thaw();
            block_on(run);
        }
        while recorder.poll_take(context, &mut output).is_ready() {}
        let text = String::from_utf8(output).unwrap();
        let places = ["\"Old\"", "\"New\"", "  throttr  "].map(|part| text.find(part));
        assert!(places.is_sorted() && places[0].is_some(), "{text}");
    }
}
