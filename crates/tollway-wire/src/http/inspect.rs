//! The query and the response of `GET /v1/inspect?limit=Login&id=alice`, which reports the state of one bucket.
//!
//! ```text
//! {"bucket":"Login:alice","algorithm":{"name":"token_bucket","burst":5,"count":5,"period":60},
//!  "remaining":4,"retry_after":0,"reset_after":12,
//!  "state":{"full_at":"2026-11-16T01:41:43Z"},"at":"2026-11-16T01:41:31Z"}
//! ```
//!
//! Both directions are here: the server writes what the client reads.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tollway_core::algorithm::{FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket};
use tollway_core::{Algorithm, Timestamp};

use super::command::{MalformedRequest, missing_field};
use super::query_string::{parse_parameters, percent_encode, text};
use super::server_response::{ResponseError, parse_seconds, read_body, unexpected_body};
use crate::decimal::{put_seconds, put_u64};
use crate::json::put_string;
use crate::rfc3339::{Rfc3339, parse_rfc3339};

/// A query that asks for the state of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectQuery<'a> {
    /// The name of the limit that has the bucket.
    pub limit: Cow<'a, str>,
    /// The id as the caller wrote it.
    pub id: Cow<'a, [u8]>,
}

/// The state of one bucket, as it is reported to people.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BucketReport {
    /// The readable key of the bucket, such as `Login:alice`.
    pub bucket: String,
    /// The algorithm and its numbers. `None` if the id is not limited, or if the limit is the inline limit, whose
    /// numbers come with each request.
    pub algorithm: Option<Algorithm>,
    /// The number of whole units that are left. `None` if there are no numbers.
    pub remaining: Option<u64>,
    /// The time until one more unit would be allowed. `None` if waiting does not help, or if there are no numbers.
    pub retry_after: Option<Duration>,
    /// The time until the bucket is in its initial state again. `None` if that never happens, or if the id is not
    /// limited.
    pub reset_after: Option<Duration>,
    /// The state that the store holds. `None` if it holds none.
    pub state: Option<StateSummary>,
    /// The time of this observation, which is taken from the store's clock.
    pub at: Timestamp,
}

impl BucketReport {
    /// Creates the report of a bucket that has no state and is not limited. The other fields can be set.
    pub const fn new(bucket: String, algorithm: Option<Algorithm>, at: Timestamp) -> Self {
        let (remaining, retry_after, reset_after, state) = (None, None, None, None);
        Self { bucket, algorithm, remaining, retry_after, reset_after, state, at }
    }
}

/// A summary of the state that a store holds for one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum StateSummary {
    /// Describes a token bucket.
    TokenBucket {
        /// The time at which the bucket is full again.
        full_at: Timestamp,
    },
    /// Describes a sliding log.
    SlidingLog {
        /// The number of entries that the log has.
        entries: u64,
        /// The time of the oldest entry.
        oldest: Timestamp,
        /// The time of the newest entry.
        newest: Timestamp,
    },
    /// Describes a smoothed rate.
    SmoothedRate {
        /// The rate that was measured last, in requests per period.
        rate: f64,
        /// The time of that measurement.
        measured_at: Timestamp,
    },
    /// Describes a quota.
    Quota {
        /// The number of units that are used.
        used: u64,
        /// The time at which the quota starts again.
        expires_at: Timestamp,
    },
    /// Describes a fixed window.
    FixedWindow {
        /// The number of units that are used in the window.
        used: u64,
        /// The time at which the window ends.
        ends_at: Timestamp,
    },
    /// Describes a sliding window.
    SlidingWindow {
        /// The number of units that were used in the window that was used last.
        current: u64,
        /// The number of units that were used in the window before that.
        previous: u64,
        /// The time at which the window ends that was used last.
        ends_at: Timestamp,
    },
}

impl<'a> InspectQuery<'a> {
    /// Parses a query string.
    pub fn from_query(query: &'a str) -> Result<Self, MalformedRequest> {
        let [limit, id] = parse_parameters(query, ["limit", "id"])?;
        Ok(Self {
            limit: text("limit", limit.ok_or_else(|| missing_field("limit", "send the name of a limit"))?)?,
            id: id.ok_or_else(|| missing_field("id", "send who or what is limited"))?,
        })
    }

    /// Returns the query string of this query.
    pub fn to_query(&self) -> String {
        format!("limit={}&id={}", percent_encode(self.limit.as_bytes()), percent_encode(&self.id))
    }
}

impl BucketReport {
    /// Appends the response body as JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"bucket":"#);
        put_string(out, &self.bucket);
        out.extend_from_slice(br#","algorithm":"#);
        match &self.algorithm {
            Some(algorithm) => put_algorithm(out, algorithm),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","remaining":"#);
        put_or_null(out, self.remaining, put_u64);
        out.extend_from_slice(br#","retry_after":"#);
        put_or_null(out, self.retry_after, |out, span| put_seconds(out, span.into()));
        out.extend_from_slice(br#","reset_after":"#);
        put_or_null(out, self.reset_after, |out, span| put_seconds(out, span.into()));
        out.extend_from_slice(br#","state":"#);
        put_or_null(out, self.state, |out, state| state.put_json(out));
        put_at(out, r#","at":"#, self.at);
        out.push(b'}');
    }

    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        let fields: BucketReportFields<'_> = read_body(status, body)?;
        let numbers = |numbers: &AlgorithmFields<'_>| {
            numbers.algorithm().ok_or_else(|| unexpected_body(status, "\"algorithm\" is malformed"))
        };
        let state = |state: &StateSummaryFields<'_>| {
            state.state().ok_or_else(|| unexpected_body(status, "\"state\" is malformed"))
        };
        Ok(Self {
            bucket: fields.bucket,
            algorithm: fields.algorithm.as_ref().map(numbers).transpose()?,
            remaining: fields.remaining,
            retry_after: parse_seconds(fields.retry_after),
            reset_after: parse_seconds(fields.reset_after),
            state: fields.state.as_ref().map(state).transpose()?,
            at: parse_rfc3339(fields.at).ok_or_else(|| unexpected_body(status, "its time makes no sense"))?,
        })
    }
}

impl StateSummary {
    fn put_json(self, out: &mut Vec<u8>) {
        match self {
            Self::TokenBucket { full_at } => put_at(out, r#"{"full_at":"#, full_at),
            Self::SlidingLog { entries, oldest, newest } => {
                out.extend_from_slice(br#"{"entries":"#);
                put_u64(out, entries);
                put_at(out, r#","oldest":"#, oldest);
                put_at(out, r#","newest":"#, newest);
            }
            Self::SmoothedRate { rate, measured_at } => {
                out.extend_from_slice(format!(r#"{{"rate":{rate}"#).as_bytes());
                put_at(out, r#","measured_at":"#, measured_at);
            }
            Self::Quota { used, expires_at } => {
                out.extend_from_slice(br#"{"used":"#);
                put_u64(out, used);
                put_at(out, r#","expires_at":"#, expires_at);
            }
            Self::FixedWindow { used, ends_at } => {
                out.extend_from_slice(br#"{"used":"#);
                put_u64(out, used);
                put_at(out, r#","ends_at":"#, ends_at);
            }
            Self::SlidingWindow { current, previous, ends_at } => {
                out.extend_from_slice(br#"{"current":"#);
                put_u64(out, current);
                out.extend_from_slice(br#","previous":"#);
                put_u64(out, previous);
                put_at(out, r#","ends_at":"#, ends_at);
            }
        }
        out.push(b'}');
    }
}

/// Writes the state for people, such as `full_at 2026-11-16T01:41:43Z`.
impl Display for StateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TokenBucket { full_at } => write!(f, "full_at {}", Rfc3339(full_at)),
            Self::SlidingLog { entries, oldest, newest } => {
                write!(f, "entries {entries}, oldest {}, newest {}", Rfc3339(oldest), Rfc3339(newest))
            }
            Self::SmoothedRate { rate, measured_at } => {
                write!(f, "rate {rate}, measured_at {}", Rfc3339(measured_at))
            }
            Self::Quota { used, expires_at } => write!(f, "used {used}, expires_at {}", Rfc3339(expires_at)),
            Self::FixedWindow { used, ends_at } => write!(f, "used {used}, ends_at {}", Rfc3339(ends_at)),
            Self::SlidingWindow { current, previous, ends_at } => {
                write!(f, "current {current}, previous {previous}, ends_at {}", Rfc3339(ends_at))
            }
        }
    }
}

fn put_algorithm(out: &mut Vec<u8>, algorithm: &Algorithm) {
    out.extend_from_slice(br#"{"name":"#);
    put_string(out, algorithm.name());
    let (count, period) = match algorithm {
        Algorithm::TokenBucket(limit) => {
            out.extend_from_slice(br#","burst":"#);
            put_u64(out, limit.burst());
            (limit.count().to_string(), limit.period())
        }
        Algorithm::SlidingLog(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::SmoothedRate(limit) => (limit.limit().to_string(), limit.period()),
        Algorithm::Quota(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::FixedWindow(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::SlidingWindow(limit) => (limit.count().to_string(), limit.period()),
    };
    out.extend_from_slice(br#","count":"#);
    out.extend_from_slice(count.as_bytes());
    out.extend_from_slice(br#","period":"#);
    put_seconds(out, period);
    match algorithm {
        Algorithm::SmoothedRate(limit) if limit.strict() => out.extend_from_slice(br#","strict":true"#),
        Algorithm::SmoothedRate(_) => out.extend_from_slice(br#","strict":false"#),
        Algorithm::FixedWindow(limit) => {
            out.extend_from_slice(br#","offset":"#);
            put_seconds(out, limit.offset());
        }
        _ => {}
    }
    out.push(b'}');
}

fn put_or_null<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => put(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

fn put_at(out: &mut Vec<u8>, key: &str, moment: Timestamp) {
    out.extend_from_slice(format!("{key}\"{}\"", Rfc3339(moment)).as_bytes());
}

/// The fields that a response may have. Unknown ones are ignored: a later server may add some.
#[derive(Deserialize)]
struct BucketReportFields<'a> {
    bucket: String,
    #[serde(borrow)]
    algorithm: Option<AlgorithmFields<'a>>,
    remaining: Option<u64>,
    #[serde(borrow)]
    retry_after: Option<&'a RawValue>,
    #[serde(borrow)]
    reset_after: Option<&'a RawValue>,
    #[serde(borrow)]
    state: Option<StateSummaryFields<'a>>,
    at: &'a str,
}

#[derive(Deserialize)]
struct AlgorithmFields<'a> {
    name: &'a str,
    burst: Option<u64>,
    #[serde(borrow)]
    count: &'a RawValue,
    #[serde(borrow)]
    period: &'a RawValue,
    strict: Option<bool>,
    #[serde(borrow)]
    offset: Option<&'a RawValue>,
}

impl AlgorithmFields<'_> {
    fn algorithm(&self) -> Option<Algorithm> {
        let period = parse_seconds(Some(self.period))?;
        let count = self.count.get();
        Some(match self.name {
            "token_bucket" => {
                Algorithm::TokenBucket(TokenBucket::new(self.burst?, count.parse().ok()?, period).ok()?)
            }
            "sliding_log" => Algorithm::SlidingLog(SlidingLog::new(count.parse().ok()?, period).ok()?),
            "smoothed_rate" => {
                let numbers = SmoothedRate::new(count.parse().ok()?, period, self.strict?);
                Algorithm::SmoothedRate(numbers.ok()?)
            }
            "quota" => Algorithm::Quota(Quota::new(count.parse().ok()?, period).ok()?),
            "fixed_window" => {
                let numbers = FixedWindow::new(count.parse().ok()?, period, parse_seconds(self.offset)?);
                Algorithm::FixedWindow(numbers.ok()?)
            }
            "sliding_window" => {
                Algorithm::SlidingWindow(SlidingWindow::new(count.parse().ok()?, period).ok()?)
            }
            _ => return None,
        })
    }
}

#[derive(Deserialize)]
struct StateSummaryFields<'a> {
    full_at: Option<&'a str>,
    entries: Option<u64>,
    oldest: Option<&'a str>,
    newest: Option<&'a str>,
    rate: Option<f64>,
    measured_at: Option<&'a str>,
    used: Option<u64>,
    expires_at: Option<&'a str>,
    current: Option<u64>,
    previous: Option<u64>,
    ends_at: Option<&'a str>,
}

impl StateSummaryFields<'_> {
    fn state(&self) -> Option<StateSummary> {
        Some(match *self {
            Self { full_at: Some(full_at), .. } => {
                StateSummary::TokenBucket { full_at: parse_rfc3339(full_at)? }
            }
            Self { entries: Some(entries), oldest: Some(oldest), newest: Some(newest), .. } => {
                StateSummary::SlidingLog {
                    entries,
                    oldest: parse_rfc3339(oldest)?,
                    newest: parse_rfc3339(newest)?,
                }
            }
            Self { rate: Some(rate), measured_at: Some(measured_at), .. } => {
                StateSummary::SmoothedRate { rate, measured_at: parse_rfc3339(measured_at)? }
            }
            Self { used: Some(used), expires_at: Some(expires_at), .. } => {
                StateSummary::Quota { used, expires_at: parse_rfc3339(expires_at)? }
            }
            Self { used: Some(used), ends_at: Some(ends_at), .. } => {
                StateSummary::FixedWindow { used, ends_at: parse_rfc3339(ends_at)? }
            }
            Self { current: Some(current), previous: Some(previous), ends_at: Some(ends_at), .. } => {
                StateSummary::SlidingWindow { current, previous, ends_at: parse_rfc3339(ends_at)? }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_understood_and_written() {
        for (query, limit, id) in [
            ("limit=L&id=a", "L", &b"a"[..]),
            ("id=%2541%ff&limit=L", "L", b"%41\xff"),
            ("limit=L&id=a%26b+c:/~", "L", b"a&b+c:/~"),
            ("limit=L&id=", "L", b""),
        ] {
            let asked = InspectQuery::from_query(query).unwrap();
            assert_eq!((&*asked.limit, &*asked.id), (limit, id), "{query}");
            assert_eq!(InspectQuery::from_query(&asked.to_query()), Ok(asked.clone()), "{query}");
        }
        for (query, field) in [("", "limit"), ("limit=L", "id"), ("id=a", "limit"), ("limit=L&id=%", "id")] {
            assert_eq!(InspectQuery::from_query(query).unwrap_err().field.as_deref(), Some(field), "{query}");
        }
    }

    #[test]
    fn buckets_are_written_and_read_back() {
        let second = Duration::from_secs(1);
        let at = Timestamp::from_nanos(1_500_000_000);
        let numbers = [
            Algorithm::TokenBucket(TokenBucket::new(5, 10, second).unwrap()),
            Algorithm::SlidingLog(SlidingLog::new(5, second).unwrap()),
            Algorithm::SmoothedRate(SmoothedRate::new(22.5, second, true).unwrap()),
            Algorithm::Quota(Quota::new(u64::MAX, Duration::from_nanos(1)).unwrap()),
            Algorithm::FixedWindow(FixedWindow::new(5, second, Duration::from_millis(250)).unwrap()),
            Algorithm::SlidingWindow(SlidingWindow::new(5, second).unwrap()),
        ];
        let states = [
            StateSummary::TokenBucket { full_at: at },
            StateSummary::SlidingLog { entries: 2, oldest: Timestamp::EPOCH, newest: at },
            StateSummary::SmoothedRate { rate: 0.1, measured_at: at },
            StateSummary::Quota { used: 7, expires_at: at },
            StateSummary::FixedWindow { used: 7, ends_at: at },
            StateSummary::SlidingWindow { current: 7, previous: 0, ends_at: at },
        ];
        let whole = BucketReport {
            bucket: "L:\"a".to_owned(),
            algorithm: None,
            remaining: Some(u64::MAX),
            retry_after: Some(Duration::from_nanos(50_000_001)),
            reset_after: Some(Duration::ZERO),
            state: None,
            at,
        };
        let limited = numbers.into_iter().zip(states).flat_map(|(numbers, state)| {
            let limited = BucketReport { algorithm: Some(numbers), ..whole.clone() };
            [BucketReport { state: Some(state), ..limited.clone() }, limited]
        });
        let unlimited =
            BucketReport { remaining: None, retry_after: None, reset_after: None, ..whole.clone() };
        for inspected in limited.chain([unlimited]) {
            let mut json = Vec::new();
            inspected.put_json(&mut json);
            let text = String::from_utf8_lossy(&json);
            assert_eq!(BucketReport::from_json(200, &json).unwrap(), inspected, "{text}");
        }
    }

    #[test]
    fn a_bucket_reads_well() {
        let inspected = BucketReport {
            bucket: "Login:alice".to_owned(),
            algorithm: Some(Algorithm::TokenBucket(TokenBucket::new(5, 5, Duration::from_secs(60)).unwrap())),
            remaining: Some(4),
            retry_after: Some(Duration::ZERO),
            reset_after: Some(Duration::from_secs(12)),
            state: Some(StateSummary::TokenBucket { full_at: Timestamp::from_nanos(12_000_000_000) }),
            at: Timestamp::EPOCH,
        };
        let mut json = Vec::new();
        inspected.put_json(&mut json);
        let expected = concat!(
            r#"{"bucket":"Login:alice","algorithm":{"name":"token_bucket","burst":5,"count":5,"period":60},"#,
            r#""remaining":4,"retry_after":0,"reset_after":12,"#,
            r#""state":{"full_at":"1970-01-01T00:00:12Z"},"at":"1970-01-01T00:00:00Z"}"#,
        );
        assert_eq!(String::from_utf8_lossy(&json), expected);
    }

    #[test]
    fn what_makes_no_sense_is_no_bucket() {
        let body = r#"{"bucket":"L:a","algorithm":ALGORITHM,"state":STATE,"at":"AT"}"#;
        let body = |algorithm: &str, state: &str, at: &str| {
            body.replace("ALGORITHM", algorithm).replace("STATE", state).replace("AT", at)
        };
        let at = "1970-01-01T00:00:00Z";
        assert!(BucketReport::from_json(200, body("null", "null", at).as_bytes()).is_ok());
        for body in [
            body(r#"{"name":"quota","count":0,"period":1}"#, "null", at),
            body(r#"{"name":"quota","count":1,"period":-1}"#, "null", at),
            body(r#"{"name":"fixed_window","count":1,"period":1}"#, "null", at),
            body(r#"{"name":"leaky","count":1,"period":1}"#, "null", at),
            body(r#"{"name":"token_bucket","count":1,"period":1}"#, "null", at),
            body("null", "{}", at),
            body("null", r#"{"full_at":"soon"}"#, at),
            body("null", "null", "now"),
        ] {
            let error = BucketReport::from_json(200, body.as_bytes()).unwrap_err();
            assert!(matches!(error, ResponseError::UnexpectedBody { .. }), "{body}: {error}");
        }
    }
}
