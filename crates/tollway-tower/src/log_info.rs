//! What is told about a request beside who sent it, to who keeps a log.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderValue;
use http::header::USER_AGENT;

use crate::identify::RequestHead;

/// Where it comes from.
#[derive(Clone, Default)]
pub(crate) enum LogInfoSource {
    /// From the `User-Agent`.
    #[default]
    UserAgent,
    By(Arc<LogInfoFn>),
}

type LogInfoFn = dyn Fn(RequestHead<'_>) -> Cow<'_, [u8]> + Send + Sync;

/// What may be logged of a request. It is found out only if somebody asks.
pub struct LogInfo<'a> {
    head: RequestHead<'a>,
    source: &'a LogInfoSource,
}

impl<'a> LogInfo<'a> {
    pub(crate) const fn new(head: RequestHead<'a>, source: &'a LogInfoSource) -> Self {
        Self { head, source }
    }

    /// The bytes of it; none if there is nothing to say.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self.source {
            LogInfoSource::UserAgent => user_agent(self.head).into(),
            LogInfoSource::By(closure) => closure(self.head),
        }
    }
}

/// The `User-Agent` of a request, empty if it has none.
pub fn user_agent(head: RequestHead<'_>) -> &[u8] {
    head.headers.get(USER_AGENT).map_or(&[], HeaderValue::as_bytes)
}
