//! Writes and reads the figures of a live server: `GET /v1/top`, and the events of `GET /v1/live`.
//!
//! ```text
//! GET /v1/top?by=denied&n=1
//! {"by":"denied","window":52.5,"total":430,"exact":true,
//!  "top":[{"limit":"Login","kind":"limit","id":"mallory","count_min":412,"count_max":412,"retry_after":12.5}]}
//!
//! GET /v1/live
//! event: history
//! data: {"step":1,"until":1700000000,"allowed":[3,4],"denied":[0,1],"degraded":[0,0],"limits":[]}
//!
//! event: snapshot
//! data: {"at":1700000001,"server":{"version":"0.1.0",…
//! ```
//!
//! Times are seconds, and `at` counts them since 1970. One definition of each type writes and reads it, so a server and
//! its clients cannot disagree. A client ignores fields that it does not know: a later server may add some.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::command::MalformedRequest;
use super::event_stream::ServerSentEvent;
use super::query_string::{malformed_parameter, parse_parameters, parse_u64, percent_encode, text};
use super::server_response::{ResponseError, read_body};

/// Names the count by which the ids of a list are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopBy {
    /// By the number of requests that were denied.
    #[default]
    Denied,
    /// By the cost of requests that were allowed.
    Spent,
}

impl TopBy {
    /// Every order.
    pub const ALL: [Self; 2] = [Self::Denied, Self::Spent];

    /// Returns the word for it in queries and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Spent => "spent",
        }
    }
}

/// The kind of thing that an id is limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectKind {
    /// A limit of the policy.
    Limit,
    /// A rule of the policy.
    Rule,
    /// The rates of keys, which the text gate asks for.
    Key,
    /// A limit whose numbers come with the request.
    Inline,
    /// A descriptor of Envoy's rate limit service.
    Descriptor,
    /// A domain of the Smockron gate.
    Domain,
}

/// A query that asks who uses the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopQuery<'a> {
    /// The order of the list.
    pub by: TopBy,
    /// The name of the only limit, rule or domain that is listed. `None` lists all of them.
    pub limit: Option<Cow<'a, str>>,
    /// The number of ids that are listed at most.
    pub n: usize,
}

impl<'a> TopQuery<'a> {
    /// The default number of ids in a list.
    pub const N: usize = 20;
    /// The greatest number of ids that can be asked for.
    pub const N_MAX: usize = 100;

    /// Parses a query string.
    pub fn from_query(query: &'a str) -> Result<Self, MalformedRequest> {
        let [by, limit, n] = parse_parameters(query, ["by", "limit", "n"])?;
        let by = by.map_or(Some(TopBy::default()), |by| {
            TopBy::ALL.into_iter().find(|order| order.name().as_bytes() == &*by)
        });
        let n = n.map_or(Some(Self::N), |digits| {
            let n = parse_u64(&digits).and_then(|n| usize::try_from(n).ok());
            n.filter(|n| (1..=Self::N_MAX).contains(n))
        });
        let range = format!("send a whole number from 1 to {}", Self::N_MAX);
        Ok(Self {
            by: by.ok_or_else(|| malformed_parameter("by", "send \"denied\" or \"spent\""))?,
            limit: limit.map(|limit| text("limit", limit)).transpose()?,
            n: n.ok_or_else(|| malformed_parameter("n", &range))?,
        })
    }

    /// Returns the query string of this query.
    pub fn to_query(&self) -> String {
        let limit = self.limit.as_ref().map(|limit| format!("&limit={}", percent_encode(limit.as_bytes())));
        format!("by={}{}&n={}", self.by.name(), limit.unwrap_or_default(), self.n)
    }
}

/// The ids that use the most.
#[must_use]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopReport {
    /// The order of the list.
    pub by: TopBy,
    /// The seconds until now that the counts are about.
    pub window: f64,
    /// The sum over all ids of all limits, rules and domains, which is exact; `None` for a client that may not see all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// True if every `count_min` equals its `count_max`; `None` for a client that may not see all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
    /// The ids, the largest `count_max` first.
    pub top: Vec<TopEntry>,
}

/// One id, and what it used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopEntry {
    /// The name of the limit, the rule or the domain.
    pub limit: String,
    /// The kind of thing that has this name.
    pub kind: SubjectKind,
    /// The id, as the server is configured to show it; `None` if it shows none.
    pub id: Option<String>,
    /// The least that the id can have used.
    pub count_min: u64,
    /// The most that the id can have used.
    pub count_max: u64,
    /// The seconds until a request of cost 1 would be allowed; `None` if that is not known.
    pub retry_after: Option<f64>,
    /// The numbers of the limit for this id, for people; `None` if they are not known.
    #[serde(default)]
    pub numbers: Option<String>,
}

impl TopReport {
    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        read_body(status, body)
    }

    /// Appends the response body as JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        put_json(self, out);
    }
}

/// The last minutes of a server, which a watcher gets first.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveHistory {
    /// The seconds between two points of the totals.
    pub step: u64,
    /// The time of the last point.
    pub until: f64,
    /// The requests that were allowed, oldest first.
    pub allowed: Vec<u64>,
    /// The requests that were denied.
    pub denied: Vec<u64>,
    /// The requests, of both, that were decided without the store.
    pub degraded: Vec<u64>,
    /// The decisions of each limit in the past.
    pub limits: Vec<LimitHistory>,
}

/// The last minutes of one limit, rule or domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHistory {
    /// The name of the limit, the rule or the domain.
    pub name: String,
    /// The kind of thing that has this name.
    pub kind: SubjectKind,
    /// The seconds between two points.
    pub step: u64,
    /// The requests that were decided, oldest first.
    pub decided: Vec<u64>,
    /// The requests, of these, that were denied.
    pub denied: Vec<u64>,
}

/// The state of a server in one second.
#[must_use]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveSnapshot {
    /// The time of the snapshot.
    pub at: f64,
    /// The server itself.
    pub server: ServerState,
    /// The requests of the last second.
    pub totals: LiveCounts,
    /// The times of the HTTP gate and of Envoy's service over the last ten seconds; `None` if they decided nothing.
    pub latency: Option<LiveLatency>,
    /// The limits, rules and domains.
    pub limits: Vec<LimitState>,
    /// The store.
    pub store: StoreState,
    /// The gates.
    pub gates: Vec<GateState>,
    /// The ids that were denied most.
    pub top_denied: Vec<TopEntry>,
    /// The ids that spent most.
    pub top_spent: Vec<TopEntry>,
    /// The last denials, newest first.
    pub last_denials: Vec<LastDenial>,
}

/// The state of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerState {
    /// The version of the server.
    pub version: String,
    /// The name of the machine.
    pub host: String,
    /// The seconds since the server started.
    pub uptime: f64,
    /// False if a part of the server has panicked and is started again.
    pub healthy: bool,
    /// True if the server accepts no more connections.
    pub draining: bool,
    /// The form in which ids are shown: `plain`, `hashed` or `off`.
    pub show_ids: String,
    /// False if the server counts no ids, so that the lists of ids and denials are empty.
    #[serde(default = "counts_ids")]
    pub watch: bool,
}

/// Returns what a server does that does not say whether it counts ids.
const fn counts_ids() -> bool {
    true
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCounts {
    /// The requests that were allowed.
    pub allowed: u64,
    /// The requests that were denied.
    pub denied: u64,
    /// The requests, of both, that were decided without the store.
    pub degraded: u64,
}

/// The times that answers took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveLatency {
    /// Half of the answers took at most this long.
    pub p50: f64,
    /// 99 % of the answers took at most this long.
    pub p99: f64,
}

/// The state of one limit, rule or domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitState {
    /// The name of the limit, the rule or the domain.
    pub name: String,
    /// The kind of thing that has this name.
    pub kind: SubjectKind,
    /// Its numbers, for people; empty if they come with each request, or if the configuration no longer has it.
    pub numbers: String,
    /// The requests of the last second.
    #[serde(flatten)]
    pub counts: LiveCounts,
    /// The share of requests that were denied over the last ten minutes; `None` if there were none.
    pub denied_share: Option<f64>,
}

/// The state of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreState {
    /// `memory` or `redis`.
    pub kind: String,
    /// The buckets in memory.
    pub buckets: u64,
    /// The largest number of them.
    pub max_buckets: u64,
    /// The buckets in memory that clients made without a configured limit.
    pub client_buckets: u64,
    /// The largest number of those.
    pub max_client_buckets: u64,
    /// The nodes of a shared store.
    pub nodes: Vec<StoreNode>,
    /// The time since which a node is unreachable; `None` if none is.
    pub degraded_since: Option<f64>,
}

/// The state of one node of a shared store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreNode {
    /// The address of the node.
    pub address: String,
    /// `up`, `connecting` or `unreachable`.
    pub state: String,
    /// The seconds for which it is unreachable; `None` if it is not.
    #[serde(rename = "for")]
    pub since: Option<f64>,
    /// The last failure of an unreachable node.
    pub reason: Option<String>,
}

/// The state of one gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateState {
    /// The name of the gate.
    pub name: String,
    /// The address at which it listens.
    pub address: String,
    /// The open connections; `None` if the gate has none.
    pub connections: Option<u64>,
    /// The largest number of connections.
    pub max_connections: Option<u64>,
    /// The connections that were refused since the start, for any reason: the sum of
    /// `tollway_connections_refused_total`.
    pub refused: u64,
    /// The idle connections that were closed to make room for others since the start:
    /// `tollway_connections_evicted_total`.
    pub evicted: u64,
    /// The requests of the last second; `None` if the gate does not count them.
    pub requests: Option<u64>,
}

/// One request that was denied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastDenial {
    /// The time of the denial, to a tenth of a second.
    pub at: f64,
    /// The name of the gate.
    pub gate: String,
    /// The name of the limit, the rule or the domain.
    pub limit: String,
    /// The kind of thing that has this name.
    pub kind: SubjectKind,
    /// The id, as the server is configured to show it; `None` if it shows none.
    pub id: Option<String>,
    /// The cost of the request.
    pub cost: u64,
    /// The seconds after which the same request would have been allowed; `None` if it never would, or if that is not
    /// known.
    pub retry_after: Option<f64>,
    /// The numbers of the limit for this id, for people; `None` if they are not known.
    #[serde(default)]
    pub numbers: Option<String>,
}

/// One event of `GET /v1/live`.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum LiveEvent {
    /// The first event.
    History(LiveHistory),
    /// The event of each second.
    Snapshot(Box<LiveSnapshot>),
}

impl LiveEvent {
    /// The name of the first event.
    pub const HISTORY: &str = "history";
    /// The name of the event of each second.
    pub const SNAPSHOT: &str = "snapshot";

    /// Appends the event in the format of server-sent events.
    pub fn put_event(&self, out: &mut Vec<u8>) {
        let name = match self {
            Self::History(_) => Self::HISTORY,
            Self::Snapshot(_) => Self::SNAPSHOT,
        };
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        // JSON on one line: a line break in a text is escaped, so it cannot end the event.
        match self {
            Self::History(history) => put_json(history, out),
            Self::Snapshot(snapshot) => put_json(snapshot, out),
        }
        out.extend_from_slice(b"\n\n");
    }

    /// Parses an event of the stream. An event of an unknown name is `None`: a later server may send some.
    pub fn from_event(event: &ServerSentEvent) -> Result<Option<Self>, serde_json::Error> {
        Ok(match &*event.name {
            Self::HISTORY => Some(Self::History(serde_json::from_str(&event.data)?)),
            Self::SNAPSHOT => Some(Self::Snapshot(serde_json::from_str(&event.data)?)),
            _ => None,
        })
    }
}

fn put_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("texts and numbers, written to memory");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::event_stream::EventDecoder;
    use super::*;

    #[test]
    fn queries_are_understood_and_written() {
        for (query, by, limit, n) in [
            ("", TopBy::Denied, None, 20),
            ("by=spent", TopBy::Spent, None, 20),
            ("n=100&limit=%4c&by=denied", TopBy::Denied, Some("L"), 100),
        ] {
            let asked = TopQuery::from_query(query).unwrap();
            assert_eq!((asked.by, asked.limit.as_deref(), asked.n), (by, limit, n), "{query}");
            assert_eq!(TopQuery::from_query(&asked.to_query()), Ok(asked.clone()), "{query}");
        }
        for (query, field) in [
            ("by=cost", Some("by")),
            ("by=", Some("by")),
            ("n=0", Some("n")),
            ("n=101", Some("n")),
            ("n=-1", Some("n")),
            ("limit=%ff", Some("limit")),
            ("n=1&n=1", Some("n")),
            ("count=1", None),
        ] {
            assert_eq!(TopQuery::from_query(query).unwrap_err().field.as_deref(), field, "{query}");
        }
    }

    #[test]
    fn a_report_has_the_documented_form() {
        let entry = TopEntry {
            limit: "Login".to_owned(),
            kind: SubjectKind::Limit,
            id: Some("mallory".to_owned()),
            count_min: 412,
            count_max: 430,
            retry_after: Some(12.5),
            numbers: Some("burst 5, 10 per 1h".to_owned()),
        };
        let report = TopReport {
            by: TopBy::Denied,
            window: 52.5,
            total: Some(12_345),
            exact: Some(false),
            top: vec![entry],
        };
        let mut out = Vec::new();
        report.put_json(&mut out);
        let json = r#"{"by":"denied","window":52.5,"total":12345,"exact":false,"top":[{"limit":"Login","kind":"limit","id":"mallory","count_min":412,"count_max":430,"retry_after":12.5,"numbers":"burst 5, 10 per 1h"}]}"#;
        assert_eq!(String::from_utf8_lossy(&out), json);
        assert_eq!(TopReport::from_json(200, &out).unwrap(), report);
    }

    fn kind() -> impl Strategy<Value = SubjectKind> {
        prop_oneof![
            Just(SubjectKind::Limit),
            Just(SubjectKind::Rule),
            Just(SubjectKind::Key),
            Just(SubjectKind::Inline),
            Just(SubjectKind::Descriptor),
            Just(SubjectKind::Domain),
        ]
    }

    /// Whole milliseconds: the last bit of a longer fraction may change when it is read.
    fn seconds(max: u32) -> impl Strategy<Value = f64> {
        (0..u64::from(max) * 1_000).prop_map(|millis| millis as f64 / 1e3)
    }

    prop_compose! {
        fn entry()(
            limit in any::<String>(), kind in kind(), id in any::<Option<String>>(),
            min in any::<u64>(), more in any::<u64>(), retry in proptest::option::of(seconds(1_000_000_000)),
            numbers in any::<Option<String>>(),
        ) -> TopEntry {
            let count_max = min.saturating_add(more);
            TopEntry { limit, kind, id, count_min: min, count_max, retry_after: retry, numbers }
        }
    }

    prop_compose! {
        fn history()(
            until in seconds(4_000_000_000), points in prop::collection::vec(any::<u64>(), 0..20),
            name in any::<String>(), kind in kind(),
        ) -> LiveHistory {
            let limit = LimitHistory { name, kind, step: 10, decided: points.clone(), denied: points.clone() };
            let (allowed, denied, degraded) = (points.clone(), points.clone(), points);
            LiveHistory { step: 1, until, allowed, denied, degraded, limits: vec![limit] }
        }
    }

    proptest! {
        #[test]
        fn reports_are_read_back(
            by in prop_oneof![Just(TopBy::Denied), Just(TopBy::Spent)], window in seconds(100),
            total in any::<Option<u64>>(), exact in any::<Option<bool>>(), top in prop::collection::vec(entry(), 0..5),
        ) {
            let report = TopReport { by, window, total, exact, top };
            let mut out = Vec::new();
            report.put_json(&mut out);
            prop_assert_eq!(TopReport::from_json(200, &out).unwrap(), report);
        }

        /// Whatever a name contains, an event is one event.
        #[test]
        fn events_are_read_back(history in history()) {
            let mut out = Vec::new();
            LiveEvent::History(history.clone()).put_event(&mut out);
            let mut decoder = EventDecoder::default();
            decoder.push(&out[..out.len() - 1]);
            prop_assert_eq!(decoder.next_event(), Ok(None));
            decoder.push(b"\n");
            let event = decoder.next_event().unwrap().unwrap();
            prop_assert_eq!(LiveEvent::from_event(&event).unwrap(), Some(LiveEvent::History(history)));
        }

        #[test]
        fn queries_never_panic(query in "[a-z&=%0-9]{0,40}") {
            let _ = TopQuery::from_query(&query);
        }
    }
}
