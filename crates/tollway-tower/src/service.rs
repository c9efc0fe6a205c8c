//! The service around the service.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::admit::{Admission, Admit, Answer, Asked};
use crate::body::ResponseBody;
use crate::counts::one_more;
use crate::future::{Asking, ResponseFuture};
use crate::identify::{Head, Identifier, Identify};
use crate::layer::{Shared, Step};
use crate::log_info::LogInfo;

/// Asks about each request before the service in it sees it. Made by an [`AdmissionLayer`](crate::AdmissionLayer).
pub struct AdmissionService<S, A, I> {
    inner: S,
    shared: Arc<Shared<A, I>>,
}

impl<S, A, I> AdmissionService<S, A, I> {
    pub(crate) const fn new(inner: S, shared: Arc<Shared<A, I>>) -> Self {
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
        if shared.skip.skips(request.uri().path()) {
            one_more(&shared.counters.skipped);
            return ResponseFuture::pass(self.inner.call(request), None);
        }
        let Some(identifier) = shared.identify.identify(Head::of(&request)) else {
            let nobody = Admission::Unidentified.into();
            return self.answered(None, &nobody, request);
        };
        let log_info = LogInfo::new(Head::of(&request), &shared.log_info);
        match shared.admit.ask_with(identifier.as_ref(), &log_info) {
            Asked::Answered(answer) => self.answered(Some(&identifier), &answer, request),
            Asked::Awaiting(answer) if shared.shadow => {
                // Counted when it is known, and nobody waits for it.
                let shared = Arc::clone(shared);
                tokio::spawn(async move { shared.note(Some(identifier.as_ref()), &answer.await) });
                ResponseFuture::pass(self.inner.call(request), None)
            }
            Asked::Awaiting(answer) => {
                let shared = Arc::clone(shared);
                // The one that said it is ready stays with the request; a clone may have to say so first.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                ResponseFuture::ask(Asking::new(answer, inner, request, identifier, shared))
            }
        }
    }
}

impl<S, A: Admit, I> AdmissionService<S, A, I> {
    fn answered<B>(
        &mut self,
        identifier: Option<&Identifier>,
        answer: &Answer,
        request: Request<B>,
    ) -> ResponseFuture<S, A, I, B>
    where
        S: Service<Request<B>>,
    {
        match self.shared.step(identifier.map(Identifier::as_ref), answer, request.headers()) {
            Step::Pass(announced) => ResponseFuture::pass(self.inner.call(request), announced),
            Step::Reject(head) => ResponseFuture::reject(head),
        }
    }
}
