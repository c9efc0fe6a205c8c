//! The future that resolves to a rejection or to the service's own response.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::admit::{Admit, PendingReply};
use crate::identify::ClientId;
use crate::layer::{LayerState, RequestAction};
use crate::request_counts::one_more;
use crate::response_body::ResponseBody;

pin_project! {
    /// A future that resolves to the response of the service or to a rejection.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, A, I, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, A, I, B, S::Future>,
    }
}

pin_project! {
    // Rare states are boxed, so that the future of a request that passes is hardly larger than the service's own.
    #[project = StateProjection]
    enum State<S, A, I, B, F> {
        Forwarding { #[pin] future: F, headers: Option<Box<HeaderMap>> },
        Rejected { response: Option<Box<Response<&'static str>>> },
        Waiting { pending: Box<PendingRequest<S, A, I, B>> },
    }
}

/// A request that waits for its reply.
pub(crate) struct PendingRequest<S, A, I, B> {
    reply: PendingReply,
    service: S,
    request: Option<Request<B>>,
    id: ClientId,
    layer: Arc<LayerState<A, I>>,
}

impl<S, A, I, B> PendingRequest<S, A, I, B> {
    pub(crate) fn new(
        reply: PendingReply,
        service: S,
        request: Request<B>,
        id: ClientId,
        layer: Arc<LayerState<A, I>>,
    ) -> Self {
        Self { reply, service, request: Some(request), id, layer }
    }
}

/// Counts the request as abandoned if its reply never came: the client disconnected.
impl<S, A, I, B> Drop for PendingRequest<S, A, I, B> {
    fn drop(&mut self) {
        if self.request.is_some() {
            one_more(&self.layer.counters.abandoned);
        }
    }
}

impl<S: Service<Request<B>>, A, I, B> ResponseFuture<S, A, I, B> {
    pub(crate) fn forward(future: S::Future, headers: Option<Box<HeaderMap>>) -> Self {
        Self { state: State::Forwarding { future, headers } }
    }

    pub(crate) fn reject(response: Box<Response<&'static str>>) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(crate) fn wait(pending: PendingRequest<S, A, I, B>) -> Self {
        Self { state: State::Waiting { pending: Box::new(pending) } }
    }
}

impl<S: Service<Request<B>>, A, I, B> fmt::Debug for ResponseFuture<S, A, I, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Forwarding { .. } => "Forwarding",
            State::Rejected { .. } => "Rejected",
            State::Waiting { .. } => "Waiting",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}

impl<S, A, I, B, R> Future for ResponseFuture<S, A, I, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: Admit,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Forwarding { future, headers } => {
                    let mut response = ready!(future.poll(cx))?;
                    if let Some(headers) = headers.take() {
                        response.headers_mut().extend(*headers);
                    }
                    return Poll::Ready(Ok(response.map(ResponseBody::new)));
                }
                StateProjection::Rejected { response } => {
                    let response = response.take().expect("a future is not polled after it was ready");
                    return Poll::Ready(Ok(response.map(ResponseBody::from)));
                }
                StateProjection::Waiting { pending } => ready!(pending.poll(cx)),
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, A: Admit, I, B> PendingRequest<S, A, I, B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, A, I, B, S::Future>> {
        let reply = ready!(self.reply.as_mut().poll(cx));
        let request = self.request.take().expect("a reply comes once");
        let next_action = self.layer.next_action(Some(self.id.as_ref()), &reply, request.headers());
        Poll::Ready(match next_action {
            RequestAction::Forward(headers) => {
                State::Forwarding { future: self.service.call(request), headers }
            }
            RequestAction::Reject(response) => State::Rejected { response: Some(response) },
        })
    }
}
