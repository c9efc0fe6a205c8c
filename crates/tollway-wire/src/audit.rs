//! Writes the lines of an audit log: who changed what, and from where.
//!
//! ```text
//! {"at":"2026-11-18T02:00:00.5Z","who":"ops","what":"reset","gate":"admin","from":"10.0.0.7","limit":"Login","id":"alice"}
//! {"at":"2026-11-18T02:00:09Z","who":"file","what":"reload","file":"/etc/tollway.yaml","outcome":"done"}
//! ```
//!
//! A line is one JSON object. A field that does not apply is left out.

use std::net::IpAddr;

use serde::{Serialize, Serializer};
use tollway_core::Timestamp;

use crate::rfc3339::Rfc3339;

/// The outcome of a change about which the store gave no answer. It may have been made all the same.
pub const UNKNOWN: &str = "unknown";
/// The outcome of a reload or an import that changed nothing.
pub const FAILED: &str = "failed";
/// The outcome of an import that took a part of the buckets, before a batch was refused.
pub const PARTIAL: &str = "partial";

/// One line of an audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditLine {
    /// The time at which it happened.
    #[serde(serialize_with = "put_time")]
    pub at: Timestamp,
    /// The name of the token, `certificate sha256:` and the fingerprint of the client's certificate, `anyone`, `signal`
    /// or `file`.
    pub who: Box<str>,
    /// The change: `reset`, `refund`, `override`, `reload`, `export` or `import`.
    pub what: &'static str,
    /// The gate that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<&'static str>,
    /// The address that the request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// The limit of the bucket that was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<str>>,
    /// The id of the bucket, in the form that the configuration chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// The units that were given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The `from` of an exported page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u64>,
    /// The file that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Box<str>>,
    /// The outcome of a reload: `done` or [`FAILED`]; of an import that was refused: [`FAILED`] or [`PARTIAL`]; the
    /// kind of change that an override had: `added`, `changed` or `removed`; or [`UNKNOWN`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

impl AuditLine {
    /// Creates a line that says who did what and when, and nothing else.
    pub fn new(at: Timestamp, who: &str, what: &'static str) -> Self {
        Self {
            at,
            who: who.into(),
            what,
            gate: None,
            from: None,
            limit: None,
            id: None,
            cost: None,
            page: None,
            file: None,
            outcome: None,
        }
    }

    /// Appends the line, with its end.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(&mut *out, self).expect("a line has JSON, and writing to memory cannot fail");
        out.push(b'\n');
    }
}

fn put_time<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Rfc3339(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_applies_and_stays_one_line() {
        let reset = AuditLine {
            gate: Some("admin"),
            from: Some("10.0.0.7".parse().unwrap()),
            limit: Some("Login".into()),
            id: Some("a\n\"b".into()),
            cost: Some(2),
            ..AuditLine::new(Timestamp::from_nanos(1_500_000_000), "ops", "refund")
        };
        let reload = AuditLine {
            file: Some("/etc/tollway.yaml".into()),
            outcome: Some("done"),
            ..AuditLine::new(Timestamp::EPOCH, "signal", "reload")
        };
        let mut out = Vec::new();
        reset.put_json(&mut out);
        reload.put_json(&mut out);
        let expected = concat!(
            r#"{"at":"1970-01-01T00:00:01.5Z","who":"ops","what":"refund","gate":"admin","from":"10.0.0.7","#,
            r#""limit":"Login","id":"a\n\"b","cost":2}"#,
            "\n",
            r#"{"at":"1970-01-01T00:00:00Z","who":"signal","what":"reload","file":"/etc/tollway.yaml","outcome":"done"}"#,
            "\n",
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
