//! Reads and writes the messages of unary calls: five bytes with the length, and the message.
//!
//! tonic does the same for calls of every kind, with a read and a write buffer of 8 KiB for each. These calls have one
//! short message each way. Through tonic, a call took 28 allocations of 24 KB together.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tonic::Status;

use super::connection::OtherCall;

/// The bytes before a message: one that says whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Reads the only message of a call, up to the end of the call. A message of more than `max` bytes is an error before
/// it has arrived.
pub(super) async fn read_message(mut body: Incoming, max: usize) -> Result<Bytes, Status> {
    // Nearly all messages arrive in one piece, and are not copied.
    let (mut first, mut pieces) = (Bytes::new(), Vec::new());
    loop {
        let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else { break };
        let frame = frame.map_err(|error| Status::cancelled(error.to_string()))?;
        let Ok(data) = frame.into_data() else { break };
        if first.is_empty() {
            first = data;
        } else {
            if pieces.is_empty() {
                pieces.extend_from_slice(&first);
            }
            pieces.extend_from_slice(&data);
        }
        check_length(if pieces.is_empty() { &first } else { &pieces }, max)?;
        if body.is_end_stream() {
            break;
        }
    }
    let mut arrived = if pieces.is_empty() { first } else { pieces.into() };
    match check_length(&arrived, max)? {
        Some(length) if arrived.len() == PREFIX + length => {
            arrived.advance(PREFIX);
            Ok(arrived)
        }
        None if arrived.is_empty() => Err(Status::unimplemented("the call has no message")),
        _ => Err(Status::internal("the call ends within its message")),
    }
}

/// Returns the length of the message, if its prefix has arrived. More than one message is an error.
fn check_length(arrived: &[u8], max: usize) -> Result<Option<usize>, Status> {
    let Some([compressed, length @ ..]) = arrived.first_chunk::<PREFIX>() else { return Ok(None) };
    if *compressed != 0 {
        return Err(Status::unimplemented("the message is compressed; send it without compression"));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > max {
        return Err(Status::out_of_range(format!("the message has {length} bytes, and {max} are allowed")));
    }
    if arrived.len() > PREFIX + length {
        return Err(Status::unimplemented("the call has more than one message"));
    }
    Ok(Some(length))
}

/// The body of an answer.
pub(super) enum AnswerBody {
    /// A message that has not been sent.
    Message(Bytes),
    /// A message that has been sent, and is followed by its status.
    Status,
    /// Everything has been sent.
    End,
    /// An error.
    Error(tonic::body::Body),
    /// The answer of another service, which is counted until it ends.
    Other { body: tonic::body::Body, _counted: OtherCall },
}

/// Returns a message with its prefix, as it is sent. `put` appends the message.
pub(super) fn message(put: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend([0; PREFIX]);
    put(&mut out);
    let length = u32::try_from(out.len() - PREFIX).expect("an answer is shorter than four gigabytes");
    out[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    out.into()
}

/// Returns the response that has this answer, or this error.
pub(super) fn response(answer: Result<Bytes, Status>) -> Response<AnswerBody> {
    match answer {
        Ok(message) => {
            let mut response = Response::new(AnswerBody::Message(message));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response
        }
        Err(status) => status.into_http().map(AnswerBody::Error),
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut *self {
            Self::Message(message) => {
                let message = std::mem::take(message);
                *self = Self::Status;
                Poll::Ready(Some(Ok(Frame::data(message))))
            }
            Self::Status => {
                *self = Self::End;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Self::End => Poll::Ready(None),
            Self::Error(body) | Self::Other { body, .. } => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Message(_) | Self::Status => false,
            Self::End => true,
            Self::Error(body) | Self::Other { body, .. } => body.is_end_stream(),
        }
    }
}
