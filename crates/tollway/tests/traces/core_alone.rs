//! The core with nothing around it: a plain map of buckets, and every bill settled step by step.

use std::collections::HashMap;
use std::slice;

use tollway::config::Config;
use tollway::core::Verb;
use tollway::core::algorithm::{
    Bucket, FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState,
};
use tollway::core::rule::Retention;
use tollway::core::{
    Algorithm, Bill, BillError, Charge, ChargeKind, Decision, ErrorChain, Policy, Refund, RuleBill,
    RuleDecision, RuleLookupError, RuleRequest, Timestamp,
};
use tollway::trace::{LimitRequest, TraceReply, TraceRequest, TraceTarget};

pub(crate) struct CoreAlone {
    policy: Policy,
    buckets: Buckets,
    logs: Logs,
}

#[derive(Default)]
struct Logs(HashMap<String, SlidingLogState>);

#[derive(Default)]
struct Buckets(HashMap<BucketKey, Held>);

/// The algorithm, the limit with its numbers as far as a bucket depends on them, and the id.
type BucketKey = (&'static str, u64, Vec<u8>);

#[derive(Clone)]
enum Held {
    TokenBucket(TokenBucketState),
    SlidingLog(SlidingLogState),
    SmoothedRate(SmoothedRateState),
    Quota(QuotaState),
    FixedWindow(FixedWindowState),
    SlidingWindow(SlidingWindowState),
}

/// Runs `$body` with the bucket and its numbers, whichever algorithm it is.
macro_rules! each {
    ($held:expr, $algorithm:expr, |$bucket:ident, $limit:ident| $body:expr) => {
        match ($held, $algorithm) {
            (Held::TokenBucket($bucket), Algorithm::TokenBucket($limit)) => $body,
            (Held::SlidingLog($bucket), Algorithm::SlidingLog($limit)) => $body,
            (Held::SmoothedRate($bucket), Algorithm::SmoothedRate($limit)) => $body,
            (Held::Quota($bucket), Algorithm::Quota($limit)) => $body,
            (Held::FixedWindow($bucket), Algorithm::FixedWindow($limit)) => $body,
            (Held::SlidingWindow($bucket), Algorithm::SlidingWindow($limit)) => $body,
            _ => unreachable!("the key of a bucket names its algorithm"),
        }
    };
}

impl CoreAlone {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, buckets: Buckets::default(), logs: Logs::default() }
    }

    fn limit(&mut self, now: Timestamp, request: &LimitRequest) -> Result<TraceReply, String> {
        let charges = request.charges.iter().map(|charge| {
            let made = self.policy.charge_request(charge);
            made.and_then(
                |charge| if request.verb == Verb::Refund { charge.refundable() } else { Ok(charge) },
            )
        });
        let charges =
            charges.collect::<Result<Vec<_>, _>>().map_err(|error| ErrorChain(&error).to_string())?;
        let text = |error: &(dyn std::error::Error + 'static)| ErrorChain(error).to_string();
        let found = request.rules.iter().map(|rule| rule.find(&self.policy)).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| text(&error))?;
        let rules = request.rules.iter().zip(&found).map(|(rule, found)| rule.bill(found));
        let rules = rules.collect::<Result<Vec<_>, _>>().map_err(|error| text(&error))?;
        if !rules.is_empty() && !request.verb.has_rules() {
            return Err(text(&BillError::RulesOf { verb: request.verb }));
        }
        let bill = Bill::with_rules(&charges, &rules).map_err(|error| text(&error))?;
        Ok(match request.verb {
            Verb::Spend | Verb::Check => {
                let stores = request.verb == Verb::Spend;
                let decision = self.buckets.settle(&bill, &mut self.logs, now, stores);
                TraceReply::decision(request, decision)
            }
            Verb::Refund => {
                match charges.iter().filter_map(|charge| self.buckets.refund(charge, now)).reduce(Refund::and)
                {
                    Some(refund) => TraceReply::Refund(refund),
                    None => TraceReply::UnlimitedRefund,
                }
            }
            Verb::Reset => {
                for (charge, algorithm) in
                    charges.iter().filter_map(|charge| Some((charge, charge.algorithm()?)))
                {
                    self.buckets.carry_over(charge);
                    self.buckets.0.remove(&key(charge, algorithm));
                }
                TraceReply::Reset
            }
        })
    }
}

impl CoreAlone {
    fn rule(&mut self, now: Timestamp, request: &RuleRequest<'_>) -> Result<TraceReply, RuleLookupError> {
        let keyed = request.find(&self.policy)?;
        let bill = request.bill(&keyed)?;
        let ruling = self.logs.ruling(&bill, now);
        if ruling.allowed() {
            self.logs.enter(slice::from_ref(&bill), now);
        }
        Ok(TraceReply::RuleDecision(ruling))
    }

    fn reload(&mut self, now: Timestamp, config: &str) -> TraceReply {
        match Config::parse(config, "reload") {
            Ok(config) => {
                self.policy = config.policy.replacing(&self.policy, now);
                TraceReply::Reloaded
            }
            Err(errors) => TraceReply::Error(ErrorChain(&errors).to_string()),
        }
    }
}

impl Logs {
    fn ruling(&self, bill: &RuleBill<'_>, now: Timestamp) -> RuleDecision {
        let (names, empty) = (bill.identifiers(), SlidingLogState::default());
        let log = |index: usize| Some(self.0.get(&**names[index].as_ref()?).unwrap_or(&empty));
        RuleDecision::until(bill.limit().rule().limits_until(log), now)
    }

    /// Makes one entry in each log, whichever rules share it.
    fn enter(&mut self, bills: &[RuleBill<'_>], now: Timestamp) {
        let mut retentions = HashMap::<&str, Retention>::new();
        for bill in bills {
            for (name, log) in bill.identifiers().iter().zip(bill.limit().rule().logs()) {
                let Some(name) = name.as_deref() else { continue };
                let retention = retentions.entry(name).or_insert(log.retention());
                *retention = retention.and(log.retention());
            }
        }
        for (name, retention) in retentions {
            retention.log(self.0.entry(name.to_owned()).or_default(), now);
        }
    }
}

impl TraceTarget for CoreAlone {
    fn answer(&mut self, at: Timestamp, request: &TraceRequest) -> TraceReply {
        match request {
            TraceRequest::Limit(request) => self.limit(at, request).unwrap_or_else(TraceReply::Error),
            TraceRequest::Rule(request) => self
                .rule(at, request)
                .unwrap_or_else(|error| TraceReply::Error(ErrorChain(&error).to_string())),
            TraceRequest::Reload(config) => self.reload(at, config),
            _ => TraceReply::Error(format!("the core does not speak `{}`", request.gate())),
        }
    }
}

impl Buckets {
    /// Asks every bucket, and stores what came of it: all of an allowed bill, and of a denied one only the updates of
    /// the charges that were refused themselves, which count where updates count.
    fn settle(&mut self, bill: &Bill<'_>, logs: &mut Logs, now: Timestamp, store: bool) -> Decision {
        let mut after = Vec::new();
        let mut answers = Vec::new();
        for charge in bill.charges() {
            let Some(algorithm) = charge.algorithm() else {
                answers.push(Decision::UNLIMITED);
                continue;
            };
            let mut held = self.held(charge, algorithm);
            let answer =
                each!(&mut held, algorithm, |bucket, limit| bucket.charge(limit, charge.cost(), now));
            answers.push(answer);
            after.push((charge, algorithm, held, answer));
        }
        answers.extend(bill.rules().iter().map(|rule| Decision::from(logs.ruling(rule, now))));
        let decision = bill.answer(&answers);
        if store && decision.allowed() {
            logs.enter(bill.rules(), now);
        }
        for (charge, algorithm, held, answer) in after {
            let stored = match charge.kind() {
                ChargeKind::Spend => decision.allowed() || !answer.allowed(),
                ChargeKind::SpendOnly => decision.allowed(),
                ChargeKind::CheckOnly => false,
            };
            if store && stored {
                self.0.insert(key(charge, algorithm), held);
            }
        }
        decision
    }

    fn refund(&mut self, charge: &Charge<'_>, now: Timestamp) -> Option<Refund> {
        let algorithm = charge.algorithm()?;
        let mut held = self.held(charge, algorithm);
        let refund = each!(&mut held, algorithm, |bucket, limit| bucket.refund(limit, charge.cost(), now));
        self.0.insert(key(charge, algorithm), held);
        refund
    }

    /// Moves the token bucket that the id has left from former numbers of the limit to where it is looked for.
    fn carry_over(&mut self, charge: &Charge<'_>) {
        let Some(algorithm @ Algorithm::TokenBucket(_)) = charge.algorithm() else { return };
        let key = key(charge, algorithm);
        if self.0.contains_key(&key) {
            return;
        }
        let left = charge.take_former(|fingerprint| {
            match self.0.remove(&(algorithm.name(), fingerprint, charge.id().to_vec()))? {
                Held::TokenBucket(bucket) => Some(bucket),
                _ => unreachable!("the key of a bucket names its algorithm"),
            }
        });
        self.0.extend(left.map(|bucket| (key, Held::TokenBucket(bucket))));
    }

    /// The bucket of a charge, or one never used.
    fn held(&mut self, charge: &Charge<'_>, algorithm: &Algorithm) -> Held {
        self.carry_over(charge);
        self.0.get(&key(charge, algorithm)).cloned().unwrap_or_else(|| match algorithm {
            Algorithm::TokenBucket(_) => Held::TokenBucket(TokenBucketState::default()),
            Algorithm::SlidingLog(_) => Held::SlidingLog(SlidingLogState::default()),
            Algorithm::SmoothedRate(_) => Held::SmoothedRate(SmoothedRateState::default()),
            Algorithm::Quota(_) => Held::Quota(QuotaState::default()),
            Algorithm::FixedWindow(_) => Held::FixedWindow(FixedWindowState::default()),
            Algorithm::SlidingWindow(_) => Held::SlidingWindow(SlidingWindowState::default()),
        })
    }
}

fn key(charge: &Charge<'_>, algorithm: &Algorithm) -> BucketKey {
    (algorithm.name(), charge.bucket_fingerprint(), charge.id().to_vec())
}
