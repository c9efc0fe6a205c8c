//! Classifies a reply: an answer, an error, a redirect, or a reason to retry.

use redis::{ServerError, ServerErrorKind, Value};

use crate::store::redis::Address;

/// What to do about a reply. All but the first two are replies to calls that were not executed.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    /// It is the answer.
    Answer(Value),
    /// It failed, and would fail again.
    Refused(String),
    /// The node does not know the script.
    NoScript,
    /// The slot has another node.
    Moved { slot: u16, to: Address },
    /// The slot is on its way to another node, and the keys of this call are there already.
    Ask(Address),
    /// The node cannot help anybody now: it became a replica, loads its data, or has lost its Cluster.
    Unfit(String),
    /// In a moment: a slot is being moved, or has nobody.
    Later(String),
}

impl Meaning {
    /// Reads a reply that came from the node at `from`.
    pub(super) fn of(reply: Value, from: &Address) -> Self {
        match reply {
            Value::ServerError(error) => Self::of_error(&error, from),
            answer => Self::Answer(answer),
        }
    }

    fn of_error(error: &ServerError, from: &Address) -> Self {
        let details = error.details().unwrap_or_default();
        let said = || format!("{} {details}", error.code());
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Self::NoScript,
            Some(ServerErrorKind::Moved) => match redirection(details, from) {
                Some((slot, to)) => Self::Moved { slot, to },
                None => Self::Refused(said()),
            },
            Some(ServerErrorKind::Ask) => match redirection(details, from) {
                Some((_, to)) => Self::Ask(to),
                None => Self::Refused(said()),
            },
            Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading) => {
                Self::Unfit(said())
            }
            // The same word for a slot that nobody has, which leaves all the others as they were.
            Some(ServerErrorKind::ClusterDown) if details.contains("slot") => Self::Later(said()),
            Some(ServerErrorKind::ClusterDown) => Self::Unfit(said()),
            Some(ServerErrorKind::TryAgain) => Self::Later(said()),
            // Before Redis 7, a script that may not write says so in words of its own. It has written nothing.
            _ if details.contains("-READONLY ") => Self::Unfit(said()),
            _ => Self::Refused(said()),
        }
    }
}

/// Reads `3999 10.0.0.1:6381`. Without a host it is the host that said so.
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
    fn every_error_that_redis_has_for_us_is_understood() {
        let (here, there) = (address("10.0.0.1", 1), address("10.0.0.2", 2));
        for (said, meant) in [
            ("NOSCRIPT No matching script. Please use EVAL.", Meaning::NoScript),
            ("MOVED 3999 10.0.0.2:2", Meaning::Moved { slot: 3999, to: there.clone() }),
            ("MOVED 3999 :2", Meaning::Moved { slot: 3999, to: address("10.0.0.1", 2) }),
            ("MOVED 3999 2001:db8::1:2", Meaning::Moved { slot: 3999, to: address("2001:db8::1", 2) }),
            ("MOVED somewhere", refused("MOVED somewhere")),
            ("ASK 3999 10.0.0.2:2", Meaning::Ask(there)),
            ("READONLY You can't write", Meaning::Unfit("READONLY You can't write".to_owned())),
            ("LOADING Redis is loading", Meaning::Unfit("LOADING Redis is loading".to_owned())),
            ("MASTERDOWN Link is down", Meaning::Unfit("MASTERDOWN Link is down".to_owned())),
            ("CLUSTERDOWN The cluster is down", Meaning::Unfit("CLUSTERDOWN The cluster is down".to_owned())),
            (
                "CLUSTERDOWN Hash slot not served",
                Meaning::Later("CLUSTERDOWN Hash slot not served".to_owned()),
            ),
            ("TRYAGAIN Multiple keys", Meaning::Later("TRYAGAIN Multiple keys".to_owned())),
            ("OOM command not allowed", refused("OOM command not allowed")),
            ("ERR unknown command", refused("ERR unknown command")),
        ] {
            let reply = redis::parse_redis_value(format!("-{said}\r\n").as_bytes()).unwrap();
            assert_eq!(Meaning::of(reply, &here), meant);
        }
        assert_eq!(Meaning::of(Value::Int(1), &here), Meaning::Answer(Value::Int(1)));
    }

    fn refused(said: &str) -> Meaning {
        Meaning::Refused(said.to_owned())
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }
}
