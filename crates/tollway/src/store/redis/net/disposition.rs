//! Classifies a reply: an answer, an error, a redirect, or a reason to retry.

use redis::{ServerError, ServerErrorKind, Value};

use crate::store::redis::Address;

/// The kind of a reply, which tells what has to be done. All but the first two mean that the call was not executed.
#[derive(Debug, PartialEq)]
pub(super) enum Disposition {
    /// The reply is the answer.
    Answer(Value),
    /// The call failed, and would fail again.
    Refused(String),
    /// The node does not know the script.
    NoScript,
    /// Another node has the slot.
    Moved { slot: u16, to: Address },
    /// The slot is being moved to another node, which has the keys of this call already.
    Ask(Address),
    /// The node cannot execute any call now: it became a replica, loads its data, or has lost its Cluster.
    Unfit(String),
    /// The call has to be repeated in a moment: its slot is being moved, or no node has it.
    Later(String),
}

impl Disposition {
    /// Classifies a reply of the node at `from`.
    pub(super) fn of(reply: Value, from: &Address) -> Self {
        match reply {
            Value::ServerError(error) => Self::of_error(&error, from),
            answer => Self::Answer(answer),
        }
    }

    fn of_error(error: &ServerError, from: &Address) -> Self {
        let details = error.details().unwrap_or_default();
        let text = || format!("{} {details}", error.code());
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Self::NoScript,
            Some(ServerErrorKind::Moved) => match redirection(details, from) {
                Some((slot, to)) => Self::Moved { slot, to },
                None => Self::Refused(text()),
            },
            Some(ServerErrorKind::Ask) => match redirection(details, from) {
                Some((_, to)) => Self::Ask(to),
                None => Self::Refused(text()),
            },
            Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading) => {
                Self::Unfit(text())
            }
            // The same code is used for a slot that no node has. The other slots are not affected.
            Some(ServerErrorKind::ClusterDown) if details.contains("slot") => Self::Later(text()),
            Some(ServerErrorKind::ClusterDown) => Self::Unfit(text()),
            Some(ServerErrorKind::TryAgain) => Self::Later(text()),
            // Before Redis 7, a script that may not write has an error text of its own. It has written nothing.
            _ if details.contains("-READONLY ") => Self::Unfit(text()),
            _ => Self::Refused(text()),
        }
    }
}

/// Parses `3999 10.0.0.1:6381`. If the host is missing, it is the host of the node that answered.
fn redirection(details: &str, from: &Address) -> Option<(u16, Address)> {
    let (slot, address) = details.split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { &from.host } else { host };
    Some((slot.parse().ok()?, Address { host: host.to_owned(), port: port.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_redis_is_classified() {
        let (here, there) = (address("10.0.0.1", 1), address("10.0.0.2", 2));
        for (text, expected) in [
            ("NOSCRIPT No matching script. Please use EVAL.", Disposition::NoScript),
            ("MOVED 3999 10.0.0.2:2", Disposition::Moved { slot: 3999, to: there.clone() }),
            ("MOVED 3999 :2", Disposition::Moved { slot: 3999, to: address("10.0.0.1", 2) }),
            ("MOVED 3999 2001:db8::1:2", Disposition::Moved { slot: 3999, to: address("2001:db8::1", 2) }),
            ("MOVED somewhere", refused("MOVED somewhere")),
            ("ASK 3999 10.0.0.2:2", Disposition::Ask(there)),
            ("READONLY You can't write", Disposition::Unfit("READONLY You can't write".to_owned())),
            ("LOADING Redis is loading", Disposition::Unfit("LOADING Redis is loading".to_owned())),
            ("MASTERDOWN Link is down", Disposition::Unfit("MASTERDOWN Link is down".to_owned())),
            (
                "CLUSTERDOWN The cluster is down",
                Disposition::Unfit("CLUSTERDOWN The cluster is down".to_owned()),
            ),
            (
                "CLUSTERDOWN Hash slot not served",
                Disposition::Later("CLUSTERDOWN Hash slot not served".to_owned()),
            ),
            ("TRYAGAIN Multiple keys", Disposition::Later("TRYAGAIN Multiple keys".to_owned())),
            ("OOM command not allowed", refused("OOM command not allowed")),
            ("ERR unknown command", refused("ERR unknown command")),
        ] {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            assert_eq!(Disposition::of(reply, &here), expected);
        }
        assert_eq!(Disposition::of(Value::Int(1), &here), Disposition::Answer(Value::Int(1)));
    }

    fn refused(text: &str) -> Disposition {
        Disposition::Refused(text.to_owned())
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }
}
