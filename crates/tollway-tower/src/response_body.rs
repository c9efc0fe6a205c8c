//! The body type of responses, which wraps the service's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response: the service's own is passed on unchanged, and a rejection has an empty one.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Option<B>,
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const EMPTY: Self = Self { inner: None };

    pub(crate) const fn new(inner: B) -> Self {
        Self { inner: Some(inner) }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().inner.as_pin_mut() {
            Some(inner) => inner.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), B::size_hint)
    }
}
