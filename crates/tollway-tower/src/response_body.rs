//! The body type of responses, which wraps the service's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response: the service's own is passed on unchanged, and a rejection has a line of text.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Option<B>,
        text: &'static str,
    }
}

impl<B> ResponseBody<B> {
    /// Wraps the body of a service.
    pub const fn new(inner: B) -> Self {
        Self { inner: Some(inner), text: "" }
    }
}

/// Makes the body of a [`Rejection`](crate::Rejection).
impl<B> From<&'static str> for ResponseBody<B> {
    fn from(text: &'static str) -> Self {
        Self { inner: None, text }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data: From<&'static str>>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll_frame(cx),
            None if this.text.is_empty() => Poll::Ready(None),
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.text).into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.text.is_empty(), B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let text = || SizeHint::with_exact(self.text.len() as u64);
        self.inner.as_ref().map_or_else(text, B::size_hint)
    }
}
