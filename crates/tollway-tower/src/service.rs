//! The service around the service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::admit::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};
use crate::identify::{ClientId, Identify, RequestHead};
use crate::layer::{LayerState, RequestAction};
use crate::log_info::LogInfo;
use crate::request_counts::one_more;
use crate::response_body::ResponseBody;
use crate::response_future::{PendingRequest, ResponseFuture};

/// Asks about each request before the service in it sees it. Made by an [`AdmissionLayer`](crate::AdmissionLayer).
pub struct AdmissionService<S, A, I> {
    inner: S,
    shared: Arc<LayerState<A, I>>,
}

impl<S, A, I> AdmissionService<S, A, I> {
    pub(crate) const fn new(inner: S, shared: Arc<LayerState<A, I>>) -> Self {
        Self { inner, shared }
    }
}

impl<S: Clone, A, I> Clone for AdmissionService<S, A, I> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S, A, I, B, R> Service<Request<B>> for AdmissionService<S, A, I>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Admit,
    I: Identify,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A, I, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = &self.shared;
        if shared.exempt_paths.contains(request.uri().path()) {
            one_more(&shared.counters.exempt);
            return ResponseFuture::pass(self.inner.call(request), None);
        }
        let Some(id) = shared.identify.identify(RequestHead::new(&request)) else {
            let nobody = AdmitOutcome::Unidentified.into();
            return self.answered(None, &nobody, request);
        };
        let log_info = LogInfo::new(RequestHead::new(&request), &shared.log_info);
        match shared.admit.admit_with_log_info(id.as_ref(), &log_info) {
            AdmitFuture::Ready(answer) => self.answered(Some(&id), &answer, request),
            AdmitFuture::Pending(answer) if shared.shadow => {
                // Counted when it is known, and nobody waits for it.
                let shared = Arc::clone(shared);
                tokio::spawn(async move { shared.note(Some(id.as_ref()), &answer.await) });
                ResponseFuture::pass(self.inner.call(request), None)
            }
            AdmitFuture::Pending(answer) => {
                let shared = Arc::clone(shared);
                // The one that said it is ready stays with the request; a clone may have to say so first.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                ResponseFuture::ask(PendingRequest::new(answer, inner, request, id, shared))
            }
        }
    }
}

impl<S, A: Admit, I> AdmissionService<S, A, I> {
    fn answered<B>(
        &mut self,
        id: Option<&ClientId>,
        answer: &AdmitReply,
        request: Request<B>,
    ) -> ResponseFuture<S, A, I, B>
    where
        S: Service<Request<B>>,
    {
        match self.shared.next_action(id.map(ClientId::as_ref), answer, request.headers()) {
            RequestAction::Forward(announced) => ResponseFuture::pass(self.inner.call(request), announced),
            RequestAction::Reject(head) => ResponseFuture::reject(head),
        }
    }
}
