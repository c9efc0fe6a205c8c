//! The tower service that wraps another, and decides about each request before it is forwarded.

use std::fmt;
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

/// A tower service that forwards, delays or rejects requests. [`AdmissionLayer`](crate::AdmissionLayer) makes it.
pub struct AdmissionService<S, A, I> {
    inner: S,
    state: Arc<LayerState<A, I>>,
}

impl<S, A, I> AdmissionService<S, A, I> {
    pub(crate) const fn new(inner: S, state: Arc<LayerState<A, I>>) -> Self {
        Self { inner, state }
    }
}

impl<S: fmt::Debug, A, I> fmt::Debug for AdmissionService<S, A, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S: Clone, A, I> Clone for AdmissionService<S, A, I> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), state: Arc::clone(&self.state) }
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
        let state = &self.state;
        if state.exempt_paths.contains(request.uri().path()) {
            one_more(&state.counters.exempt);
            return ResponseFuture::forward(self.inner.call(request), None);
        }
        let id = match state.identify.identify(RequestHead::new(&request)) {
            Ok(id) => id,
            Err(reason) => return self.act_on(None, &AdmitOutcome::Unidentified(reason).into(), request),
        };
        let log_info = LogInfo::new(RequestHead::new(&request), &state.log_info);
        match state.admit.admit_with_log_info(id.as_ref(), &log_info) {
            AdmitFuture::Ready(reply) => self.act_on(Some(&id), &reply, request),
            AdmitFuture::Pending(reply) if state.shadow => {
                // In shadow mode the request does not wait for its reply, which is counted when it comes.
                let state = Arc::clone(state);
                tokio::spawn(async move { state.record(Some(id.as_ref()), &reply.await) });
                ResponseFuture::forward(self.inner.call(request), None)
            }
            AdmitFuture::Pending(reply) => {
                let state = Arc::clone(state);
                // The service that was polled ready must serve this request; its clone may not be ready yet.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                ResponseFuture::wait(PendingRequest::new(reply, inner, request, id, state))
            }
        }
    }
}

impl<S, A: Admit, I> AdmissionService<S, A, I> {
    fn act_on<B>(
        &mut self,
        id: Option<&ClientId>,
        reply: &AdmitReply,
        request: Request<B>,
    ) -> ResponseFuture<S, A, I, B>
    where
        S: Service<Request<B>>,
    {
        match self.state.next_action(id.map(ClientId::as_ref), reply, request.headers()) {
            RequestAction::Forward(headers) => ResponseFuture::forward(self.inner.call(request), headers),
            RequestAction::Reject(response) => ResponseFuture::reject(response),
        }
    }
}
