//! What the layer does with requests, and how it is told.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tollway_core::Decision;
use tower_layer::Layer;

use crate::admit::{Admission, Admit, Answer};
use crate::counts::{Counters, Counts};
use crate::identify::{ByAddress, Identify};
use crate::log_info::Source;
use crate::rejection;
use crate::service::AdmissionService;
use crate::skip::Skip;

/// Asks about each request before the service sees it.
///
/// Clones, and all services made by one layer, count together.
pub struct AdmissionLayer<A, I = ByAddress> {
    shared: Shared<A, I>,
}

/// What becomes of a request that has no identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unidentified {
    /// It passes.
    #[default]
    Pass,
    /// It is rejected with 400, or `INVALID_ARGUMENT`.
    Reject,
}

/// What was decided about a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Decided<'a> {
    /// Whose it is, if that is known.
    pub identifier: Option<&'a [u8]>,
    /// May it pass?
    pub admission: Admission,
    /// What a limiter decided, if one was asked.
    pub decision: Option<&'a Decision>,
    /// Did it pass in any case?
    pub shadow: bool,
}

type Hook = dyn Fn(Decided<'_>) + Send + Sync;

/// All that a layer and its services have in common.
pub(crate) struct Shared<A, I> {
    pub(crate) admit: Arc<A>,
    pub(crate) identify: Arc<I>,
    pub(crate) skip: Skip,
    pub(crate) shadow: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) log_info: Source,
    unidentified: Unidentified,
    status: StatusCode,
    announce: bool,
    hook: Option<Arc<Hook>>,
}

/// What the service does next.
pub(crate) enum Step {
    /// Pass the request on, and add these headers to the response.
    Pass(Option<Box<HeaderMap>>),
    /// Answer with this.
    Reject(Box<http::response::Parts>),
}

impl<A: Admit> AdmissionLayer<A> {
    /// Has `admit` asked about each request, by the address of its peer: [`ByAddress::peer`].
    pub fn new(admit: A) -> Self {
        let shared = Shared {
            admit: Arc::new(admit),
            identify: Arc::new(ByAddress::peer()),
            skip: Skip::default(),
            shadow: false,
            counters: Arc::default(),
            log_info: Source::default(),
            unidentified: Unidentified::default(),
            status: A::STATUS,
            announce: false,
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
        F: Fn(crate::Head<'_>) -> Option<crate::Identifier> + Send + Sync + 'static,
    {
        self.identify(identify)
    }

    /// With this for requests that have no identifier. To pass is the default.
    pub fn unidentified(mut self, unidentified: Unidentified) -> Self {
        self.shared.unidentified = unidentified;
        self
    }

    /// Passes on what goes to this path, whole as it is, unseen.
    pub fn skip(mut self, path: &str) -> Self {
        self.shared.skip.path(path);
        self
    }

    /// Passes on what goes to this path or below it, unseen.
    pub fn skip_below(mut self, path: &str) -> Self {
        self.shared.skip.tree(path);
        self
    }

    /// Rejects with this status: 429, or 503 for clients that take only that for a reason to wait. A gRPC client
    /// gets `RESOURCE_EXHAUSTED`, or `UNAVAILABLE` for a 503.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.shared.status = status;
        self
    }

    /// Adds the `RateLimit` headers to what passes, too. They cost an allocation each.
    pub fn announce(mut self, announce: bool) -> Self {
        self.shared.announce = announce;
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
        F: Fn(crate::Head<'_>) -> Cow<'_, [u8]> + Send + Sync + 'static,
    {
        self.shared.log_info = Source::By(Arc::new(log_info));
        self
    }

    /// Calls this at every decision. It is on the way of each request, so it must be short.
    pub fn on_decision(mut self, hook: impl Fn(Decided<'_>) + Send + Sync + 'static) -> Self {
        self.shared.hook = Some(Arc::new(hook));
        self
    }

    /// What became of requests so far.
    pub fn counts(&self) -> Counts {
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

impl<A, I> Clone for Shared<A, I> {
    fn clone(&self) -> Self {
        Self {
            admit: Arc::clone(&self.admit),
            identify: Arc::clone(&self.identify),
            skip: self.skip.clone(),
            counters: Arc::clone(&self.counters),
            log_info: self.log_info.clone(),
            hook: self.hook.clone(),
            ..*self
        }
    }
}

impl<A, I> Shared<A, I> {
    fn identify<J>(self, identify: Arc<J>) -> Shared<A, J> {
        let Self { admit, skip, shadow, counters, log_info, unidentified, status, announce, hook, .. } = self;
        Shared { admit, identify, skip, shadow, counters, log_info, unidentified, status, announce, hook }
    }
}

impl<A: Admit, I> Shared<A, I> {
    /// Counts an answer, tells of it, and says what follows from it.
    pub(crate) fn step(&self, identifier: Option<&[u8]>, answer: &Answer, request: &HeaderMap) -> Step {
        self.note(identifier, answer);
        if self.shadow {
            return Step::Pass(None);
        }
        match answer.admission {
            Admission::Passed | Admission::PassedUnasked | Admission::Delayed { .. } => {
                Step::Pass(self.announced(identifier, answer))
            }
            Admission::Unidentified if self.unidentified == Unidentified::Pass => Step::Pass(None),
            _ => {
                let mut head = rejection::head(&answer.admission, self.status, request);
                self.describe(identifier, answer, &mut head.headers);
                Step::Reject(Box::new(head))
            }
        }
    }

    /// Counts an answer and tells of it.
    pub(crate) fn note(&self, identifier: Option<&[u8]>, answer: &Answer) {
        let first = self.counters.count(&answer.admission);
        if first && answer.admission == Admission::Unidentified {
            // Once: it may be one odd request, or a server that never says who its peers are.
            tracing::warn!(then = ?self.unidentified, "a request identifies nobody");
        }
        if let Some(hook) = &self.hook {
            let (admission, decision) = (answer.admission, answer.decision.as_ref());
            hook(Decided { identifier, admission, decision, shadow: self.shadow });
        }
    }

    fn announced(&self, identifier: Option<&[u8]>, answer: &Answer) -> Option<Box<HeaderMap>> {
        if !self.announce {
            return None;
        }
        let mut headers = HeaderMap::new();
        self.describe(identifier, answer, &mut headers);
        Some(Box::new(headers))
    }

    fn describe(&self, identifier: Option<&[u8]>, answer: &Answer, headers: &mut HeaderMap) {
        if let (Some(identifier), Some(decision)) = (identifier, &answer.decision) {
            self.admit.describe(identifier, decision, headers);
        }
    }
}
