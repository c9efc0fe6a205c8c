//! Bodies that pass through: nothing is kept of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use super::pool::Lease;

type Piece = Poll<Option<Result<Frame<Bytes>, hyper::Error>>>;

/// What a client gets.
pub(super) enum Answer {
    /// What the upstream says, and the connection it comes on, which is free again when all has been said.
    Passed { body: Incoming, lease: Option<Lease> },
    /// What we say.
    Ours(Option<Bytes>),
}

impl Answer {
    pub(super) fn passed(body: Incoming, lease: Option<Lease>) -> Self {
        let mut answer = Self::Passed { body, lease };
        answer.give_back_at_the_end();
        answer
    }

    /// A connection is of no use to others before.
    fn give_back_at_the_end(&mut self) {
        if let Self::Passed { body, lease } = self
            && body.is_end_stream()
            && let Some(lease) = lease.take()
        {
            lease.give_back();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Piece {
        let answer = self.get_mut();
        match answer {
            Self::Ours(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passed { body, lease } => {
                let piece = ready!(Pin::new(body).poll_frame(context));
                match piece {
                    None => lease.take().into_iter().for_each(Lease::give_back),
                    Some(_) => answer.give_back_at_the_end(),
                }
                Poll::Ready(piece)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Ours(bytes) => bytes.is_none(),
            Self::Passed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ours(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Passed { body, .. } => body.size_hint(),
        }
    }
}

/// What the upstream gets.
#[derive(Default)]
pub(super) struct Question {
    /// Nothing of a request without a body.
    rest: Option<(Incoming, Arc<AtomicBool>)>,
}

/// Has all of a request gone out? An upstream may answer before, and then its connection is not free.
pub(super) struct Sent(Option<Arc<AtomicBool>>);

impl Sent {
    pub(super) fn is_all(&self) -> bool {
        self.0.as_ref().is_none_or(|sent| sent.load(Ordering::Relaxed))
    }
}

impl Question {
    pub(super) fn new(body: Incoming) -> Self {
        let rest = (!body.is_end_stream()).then(|| (body, Arc::default()));
        Self { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_none()
    }

    pub(super) fn sent(&self) -> Sent {
        Sent(self.rest.as_ref().map(|(_, sent)| Arc::clone(sent)))
    }
}

impl Body for Question {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Piece {
        let Some((body, sent)) = &mut self.rest else { return Poll::Ready(None) };
        let piece = ready!(Pin::new(&mut *body).poll_frame(context));
        if piece.is_none() || body.is_end_stream() {
            sent.store(true, Ordering::Relaxed);
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}
