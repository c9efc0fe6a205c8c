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
use thiserror::Error;
use tollway::engine::{Engine, VerbAnswer};
use tollway::export::{ExportError, ExportReader, ImportError, ImportReport, ImportSettings};
use tollway::limiter::LimiterError;
use tollway_core::{Charge, ChargeRequest, RuleRef, RuleRequest, Verb};
use tollway_wire::audit::{FAILED, PARTIAL, UNKNOWN};

pub(crate) use self::counted_policy::CountedPolicy;
pub(crate) use self::resp::{RespAnswered, RespConnection, RespNext, RespScratch, RespService, RespSettings};
pub(crate) use self::rls::RlsError;
pub(crate) use self::smockron::{SmockronService, control_message};
pub(crate) use self::text::TextService;
pub(crate) use self::throttr::ThrottrService;
use crate::audit::Auditor;
use crate::caller::{AccessDenied, Caller};
use crate::metrics::WorkerMetrics;
use crate::spans::Spans;
use crate::tap::Tap;
use crate::watch::Watch;

/// The error of a store that gave no answer, for clients that may not know where it is.
pub(crate) const NO_STORE: &str = "the store gave no answer; it may have done what was asked";

/// The reasons why a request is not performed.
#[derive(Debug, Error)]
pub(crate) enum ServiceError {
    /// The client may not do it.
    #[error(transparent)]
    Denied(#[from] AccessDenied),
    #[error(transparent)]
    Limiter(#[from] LimiterError),
}

/// Connects one worker's gates with the engine.
pub(crate) struct Service {
    limiter: Arc<Engine>,
    metrics: Arc<WorkerMetrics>,
    policy: ArcSwap<CountedPolicy>,
    watch: Arc<Watch>,
    /// Samples decisions, if they have spans.
    spans: Option<Arc<Spans>>,
    tap: Arc<Tap>,
    auditor: Auditor,
    /// The index of the worker, among those that are watched.
    worker: usize,
}

impl Service {
    pub(crate) fn new(
        limiter: Arc<Engine>,
        metrics: Arc<WorkerMetrics>,
        watch: Arc<Watch>,
        tap: Arc<Tap>,
        auditor: Auditor,
        worker: usize,
    ) -> Self {
        let policy = CountedPolicy::new(limiter.policy(), &metrics, watch.subjects());
        Self {
            limiter,
            metrics,
            policy: ArcSwap::from_pointee(policy),
            watch,
            spans: None,
            tap,
            auditor,
            worker,
        }
    }

    /// Records spans of decisions as well.
    pub(crate) fn with_spans(self, spans: Option<Arc<Spans>>) -> Self {
        Self { spans, ..self }
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

    /// Performs a verb for a client, and counts and logs the answer.
    pub(crate) async fn perform<'a>(
        &self,
        caller: &Caller<'_>,
        policy: &'a CountedPolicy,
        verb: Verb,
        charges: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<VerbAnswer<'a>, ServiceError> {
        if !caller.may_use_all() {
            charges.iter().try_for_each(|charge| caller.check_limit(&charge.limit))?;
            rules.iter().try_for_each(|rule| check_rule(caller, &rule.rule))?;
        }
        let began = self.began();
        let answered = if self.is_recorded(policy, charges, rules) {
            self.perform_recorded(policy, verb, charges, rules).await
        } else {
            self.limiter.perform(policy.policy(), verb, charges, rules).await
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => {
                if matches!(error, LimiterError::Store(_)) {
                    self.audit_unknown(caller, policy, verb, charges);
                }
                return Err(error.into());
            }
        };
        let rule_ids: Vec<_> = rules.iter().map(|rule| self.id_of_request(policy.policy(), rule)).collect();
        let mut decided =
            self.decided(caller.gate, policy).with_spans(self.span_recorder(began, caller.trace));
        decided.answer(verb, &answer, rules, &rule_ids);
        decided.finish();
        match &answer {
            VerbAnswer::Decision(..) => {}
            VerbAnswer::Refund(charges, _) => {
                charges.iter().for_each(|charge| self.audit_refund(caller, charge, None));
            }
            VerbAnswer::Reset(charges) => {
                charges.iter().for_each(|charge| self.audit_reset(caller, charge, None));
            }
        }
        Ok(answer)
    }

    /// Records in the audit log that a client gave back.
    fn audit_refund(&self, caller: &Caller<'_>, charge: &Charge<'_>, outcome: Option<&'static str>) {
        let bucket = (charge.limit().name(), charge.id());
        self.auditor.bucket(caller, "refund", bucket, Some(charge.cost()), outcome);
    }

    /// Records in the audit log that a client has reset a bucket.
    fn audit_reset(&self, caller: &Caller<'_>, charge: &Charge<'_>, outcome: Option<&'static str>) {
        let bucket = (charge.limit().name(), charge.id());
        self.auditor.bucket(caller, "reset", bucket, None, outcome);
    }

    /// Records in the audit log that the store gave no answer to a refund or a reset, which it may have made.
    #[cold]
    fn audit_unknown(
        &self,
        caller: &Caller<'_>,
        policy: &CountedPolicy,
        verb: Verb,
        requests: &[ChargeRequest<'_>],
    ) {
        let policy = policy.policy();
        for request in requests {
            match verb {
                Verb::Refund => {
                    let charge = policy.charge_request(request).ok();
                    charge.iter().for_each(|charge| self.audit_refund(caller, charge, Some(UNKNOWN)));
                }
                Verb::Reset => {
                    let charge = policy.bucket_request(request).ok();
                    charge.iter().for_each(|charge| self.audit_reset(caller, charge, Some(UNKNOWN)));
                }
                Verb::Spend | Verb::Check => {}
            }
        }
    }

    /// Returns a page of all buckets, and records who took it. Each page is recorded: a client can begin with any.
    pub(crate) fn export(&self, caller: &Caller<'_>, from: u64) -> Result<Vec<u8>, PageError> {
        let page = self.limiter.export_page(from)?;
        self.auditor.exported_or_imported(caller, "export", Some(from), None);
        Ok(page)
    }

    /// Takes the buckets of a page, which must be whole, and records who sent it.
    pub(crate) fn import(
        &self,
        caller: &Caller<'_>,
        page: &[u8],
        settings: ImportSettings,
    ) -> Result<ImportReport, PageError> {
        if self.limiter.is_shared() {
            return Err(ImportError::Shared.into());
        }
        // All of it is read before the first bucket is taken: a page that was cut changes nothing.
        let (mut reader, mut batches) = (ExportReader::open(page)?, Vec::new());
        while let Some(batch) = reader.next_batch()? {
            batches.push(batch);
        }
        let (mut report, mut taken) = (ImportReport::default(), 0);
        let imported = batches.iter().try_for_each(|batch| {
            report += self.limiter.import(reader.header(), batch, settings)?;
            taken += 1;
            Ok(())
        });
        if !settings.dry_run {
            // Also if a batch is refused: those before it are taken.
            let refused = if taken == 0 { FAILED } else { PARTIAL };
            let outcome = imported.is_err().then_some(refused);
            self.auditor.exported_or_imported(caller, "import", None, outcome);
        }
        imported.map(|()| report)
    }

    /// Counts a client that may not do what it asked for.
    pub(crate) fn count_denied(&self, denied: &AccessDenied) {
        self.metrics.access.denied(denied);
    }
}

/// The error of a page of buckets that cannot be exported or imported.
#[derive(Debug, Error)]
pub(crate) enum PageError {
    #[error("the page cannot be read")]
    Export(#[from] ExportError),
    #[error(transparent)]
    Import(#[from] ImportError),
}

/// Checks that a client may use a rule. An expression has no name, so only a client that may use every rule can send
/// one.
fn check_rule(caller: &Caller<'_>, rule: &RuleRef) -> Result<(), AccessDenied> {
    match rule {
        RuleRef::Named(name) => caller.check_limit(name),
        RuleRef::Written(_) => caller.check_all_limits(),
    }
}
