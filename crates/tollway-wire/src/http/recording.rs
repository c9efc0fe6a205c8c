//! Writes and reads a recording of live decisions: `GET /v1/live?all`.
//!
//! ```text
//! GET /v1/live?all&sample=16&ids=hashed
//! event: recording
//! data: {"version":"0.1.0","sample":16,"ids":"hashed","store":"memory","buckets":0,"has_policy":true}
//!
//! event: decisions                            each line of the data is a line of a trace
//! data: 0s  reload  {limits: {…}}  => ok
//! data: 0.25s  limit  spend Login:#3f2a…  => allow remaining=4 retry_after=0s reset_after=12s
//!
//! event: progress                             once a second
//! data: {"missed":0,"skipped":12}
//! ```

use serde::{Deserialize, Serialize};

use super::command::MalformedRequest;
use super::query_string::{malformed_parameter, parse_parameters, parse_u64};

/// The two kinds of events that a client of `GET /v1/live` can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveQuery {
    /// The figures of each second.
    Figures,
    /// The decisions themselves.
    Record(RecordQuery),
}

/// A query that asks for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordQuery {
    /// The decisions about one of this many ids are sent: a power of two.
    pub sample: u64,
    /// The form of the ids.
    pub ids: RecordedIds,
}

/// The form of the ids in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedIds {
    /// The ids as they are.
    #[default]
    Plain,
    /// A keyed hash of each id. The key is a new one for each recording, and the server keeps it to itself.
    Hashed,
}

impl RecordedIds {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Hashed => "hashed",
        }
    }
}

impl RecordQuery {
    /// The smallest sample: the decisions about one of this many ids.
    pub const SAMPLE_MAX: u64 = 1 << 16;

    /// Returns whether one of this many ids can be a sample. Powers of two are: then a smaller sample is a part of a
    /// larger one.
    pub const fn is_sample(sample: u64) -> bool {
        sample.is_power_of_two() && sample <= Self::SAMPLE_MAX
    }

    /// Returns the query string of this query.
    pub fn to_query(&self) -> String {
        format!("all&sample={}&ids={}", self.sample, self.ids.name())
    }
}

impl LiveQuery {
    /// Parses a query string.
    pub fn from_query(query: &str) -> Result<Self, MalformedRequest> {
        let [all, sample, ids] = parse_parameters(query, ["all", "sample", "ids"])?;
        if all.is_none() {
            let other = [("sample", &sample), ("ids", &ids)].into_iter().find(|(_, value)| value.is_some());
            let needs_all = |(name, _)| Err(malformed_parameter(name, "needs \"all\""));
            return other.map_or(Ok(Self::Figures), needs_all);
        }
        let sample = sample
            .map_or(Some(1), |digits| parse_u64(&digits).filter(|sample| RecordQuery::is_sample(*sample)));
        let ids = match ids.as_deref() {
            None => Some(RecordedIds::default()),
            Some(name) => [RecordedIds::Plain, RecordedIds::Hashed]
                .into_iter()
                .find(|ids| ids.name().as_bytes() == name),
        };
        let powers = format!("send a power of two from 1 to {}", RecordQuery::SAMPLE_MAX);
        Ok(Self::Record(RecordQuery {
            sample: sample.ok_or_else(|| malformed_parameter("sample", &powers))?,
            ids: ids.ok_or_else(|| malformed_parameter("ids", "send \"plain\" or \"hashed\""))?,
        }))
    }
}

/// The first event of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct RecordingStart {
    /// The version of the server.
    pub version: String,
    /// The decisions about one of this many ids are sent.
    pub sample: u64,
    /// The form of the ids, which the configuration of the server can decide.
    pub ids: RecordedIds,
    /// `memory` or `redis`.
    pub store: String,
    /// The buckets that were in memory when the recording began. If there were none, a replay begins as the server did.
    pub buckets: u64,
    /// True if the first line is the policy. A policy that is too long for a line is not sent.
    pub has_policy: bool,
}

/// The event of each second, and of each time that lines were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct RecordingProgress {
    /// The decisions since the last such event that were not sent, because the client read too slowly.
    pub missed: u64,
    /// The decisions since the start that no trace can have.
    pub skipped: u64,
}

impl RecordingStart {
    /// The name of the event.
    pub const EVENT: &str = "recording";

    /// Parses the data of the event.
    pub fn from_json(data: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(data)
    }

    /// Appends the event.
    pub fn put_event(&self, out: &mut Vec<u8>) {
        put_event(Self::EVENT, self, out);
    }
}

impl RecordingProgress {
    /// The name of the event.
    pub const EVENT: &str = "progress";

    /// Parses the data of the event.
    pub fn from_json(data: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(data)
    }

    /// Appends the event.
    pub fn put_event(&self, out: &mut Vec<u8>) {
        put_event(Self::EVENT, self, out);
    }
}

/// The name of the events whose data is lines of a trace.
pub const DECISIONS_EVENT: &str = "decisions";

/// Appends an event with lines of a trace, each of which ends with a line break.
pub fn put_trace_lines(lines: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("event: {DECISIONS_EVENT}\n").as_bytes());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
    }
    out.push(b'\n');
}

fn put_event(name: &str, data: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("event: {name}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *out, data).expect("texts and numbers, written to memory");
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::super::EventDecoder;
    use super::*;

    #[test]
    fn queries_are_understood_and_written() {
        assert_eq!(LiveQuery::from_query(""), Ok(LiveQuery::Figures));
        for (query, sample, ids) in [
            ("all", 1, RecordedIds::Plain),
            ("all&sample=16", 16, RecordedIds::Plain),
            ("ids=hashed&all=&sample=65536", 65_536, RecordedIds::Hashed),
        ] {
            let asked = LiveQuery::Record(RecordQuery { sample, ids });
            assert_eq!(LiveQuery::from_query(query), Ok(asked), "{query}");
            let LiveQuery::Record(asked) = asked else { unreachable!() };
            assert_eq!(LiveQuery::from_query(&asked.to_query()), Ok(LiveQuery::Record(asked)));
        }
        for (query, detail) in [
            ("sample=2", "\"sample\": needs \"all\""),
            ("all&sample=3", "\"sample\": send a power of two from 1 to 65536"),
            ("all&sample=0", "\"sample\": send a power of two"),
            ("all&sample=131072", "\"sample\": send a power of two"),
            ("all&ids=none", "\"ids\": send \"plain\" or \"hashed\""),
            ("some", "unknown parameter \"some\""),
        ] {
            let error = LiveQuery::from_query(query).unwrap_err();
            assert!(error.detail.starts_with(detail), "{query}: {}", error.detail);
        }
    }

    #[test]
    fn lines_are_the_data_of_one_event() {
        let mut out = Vec::new();
        put_trace_lines(b"0s  limit  spend A:1\n1s  limit  spend A:1\n", &mut out);
        RecordingProgress { missed: 2, skipped: 3 }.put_event(&mut out);
        let mut decoder = EventDecoder::default();
        decoder.push(&out);
        let lines = decoder.next_event().unwrap().unwrap();
        assert_eq!((&*lines.name, &*lines.data), ("decisions", "0s  limit  spend A:1\n1s  limit  spend A:1"));
        let progress = decoder.next_event().unwrap().unwrap();
        assert_eq!((&*progress.name, &*progress.data), ("progress", r#"{"missed":2,"skipped":3}"#));
    }
}
