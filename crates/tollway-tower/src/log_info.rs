//! What is told about a request beside who sent it, to who keeps a log.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderValue;
use http::header::USER_AGENT;

use crate::identify::Head;

/// Where it comes from.
#[derive(Clone, Default)]
pub(crate) enum Source {
    /// From the `User-Agent`.
    #[default]
    UserAgent,
    By(Arc<Say>),
}

type Say = dyn Fn(Head<'_>) -> Cow<'_, [u8]> + Send + Sync;

/// What may be logged of a request. It is found out only if somebody asks.
pub struct LogInfo<'a> {
    head: Head<'a>,
    source: &'a Source,
}

impl<'a> LogInfo<'a> {
    pub(crate) const fn new(head: Head<'a>, source: &'a Source) -> Self {
        Self { head, source }
    }

    /// The bytes of it; none if there is nothing to say.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        match self.source {
            Source::UserAgent => user_agent(self.head).into(),
            Source::By(closure) => closure(self.head),
        }
    }
}

/// The `User-Agent` of a request, empty if it has none.
pub fn user_agent(head: Head<'_>) -> &[u8] {
    head.headers.get(USER_AGENT).map_or(&[], HeaderValue::as_bytes)
}
