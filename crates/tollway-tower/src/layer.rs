//! What the layer does with requests, and how it is told.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tollway_core::Decision;
use tower_layer::Layer;

use crate::admit::{Admit, AdmitOutcome, AdmitReply};
use crate::exempt_paths::ExemptPaths;
use crate::identify::{ByAddress, Identify};
use crate::log_info::LogInfoSource;
use crate::rejection;
use crate::request_counts::{RequestCounters, RequestCounts};
use crate::service::AdmissionService;

/// Asks about each request before the service sees it.
///
/// Clones, and all services made by one layer, count together.
pub struct AdmissionLayer<A, I = ByAddress> {
    shared: LayerState<A, I>,
}

/// What becomes of a request that has no id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnidentified {
    /// It passes.
    #[default]
    Pass,
    /// It is rejected with 400, or `INVALID_ARGUMENT`.
    Reject,
}

/// What was decided about a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// Whose it is, if that is known.
    pub id: Option<&'a [u8]>,
    /// May it pass?
    pub outcome: AdmitOutcome,
    /// What a limiter decided, if one was asked.
    pub decision: Option<&'a Decision>,
    /// Did it pass in any case?
    pub shadow: bool,
}

type DecisionHook = dyn Fn(DecisionEvent<'_>) + Send + Sync;

/// All that a layer and its services have in common.
pub(crate) struct LayerState<A, I> {
    pub(crate) admit: Arc<A>,
    pub(crate) identify: Arc<I>,
    pub(crate) exempt_paths: ExemptPaths,
    pub(crate) shadow: bool,
    pub(crate) counters: Arc<RequestCounters>,
    pub(crate) log_info: LogInfoSource,
    on_unidentified: OnUnidentified,
    status: StatusCode,
    always_add_headers: bool,
    hook: Option<Arc<DecisionHook>>,
}

/// What the service does next.
pub(crate) enum RequestAction {
    /// Pass the request on, and add these headers to the response.
    Forward(Option<Box<HeaderMap>>),
    /// AdmitReply with this.
    Reject(Box<http::response::Parts>),
}

impl<A: Admit> AdmissionLayer<A> {
    /// Has `admit` asked about each request, by the address of its peer: [`ByAddress::peer`].
    pub fn new(admit: A) -> Self {
        let shared = LayerState {
            admit: Arc::new(admit),
            identify: Arc::new(ByAddress::peer()),
            exempt_paths: ExemptPaths::default(),
            shadow: false,
            counters: Arc::default(),
            log_info: LogInfoSource::default(),
            on_unidentified: OnUnidentified::default(),
            status: A::STATUS,
            always_add_headers: false,
            hook: None,
        };
        Self { shared }
    }
}

impl<A, I> AdmissionLayer<A, I> {
    /// Finds out in another way whose a request is.
    pub fn identify<J: Identify>(self, identify: J) -> AdmissionLayer<A, J> {
        AdmissionLayer { shared: self.shared.identify(Arc::new(identify)) }
    }

    /// The same, by a closure. `None` identifies nobody.
    pub fn identify_by<F>(self, identify: F) -> AdmissionLayer<A, F>
    where
        F: Fn(crate::RequestHead<'_>) -> Option<crate::ClientId> + Send + Sync + 'static,
    {
        self.identify(identify)
    }

    /// With this for requests that have no id. To pass is the default.
    pub fn on_unidentified(mut self, on_unidentified: OnUnidentified) -> Self {
        self.shared.on_unidentified = on_unidentified;
        self
    }

    /// Passes on what goes to this path, whole as it is, unseen.
    pub fn exempt_path(mut self, path: &str) -> Self {
        self.shared.exempt_paths.path(path);
        self
    }

    /// Passes on what goes to this path or below it, unseen.
    pub fn exempt_subtree(mut self, path: &str) -> Self {
        self.shared.exempt_paths.tree(path);
        self
    }

    /// Rejects with this status: 429, or 503 for clients that take only that for a reason to wait. A gRPC client
    /// gets `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` for a 503.
    pub fn reject_with(mut self, status: StatusCode) -> Self {
        self.shared.status = status;
        self
    }

    /// Adds the `RateLimit` headers to what passes, too. They cost an allocation each.
    pub fn always_add_headers(mut self, always_add_headers: bool) -> Self {
        self.shared.always_add_headers = always_add_headers;
        self
    }

    /// Decides and counts, but passes on everything, at once.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.shared.shadow = shadow;
        self
    }

    /// Tells a gatekeeper's master this of each request, instead of its `User-Agent`. Others are not told.
    ///
    /// ```no_run
    /// # use tollway_tower::{AdmissionLayer, client::gatekeeper::Gatekeeper};
    /// # let gatekeeper = Gatekeeper::connect("master:10004", "api")?;
    /// let layer = AdmissionLayer::new(gatekeeper).log_info(|head| head.uri.path().as_bytes().into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log_info<F>(mut self, log_info: F) -> Self
    where
        F: Fn(crate::RequestHead<'_>) -> Cow<'_, [u8]> + Send + Sync + 'static,
    {
        self.shared.log_info = LogInfoSource::By(Arc::new(log_info));
        self
    }

    /// Calls this at every decision. It is on the way of each request, so it must be short.
    pub fn on_decision(mut self, hook: impl Fn(DecisionEvent<'_>) + Send + Sync + 'static) -> Self {
        self.shared.hook = Some(Arc::new(hook));
        self
    }

    /// What became of requests so far.
    pub fn counts(&self) -> RequestCounts {
        self.shared.counters.read()
    }
}

impl<A, I, S> Layer<S> for AdmissionLayer<A, I> {
    type Service = AdmissionService<S, A, I>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService::new(inner, Arc::new(self.shared.clone()))
    }
}

impl<A, I> Clone for AdmissionLayer<A, I> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<A, I> Clone for LayerState<A, I> {
    fn clone(&self) -> Self {
        Self {
            admit: Arc::clone(&self.admit),
            identify: Arc::clone(&self.identify),
            exempt_paths: self.exempt_paths.clone(),
            counters: Arc::clone(&self.counters),
            log_info: self.log_info.clone(),
            hook: self.hook.clone(),
            ..*self
        }
    }
}

impl<A, I> LayerState<A, I> {
    fn identify<J>(self, identify: Arc<J>) -> LayerState<A, J> {
        let Self {
            admit,
            exempt_paths,
            shadow,
            counters,
            log_info,
            on_unidentified,
            status,
            always_add_headers,
            hook,
            ..
        } = self;
        LayerState {
            admit,
            identify,
            exempt_paths,
            shadow,
            counters,
            log_info,
            on_unidentified,
            status,
            always_add_headers,
            hook,
        }
    }
}

impl<A: Admit, I> LayerState<A, I> {
    /// RequestCounts an answer, tells of it, and says what follows from it.
    pub(crate) fn next_action(
        &self,
        id: Option<&[u8]>,
        answer: &AdmitReply,
        request: &HeaderMap,
    ) -> RequestAction {
        self.note(id, answer);
        if self.shadow {
            return RequestAction::Forward(None);
        }
        match answer.outcome {
            AdmitOutcome::Passed | AdmitOutcome::FailedOpen | AdmitOutcome::Delayed { .. } => {
                RequestAction::Forward(self.announced(id, answer))
            }
            AdmitOutcome::Unidentified if self.on_unidentified == OnUnidentified::Pass => {
                RequestAction::Forward(None)
            }
            _ => {
                let mut head = rejection::head(&answer.outcome, self.status, request);
                self.describe(id, answer, &mut head.headers);
                RequestAction::Reject(Box::new(head))
            }
        }
    }

    /// RequestCounts an answer and tells of it.
    pub(crate) fn note(&self, id: Option<&[u8]>, answer: &AdmitReply) {
        let first = self.counters.count(&answer.outcome);
        if first && answer.outcome == AdmitOutcome::Unidentified {
            // Once: it may be one odd request, or a server that never says who its peers are.
            tracing::warn!(then = ?self.on_unidentified, "a request identifies nobody");
        }
        if let Some(hook) = &self.hook {
            let (outcome, decision) = (answer.outcome, answer.decision.as_ref());
            hook(DecisionEvent { id, outcome, decision, shadow: self.shadow });
        }
    }

    fn announced(&self, id: Option<&[u8]>, answer: &AdmitReply) -> Option<Box<HeaderMap>> {
        if !self.always_add_headers {
            return None;
        }
        let mut headers = HeaderMap::new();
        self.describe(id, answer, &mut headers);
        Some(Box::new(headers))
    }

    fn describe(&self, id: Option<&[u8]>, answer: &AdmitReply, headers: &mut HeaderMap) {
        if let (Some(id), Some(decision)) = (id, &answer.decision) {
            self.admit.add_headers(id, decision, headers);
        }
    }
}
