//! The bodies of requests and responses, which are streamed and not stored, and the progress of each.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use thiserror::Error;

use super::pace::{Pace, Patience};
use super::pool::Lease;
use super::proxy::Busy;
use super::streams::Taking;

/// Why an answer breaks off.
#[derive(Debug, Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Upstream(#[from] hyper::Error),
    #[error("the upstream closed the connection in the middle of the body")]
    Stalled,
}

/// What a client gets.
pub(super) struct Answer {
    words: Words,
    /// How its client takes it, if it may do so at a pace of its own.
    taking: Option<Arc<Taking>>,
    /// Counts the request as open until the response ends.
    busy: Option<Busy>,
}

enum Words {
    /// What the upstream says, and the connection it comes on, which is free again when all has been said.
    Passed { body: Incoming, lease: Option<Lease>, moved: u64, pace: Option<Pace> },
    /// What we say.
    Ours(Option<Bytes>),
}

impl Answer {
    /// An upstream that said how long its answer is has it, and may not stop for longer than its patience. Any other may wait
    /// for something to say.
    pub(super) fn passed(body: Incoming, lease: Option<Lease>, patience: &Patience) -> Self {
        let has_length = body.size_hint().exact().is_some() && !body.is_end_stream();
        let pace = has_length.then(|| Pace::new(patience.clone()));
        let mut words = Words::Passed { body, lease, moved: 0, pace };
        words.give_back_at_the_end();
        Self { words, taking: None, busy: None }
    }

    pub(super) fn ours(text: impl Into<Bytes>) -> Self {
        Self { words: Words::Ours(Some(text.into())), taking: None, busy: None }
    }

    /// Ends with this answer, or when its client is gone.
    pub(super) fn until_its_end(&mut self, busy: Busy) {
        (self.taking, self.busy) = (Taking::of_this_request(), Some(busy));
    }
}

impl Words {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Self::Passed { body, lease, moved, pace } = self else {
            let Self::Ours(bytes) = self else { return Poll::Ready(None) };
            return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
        };
        let Poll::Ready(piece) = Pin::new(body).poll_frame(context) else {
            let Some(pace) = pace else { return Poll::Pending };
            return pace.poll_too_slow(context, *moved).map(|()| Some(Err(Broken::Stalled)));
        };
        if let Some(pace) = pace {
            pace.rest();
        }
        match &piece {
            None => lease.take().into_iter().for_each(Lease::give_back),
            Some(piece) => {
                *moved += len(piece);
                self.give_back_at_the_end();
            }
        }
        Poll::Ready(piece.map(|piece| piece.map_err(Broken::from)))
    }

    /// A connection is of no use to others before.
    fn give_back_at_the_end(&mut self) {
        if let Self::Passed { body, lease, .. } = self
            && body.is_end_stream()
            && let Some(lease) = lease.take()
        {
            lease.give_back();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let answer = &mut *self;
        if let Some(taking) = &answer.taking {
            taking.asked();
        }
        let piece = ready!(answer.words.poll_next(context));
        if let (Some(taking), Some(piece)) = (&answer.taking, &piece) {
            taking.gave(len(piece));
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        match &self.words {
            Words::Ours(bytes) => bytes.is_none(),
            Words::Passed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.words {
            Words::Ours(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Words::Passed { body, .. } => body.size_hint(),
        }
    }
}

fn len<E>(piece: &Result<Frame<Bytes>, E>) -> u64 {
    piece.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64
}

/// What the upstream gets.
#[derive(Default)]
pub(super) struct Question {
    /// Nothing of a request without a body.
    rest: Option<(Incoming, Arc<Upload>)>,
}

/// How the body of a request gets on.
#[derive(Default)]
pub(super) struct Upload {
    moved: AtomicU64,
    stage: AtomicU8,
}

/// What a body waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// The upstream, which has not asked for more.
    Upstream,
    /// The client, which has not sent more.
    Client,
    /// Nothing: all of it has gone out.
    Sent,
    /// Nothing: the client broke it off, or it is none.
    Broken,
}

impl Upload {
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn stage(&self) -> Stage {
        let stage = self.stage.load(Ordering::Relaxed);
        let stages = [Stage::Upstream, Stage::Client, Stage::Sent];
        stages.into_iter().find(|known| *known as u8 == stage).unwrap_or(Stage::Broken)
    }

    fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

impl Question {
    pub(super) fn new(body: Incoming) -> Self {
        let rest = (!body.is_end_stream()).then(|| (body, Arc::default()));
        Self { rest }
    }

    /// Nothing if there is no body.
    pub(super) fn upload(&self) -> Option<Arc<Upload>> {
        self.rest.as_ref().map(|(_, upload)| Arc::clone(upload))
    }
}

impl Body for Question {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some((body, upload)) = &mut self.rest else { return Poll::Ready(None) };
        let Poll::Ready(piece) = Pin::new(&mut *body).poll_frame(context) else {
            upload.enter(Stage::Client);
            return Poll::Pending;
        };
        upload.enter(match &piece {
            Some(Err(_)) => Stage::Broken,
            Some(Ok(_)) if !body.is_end_stream() => Stage::Upstream,
            _ => Stage::Sent,
        });
        if let Some(piece) = &piece {
            upload.moved.fetch_add(len(piece), Ordering::Relaxed);
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
