//! The layer: its settings, and what it does with each request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Response, StatusCode};
use tollway_core::{Decision, LogThrottle};
use tower_layer::Layer;

use crate::admit::{Admit, AdmitOutcome, AdmitReply};
use crate::exempt_paths::ExemptPaths;
use crate::identify::{ByAddress, Identify, Unidentified};
use crate::log_info::LogInfoSource;
use crate::rejection::{NO_PEER_ADDRESS, Rejection, grpc_content_type};
use crate::request_counts::{RequestCounters, RequestCounts};
use crate::service::AdmissionService;

/// A tower layer that decides about each request before the service sees it.
///
/// Clones of a layer, and all services that it makes, share their counts.
#[must_use = "a layer limits only the services that it wraps"]
pub struct AdmissionLayer<A, I = ByAddress> {
    state: LayerState<A, I>,
}

/// Tells what happens to a request that has no client id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnidentified {
    /// The request is rejected with 400, or `INVALID_ARGUMENT` for gRPC. If the server adds no address to its requests,
    /// it is rejected with 500, or `INTERNAL`.
    #[default]
    Reject,
    /// The request passes, unless its client id is ambiguous.
    Pass,
}

/// The decision about one request, as the hook of [`AdmissionLayer::on_decision`] gets it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// The client that sent the request, if it was identified.
    pub id: Option<&'a [u8]>,
    /// The outcome that was decided. In shadow mode the request passes whatever this is.
    pub outcome: AdmitOutcome,
    /// The limiter's decision, if a limiter made one.
    pub decision: Option<&'a Decision>,
    /// True if the layer is in shadow mode.
    pub shadow: bool,
}

type DecisionHook = dyn Fn(DecisionEvent<'_>) + Send + Sync;

/// The time between two log lines of one kind, if every request can cause them.
pub const LOG_PAUSE: Duration = Duration::from_secs(10);

/// The settings and counters that a layer shares with its services.
pub(crate) struct LayerState<A, I> {
    pub(crate) admit: Arc<A>,
    pub(crate) identify: Arc<I>,
    pub(crate) exempt_paths: ExemptPaths,
    pub(crate) shadow: bool,
    pub(crate) counters: Arc<RequestCounters>,
    pub(crate) log_info: LogInfoSource,
    unidentified_log: Arc<LogThrottle>,
    on_unidentified: OnUnidentified,
    status: StatusCode,
    always_add_headers: bool,
    hook: Option<Arc<DecisionHook>>,
}

/// The action that follows from a reply.
pub(crate) enum RequestAction {
    /// Forwards the request to the service, and adds these headers to the response.
    Forward(Option<Box<HeaderMap>>),
    /// Responds with this.
    Reject(Box<Response<&'static str>>),
}

impl<A: Admit> AdmissionLayer<A> {
    /// Makes a layer that lets `admit` decide about each request, by the address of its peer: [`ByAddress::peer`].
    pub fn new(admit: A) -> Self {
        let state = LayerState {
            status: admit.status(),
            admit: Arc::new(admit),
            identify: Arc::new(ByAddress::peer()),
            exempt_paths: ExemptPaths::default(),
            shadow: false,
            counters: Arc::default(),
            log_info: LogInfoSource::default(),
            unidentified_log: Arc::new(LogThrottle::new(LOG_PAUSE, Instant::now())),
            on_unidentified: OnUnidentified::default(),
            always_add_headers: false,
            hook: None,
        };
        Self { state }
    }
}

impl<A, I> AdmissionLayer<A, I> {
    /// Sets how clients are identified (default: [`ByAddress::peer`]).
    pub fn identify<J: Identify>(self, identify: J) -> AdmissionLayer<A, J> {
        AdmissionLayer { state: self.state.identify(Arc::new(identify)) }
    }

    /// Identifies clients by a closure. A request for which it returns `None` has no client id.
    pub fn identify_by<F>(self, identify: F) -> AdmissionLayer<A, F>
    where
        F: Fn(crate::RequestHead<'_>) -> Option<crate::ClientId> + Send + Sync + 'static,
    {
        self.identify(identify)
    }

    /// Sets what happens to requests without a client id (default: they are rejected).
    pub fn on_unidentified(mut self, on_unidentified: OnUnidentified) -> Self {
        self.state.on_unidentified = on_unidentified;
        self
    }

    /// Exempts requests whose path equals `path`: they are not counted.
    pub fn exempt_path(mut self, path: &str) -> Self {
        self.state.exempt_paths.add_path(path);
        self
    }

    /// Exempts requests whose path equals `path` or lies below it: they are not counted.
    pub fn exempt_subtree(mut self, path: &str) -> Self {
        self.state.exempt_paths.add_subtree(path);
        self
    }

    /// Sets the status of rejections: 429, or 503 for clients that back off only on that. A gRPC client gets
    /// `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` for a 503.
    pub fn reject_with(mut self, status: StatusCode) -> Self {
        self.state.status = status;
        self
    }

    /// Adds the `RateLimit` headers to every response, not only to rejections. Each header costs an allocation.
    pub fn always_add_headers(mut self, always_add_headers: bool) -> Self {
        self.state.always_add_headers = always_add_headers;
        self
    }

    /// Turns shadow mode on: the layer decides and counts, but every request passes without a wait.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.state.shadow = shadow;
        self
    }

    /// Sets the log info of each request (default: its `User-Agent`).
    ///
    /// A gatekeeper sends it to its master; other sources ignore it.
    ///
    /// ```no_run
    /// use tollway_tower::AdmissionLayer;
    /// use tollway_tower::client::gatekeeper::Gatekeeper;
    ///
    /// let gatekeeper = Gatekeeper::new("master:10004", "api")?;
    /// let layer = AdmissionLayer::new(gatekeeper).log_info(|head| head.uri.path().as_bytes().into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log_info<F>(mut self, log_info: F) -> Self
    where
        F: Fn(crate::RequestHead<'_>) -> Cow<'_, [u8]> + Send + Sync + 'static,
    {
        self.state.log_info = LogInfoSource::Closure(Arc::new(log_info));
        self
    }

    /// Calls `hook` after every decision. Each request waits for it, so it must be fast.
    pub fn on_decision(mut self, hook: impl Fn(DecisionEvent<'_>) + Send + Sync + 'static) -> Self {
        self.state.hook = Some(Arc::new(hook));
        self
    }

    /// Returns the number of requests that wait for their turn now.
    pub fn waiting(&self) -> usize
    where
        A: Admit,
    {
        self.state.admit.waiting()
    }

    /// Returns the number of requests that had each outcome so far.
    pub fn counts(&self) -> RequestCounts {
        self.state.counters.read()
    }
}

impl<A, I, S> Layer<S> for AdmissionLayer<A, I> {
    type Service = AdmissionService<S, A, I>;

    fn layer(&self, inner: S) -> Self::Service {
        AdmissionService::new(inner, Arc::new(self.state.clone()))
    }
}

impl<A, I> Clone for AdmissionLayer<A, I> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

/// Without the identification, which may be a closure.
impl<A: fmt::Debug, I> fmt::Debug for AdmissionLayer<A, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LayerState { admit, exempt_paths, shadow, on_unidentified, status, .. } = &self.state;
        f.debug_struct("AdmissionLayer")
            .field("admit", admit)
            .field("exempt_paths", exempt_paths)
            .field("shadow", shadow)
            .field("on_unidentified", on_unidentified)
            .field("status", status)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
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
            unidentified_log: Arc::clone(&self.unidentified_log),
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
            unidentified_log,
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
            unidentified_log,
            on_unidentified,
            status,
            always_add_headers,
            hook,
        }
    }
}

impl<A: Admit, I> LayerState<A, I> {
    /// Records a reply, and returns the action that follows from it.
    pub(crate) fn next_action(
        &self,
        id: Option<&[u8]>,
        reply: &AdmitReply,
        request: &HeaderMap,
    ) -> RequestAction {
        self.record(id, reply);
        if self.shadow {
            return RequestAction::Forward(None);
        }
        match reply.outcome {
            AdmitOutcome::Passed | AdmitOutcome::FailedOpen | AdmitOutcome::Delayed { .. } => {
                RequestAction::Forward(self.headers_when_allowed(id, reply))
            }
            AdmitOutcome::Unidentified(reason) if self.passes(reason) => RequestAction::Forward(None),
            AdmitOutcome::Unidentified(_)
            | AdmitOutcome::Rejected { .. }
            | AdmitOutcome::Unavailable { .. } => {
                let rejection = Rejection::of(&reply.outcome, self.status);
                let mut response = rejection.response(grpc_content_type(request));
                self.add_headers(id, reply, response.headers_mut());
                RequestAction::Reject(Box::new(response))
            }
        }
    }

    /// Counts a reply and calls the hook.
    pub(crate) fn record(&self, id: Option<&[u8]>, reply: &AdmitReply) {
        self.counters.count(&reply.outcome);
        if let AdmitOutcome::Unidentified(reason) = reply.outcome {
            self.log_unidentified(reason);
        }
        if let Some(hook) = &self.hook {
            let (outcome, decision) = (reply.outcome, reply.decision.as_ref());
            hook(DecisionEvent { id, outcome, decision, shadow: self.shadow });
        }
    }

    /// Returns true if a request without a client id passes.
    fn passes(&self, reason: Unidentified) -> bool {
        self.on_unidentified == OnUnidentified::Pass && reason != Unidentified::Ambiguous
    }

    /// Logs what the operator must know: no request is limited, or none passes.
    fn log_unidentified(&self, reason: Unidentified) {
        let (passes, is_setup) = (self.passes(reason), reason == Unidentified::NoPeerAddress);
        // A client that identifies itself badly and is rejected is no concern of the operator.
        if !passes && !is_setup {
            return;
        }
        match self.unidentified_log.allow(Instant::now()) {
            None => {}
            Some(held_back) if is_setup && !passes => tracing::error!(held_back, "{NO_PEER_ADDRESS}"),
            Some(held_back) => tracing::warn!(held_back, ?reason, "a request without a client id passes"),
        }
    }

    fn headers_when_allowed(&self, id: Option<&[u8]>, reply: &AdmitReply) -> Option<Box<HeaderMap>> {
        if !self.always_add_headers {
            return None;
        }
        let mut headers = HeaderMap::new();
        self.add_headers(id, reply, &mut headers);
        Some(Box::new(headers))
    }

    fn add_headers(&self, id: Option<&[u8]>, reply: &AdmitReply, headers: &mut HeaderMap) {
        if let (Some(id), Some(decision)) = (id, &reply.decision) {
            self.admit.add_headers(id, decision, headers);
        }
    }
}
