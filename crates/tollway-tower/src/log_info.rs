//! Log info: bytes about a request that a gatekeeper sends to its master, which may log them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use http::header::USER_AGENT;

use crate::identify::RequestHead;

/// The source that log info is taken from.
#[derive(Clone, Default)]
pub(crate) enum LogInfoSource {
    #[default]
    UserAgent,
    Closure(Arc<LogInfoFn>),
}

type LogInfoFn = dyn Fn(RequestHead<'_>) -> Cow<'_, [u8]> + Send + Sync;

/// The log info of one request, which is made only when [`bytes`](Self::bytes) is called.
pub struct LogInfo<'a> {
    head: RequestHead<'a>,
    source: &'a LogInfoSource,
}

impl<'a> LogInfo<'a> {
    pub(crate) const fn new(head: RequestHead<'a>, source: &'a LogInfoSource) -> Self {
        Self { head, source }
    }

    /// Returns the log info, which may be empty.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self.source {
            LogInfoSource::UserAgent => user_agent(self.head).into(),
            LogInfoSource::Closure(closure) => closure(self.head),
        }
    }
}

impl fmt::Debug for LogInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogInfo").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Returns the `User-Agent` of a request, empty if it has none.
pub fn user_agent(head: RequestHead<'_>) -> &[u8] {
    head.headers.get(USER_AGENT).map_or(&[], HeaderValue::as_bytes)
}
