//! The bodies of requests and responses, which are streamed and not stored, and the progress of each.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use thiserror::Error;
use tollway_tower::ResponseBody;

use crate::connection::OpenRequest;
use crate::pool::Lease;
use crate::stall_timer::{StallTimeout, StallTimer};
use crate::stream_tasks::StreamProgress;

/// The body that a client gets: the upstream's, or the text of a rejection.
pub(crate) struct ClientBody {
    inner: ResponseBody<UpstreamBody>,
    /// The progress of the client, if the request has a task of its own.
    progress: Option<Arc<StreamProgress>>,
    /// Counts the request as open until the response ends, or its client is gone.
    _open: Option<OpenRequest>,
}

impl ClientBody {
    pub(crate) fn new(inner: ResponseBody<UpstreamBody>, open: Option<OpenRequest>) -> Self {
        Self { inner, progress: StreamProgress::of_this_request(), _open: open }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BrokenResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenResponse>>> {
        let this = &mut *self;
        if let Some(progress) = &this.progress {
            progress.asked();
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let (Some(progress), Some(frame)) = (&this.progress, &frame) {
            progress.gave(data_len(frame));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The reasons why a response ends before its body is complete.
#[derive(Debug, Error)]
pub(crate) enum BrokenResponse {
    #[error(transparent)]
    Upstream(#[from] hyper::Error),
    #[error("the upstream stopped in the middle of the body")]
    Stalled,
}

/// The body of the upstream's response, with the connection that it comes on.
pub(crate) struct UpstreamBody {
    body: Incoming,
    /// The connection, which others may use when the body has ended.
    lease: Option<Lease>,
    moved: u64,
    timer: Option<StallTimer>,
}

impl UpstreamBody {
    /// Wraps a body. An upstream that announced a length may not stall; one that did not may wait for events.
    pub(crate) fn new(body: Incoming, lease: Option<Lease>, timeout: &StallTimeout) -> Self {
        let has_length = body.size_hint().exact().is_some() && !body.is_end_stream();
        let timer = has_length.then(|| StallTimer::new(timeout.clone()));
        let mut this = Self { body, lease, moved: 0, timer };
        this.return_lease_at_end();
        this
    }

    fn return_lease_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.return_to_pool();
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BrokenResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenResponse>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            let Some(timer) = &mut this.timer else { return Poll::Pending };
            return timer.poll_stalled(cx, this.moved).map(|()| Some(Err(BrokenResponse::Stalled)));
        };
        if let Some(timer) = &mut this.timer {
            timer.stop();
        }
        match &frame {
            None => this.lease.take().into_iter().for_each(Lease::return_to_pool),
            Some(frame) => {
                this.moved += data_len(frame);
                this.return_lease_at_end();
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BrokenResponse::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn data_len<E>(frame: &Result<Frame<Bytes>, E>) -> u64 {
    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64
}

/// The body that the upstream gets: the client's, or none.
#[derive(Default)]
pub(crate) struct UploadBody(Option<(Incoming, Arc<UploadProgress>)>);

/// Counts the bytes of a request's body that were sent.
#[derive(Default)]
pub(crate) struct UploadProgress {
    moved: AtomicU64,
    stage: AtomicU8,
}

/// Tells which side a request's body waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UploadStage {
    /// The upstream has not asked for more.
    Upstream,
    /// The client has not sent more.
    Client,
    /// The whole body was sent.
    Sent,
    /// The client ended it too early, or sent an invalid one.
    Broken,
}

impl UploadProgress {
    /// Returns the number of bytes that were sent so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(crate) fn stage(&self) -> UploadStage {
        let stage = self.stage.load(Ordering::Relaxed);
        let stages = [UploadStage::Upstream, UploadStage::Client, UploadStage::Sent];
        stages.into_iter().find(|known| *known as u8 == stage).unwrap_or(UploadStage::Broken)
    }

    fn enter(&self, stage: UploadStage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

impl UploadBody {
    pub(crate) fn new(body: Incoming) -> Self {
        Self((!body.is_end_stream()).then(|| (body, Arc::default())))
    }

    /// Returns the progress of the body, or `None` if there is no body.
    pub(crate) fn progress(&self) -> Option<Arc<UploadProgress>> {
        self.0.as_ref().map(|(_, progress)| Arc::clone(progress))
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some((body, progress)) = &mut self.0 else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
            progress.enter(UploadStage::Client);
            return Poll::Pending;
        };
        progress.enter(match &frame {
            Some(Err(_)) => UploadStage::Broken,
            Some(Ok(_)) if !body.is_end_stream() => UploadStage::Upstream,
            _ => UploadStage::Sent,
        });
        if let Some(frame) = &frame {
            progress.moved.fetch_add(data_len(frame), Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}
