//! The HTTP/1.1 protocol, which carries JSON requests and responses, and RateLimit headers.
//!
//! ```text
//! -> POST /v1/spend                {"limit":"Login","id":"alice"}
//! <- 200, RateLimit: "Login";r=4;t=12
//!    {"allowed":true,"remaining":4,"retry_after":0,"reset_after":12,"limit":"Login"}
//! ```
//!
//! It has three layers, each usable alone: [`Framer`] finds complete requests in the read buffer, [`HttpCommand`] reads
//! a body, and [`ResponseWriter`] writes the response. The framing is our own, on top of `httparse`, for two reasons:
//! the bookkeeping of a general server costs more than a decision of the limiter, and everything that a peer can make
//! us store must have a bound here.

mod buckets_page;
mod command;
mod event_stream;
mod explain;
mod framing;
mod gate_query;
mod inspect;
mod json_object;
mod keys_page;
mod live;
mod problem_details;
mod query_string;
pub mod rate_limit_headers;
mod recording;
mod response_writer;
mod rule;
mod sender;
mod server_response;
mod status;
mod throttlecrab;
mod trace_parent;

pub use buckets_page::{BucketsPage, ExportQuery, ImportCounts, ImportQuery};
pub use command::{ChargeRequest, ChargeRequests, HttpCommand, IdNotUtf8, MalformedRequest};
pub use event_stream::{EVENT_MAX, EventDecoder, EventStreamError, ServerSentEvent};
pub use explain::{RuleExplanation, RulePart, RulePartKind};
pub use framing::{Framer, FramerEvent, FramingError, HEADERS_MAX, HttpRequest, Method, MissingPart};
pub use gate_query::{DenyStatus, GateCharge, GateQuery, GateRule, IdSource, ProxiedRequest};
pub use inspect::{BucketReport, InspectQuery, StateSummary};
pub use keys_page::{KeysPage, KeysQuery};
pub use live::{
    GateState, LastDenial, LimitHistory, LimitState, LiveCounts, LiveEvent, LiveHistory, LiveLatency,
    LiveSnapshot, ServerState, StoreNode, StoreState, SubjectKind, TopBy, TopEntry, TopQuery, TopReport,
};
pub use problem_details::ProblemDetails;
pub use recording::{
    DECISIONS_EVENT, LiveQuery, RecordQuery, RecordedIds, RecordingProgress, RecordingStart, put_trace_lines,
};
pub use response_writer::ResponseWriter;
pub use rule::{HttpRuleRequest, RuleResponse};
pub use sender::{HostHeader, SenderHeaders, bearer_token};
pub use server_response::{ResponseError, ServerResponse};
pub use status::HttpStatus;
pub use throttlecrab::ThrottlecrabRequest;
pub use trace_parent::TraceParent;

pub use crate::rfc3339::Rfc3339;
