//! What becomes of one request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::response::Parts;
use http::{HeaderMap, Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::admit::{Admit, PendingReply};
use crate::identify::ClientId;
use crate::layer::{LayerState, RequestAction};
use crate::request_counts::one_more;
use crate::response_body::ResponseBody;

pin_project! {
    /// The response of the service, now or after a wait, or a rejection.
    pub struct ResponseFuture<S, A, I, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, A, I, B, S::Future>,
    }
}

pin_project! {
    // What seldom happens is boxed: the future of a request that passes is hardly larger than the service's own.
    #[project = StateProjection]
    enum State<S, A, I, B, F> {
        Passing { #[pin] future: F, announced: Option<Box<HeaderMap>> },
        Rejected { head: Option<Box<Parts>> },
        PendingRequest { asking: Box<PendingRequest<S, A, I, B>> },
    }
}

/// A request about which nothing is known yet.
pub(crate) struct PendingRequest<S, A, I, B> {
    answer: PendingReply,
    service: S,
    request: Option<Request<B>>,
    id: ClientId,
    shared: Arc<LayerState<A, I>>,
}

impl<S, A, I, B> PendingRequest<S, A, I, B> {
    pub(crate) fn new(
        answer: PendingReply,
        service: S,
        request: Request<B>,
        id: ClientId,
        shared: Arc<LayerState<A, I>>,
    ) -> Self {
        Self { answer, service, request: Some(request), id, shared }
    }
}

/// Whoever still has the request went away without an answer.
impl<S, A, I, B> Drop for PendingRequest<S, A, I, B> {
    fn drop(&mut self) {
        if self.request.is_some() {
            one_more(&self.shared.counters.abandoned);
        }
    }
}

impl<S: Service<Request<B>>, A, I, B> ResponseFuture<S, A, I, B> {
    pub(crate) fn pass(future: S::Future, announced: Option<Box<HeaderMap>>) -> Self {
        Self { state: State::Passing { future, announced } }
    }

    pub(crate) fn reject(head: Box<Parts>) -> Self {
        Self { state: State::Rejected { head: Some(head) } }
    }

    pub(crate) fn ask(asking: PendingRequest<S, A, I, B>) -> Self {
        Self { state: State::PendingRequest { asking: Box::new(asking) } }
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
                StateProjection::Passing { future, announced } => {
                    let mut response = ready!(future.poll(cx))?;
                    if let Some(announced) = announced.take() {
                        response.headers_mut().extend(*announced);
                    }
                    return Poll::Ready(Ok(response.map(ResponseBody::new)));
                }
                StateProjection::Rejected { head } => {
                    let head = head.take().expect("a future is not polled after it was ready");
                    return Poll::Ready(Ok(Response::from_parts(*head, ResponseBody::EMPTY)));
                }
                StateProjection::PendingRequest { asking } => ready!(asking.poll(cx)),
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, A: Admit, I, B> PendingRequest<S, A, I, B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, A, I, B, S::Future>> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        let request = self.request.take().expect("an answer is waited for once");
        let next_action = self.shared.next_action(Some(self.id.as_ref()), &answer, request.headers());
        Poll::Ready(match next_action {
            RequestAction::Forward(announced) => {
                State::Passing { future: self.service.call(request), announced }
            }
            RequestAction::Reject(head) => State::Rejected { head: Some(head) },
        })
    }
}
