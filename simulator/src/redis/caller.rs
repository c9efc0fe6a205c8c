//! One caller of a process: its request, the answer that it waits for, and what the oracle expects.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tollway::core::{Decision, Nanos, OnStoreFailure, Refund, Timestamp, Verb, Verdict};
use tollway::engine::{Engine, VerbAnswer};

use super::PLACE;
use super::node::SimulatedRedis;
use crate::history::{Entry, History};
use crate::memory::outcome;
use crate::oracle::{self, Line, Model};
use crate::requests::{Request, on_store_failure};

/// The longest time that an answer may take: the second that a call may wait in the queue, and its deadlines.
const ANSWER_MAX: Nanos = Nanos::from_millis(1_200);

/// An answer as a caller gets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    Decision(Decision),
    Refund(Refund),
    Reset,
    Failed,
}

/// A caller that waits for its answer, or has it.
pub(super) struct Caller {
    pub(super) request: Request,
    /// The number of its batch, if its call was sent.
    pub(super) batch: Option<u64>,
    /// The answer that the oracle gave when the call was executed, and how often that was.
    pub(super) expected: Option<Answer>,
    pub(super) executed: u32,
    asked: Timestamp,
    waits: Pin<Box<dyn Future<Output = Answer>>>,
    answer: Option<Answer>,
    is_judged: bool,
}

impl Caller {
    pub(super) fn new(engine: &Engine, request: Request, asked: Timestamp) -> Self {
        let (engine, own) = (engine.clone(), request.clone());
        let waits = Box::pin(async move {
            let (policy, charges, user) = (engine.policy(), own.charges(), own.user());
            let rules = own.rules(&user);
            match engine.perform(&policy, own.verb, &charges, &rules).await {
                Ok(VerbAnswer::Decision(_, decision)) => Answer::Decision(decision),
                Ok(VerbAnswer::Refund(_, refund)) => Answer::Refund(refund),
                Ok(VerbAnswer::Reset(_)) => Answer::Reset,
                Err(_) => Answer::Failed,
            }
        });
        Self {
            request,
            batch: None,
            expected: None,
            executed: 0,
            asked,
            waits,
            answer: None,
            is_judged: false,
        }
    }

    /// Returns true if the answer has come.
    pub(super) fn poll(&mut self) -> bool {
        if self.answer.is_none()
            && let Poll::Ready(answer) = self.waits.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.answer = Some(answer);
        }
        self.answer.is_some()
    }

    /// Returns true if nothing more can become of it: its answer was judged.
    pub(super) fn is_done(&self) -> bool {
        self.is_judged
    }

    /// Compares the answer with what the promise says.
    pub(super) fn judge(
        &mut self,
        process: usize,
        local: &mut Model,
        redis: &mut SimulatedRedis,
        now: Timestamp,
        history: &mut History,
    ) {
        let Some(answer) = self.answer.filter(|_| !self.is_judged) else { return };
        self.is_judged = true;
        self.record(&answer, history);
        if now.since(self.asked) > ANSWER_MAX {
            let waited = now.since(self.asked).as_secs_f64();
            history.violated(format!("{:?} waited {waited} s for its answer", self.request));
        }
        if let Some(batch) = self.batch.filter(|_| self.executed == 0) {
            // It may be on its way.
            redis.remember_late((process, batch), self.request.clone());
        }
        match answer {
            Answer::Failed => history.count("store failures"),
            Answer::Decision(found) if found.degraded => {
                history.count("store failures");
                self.judge_degraded(&found, local, now, history);
            }
            Answer::Decision(_) | Answer::Refund(_) | Answer::Reset => self.judge_answered(answer, history),
        }
    }

    /// An answer is that of the one execution.
    fn judge_answered(&self, found: Answer, history: &mut History) {
        let Self { request, executed, expected, .. } = self;
        if *executed != 1 {
            return history.violated(format!("{request:?} was executed {executed} times: {found:?}"));
        }
        let same = match (expected, &found) {
            (Some(Answer::Decision(expected)), Answer::Decision(found)) => {
                oracle::same(expected, found, &request.lines, request.rule)
            }
            (expected, found) => expected.as_ref() == Some(found),
        };
        if !same {
            history.violated(format!("{request:?}: expected {expected:?}, found {found:?}"));
        }
    }

    /// Without an answer of the store, the limits decide as they are configured to.
    fn judge_degraded(&self, found: &Decision, local: &mut Model, now: Timestamp, history: &mut History) {
        let is_asked = |line: &&Line| line.kind != tollway::core::ChargeKind::SpendOnly;
        let lines = self.request.lines.iter();
        let denies =
            lines.clone().filter(is_asked).any(|line| on_store_failure(line.limit) == OnStoreFailure::Deny);
        let share = match (&*self.request.lines, self.request.rule) {
            ([line], None) => match on_store_failure(line.limit) {
                OnStoreFailure::Local(share) => Some((*line, share)),
                OnStoreFailure::Allow | OnStoreFailure::Deny => None,
            },
            _ => None,
        };
        let is_right = match share {
            _ if denies => found.verdict == Verdict::DenyUnreachable,
            Some((line, share)) => {
                let line = Line { algorithm: share.of(&line.algorithm), ..line };
                let lines = [line];
                let expected = match self.request.verb {
                    Verb::Spend => local.settle(&lines, None, now, &[], None),
                    _ => local.check(&lines, None, now),
                };
                (expected.verdict, expected.remaining) == (found.verdict, found.remaining)
            }
            None => found.verdict == Verdict::AllowUnreachable,
        };
        if !is_right {
            history.violated(format!("{:?} without the store: {found:?}", self.request));
        }
    }

    fn record(&self, answer: &Answer, history: &mut History) {
        let first = self.request.lines.first();
        let (limit, id, cost) = first.map_or(("rule", 0, 0), |line| (line.limit, line.id, line.cost));
        let (remaining, retry, outcome) = match answer {
            Answer::Decision(decision) => (decision.remaining, decision.retry_nanos.get(), outcome(decision)),
            Answer::Refund(refund) => (refund.remaining, 0, "refunded"),
            Answer::Reset => (0, 0, "reset"),
            Answer::Failed => (0, 0, "failed"),
        };
        history.count("decisions");
        let (what, numbers) = (self.request.name(), [id, cost, remaining, retry]);
        history.record(Entry { place: PLACE, what, limit, numbers, outcome, ..Entry::default() });
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("request", &self.request).finish_non_exhaustive()
    }
}
