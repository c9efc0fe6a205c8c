//! Which node has which slot.

use std::ops::RangeInclusive;

use redis::Value;

use super::node::NodeId;
use crate::store::redis::Address;

/// How many slots a Cluster has.
const SLOTS: usize = 16384;

/// Some slots, and the primary that has them.
pub(super) type Share = (RangeInclusive<u16>, Address);

/// The node of every slot.
#[derive(Debug)]
pub(super) struct Slots {
    owners: Vec<Option<NodeId>>,
}

impl Slots {
    /// Nobody has any.
    pub(super) fn nobodys() -> Self {
        Self { owners: vec![None; SLOTS] }
    }

    /// Who has a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<NodeId> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    /// Gives slots to a node.
    pub(super) fn give(&mut self, slots: RangeInclusive<u16>, node: NodeId) {
        for slot in slots {
            if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
                *owner = Some(node);
            }
        }
    }

    /// Everybody who has a slot, each once, in the order of their first slots.
    pub(super) fn owners(&self) -> Vec<NodeId> {
        let mut owners = Vec::new();
        let mut last = None;
        for owner in self.owners.iter().copied().flatten() {
            if last != Some(owner) && !owners.contains(&owner) {
                owners.push(owner);
            }
            last = Some(owner);
        }
        owners
    }
}

/// Reads what `CLUSTER SLOTS` answers: for each range of slots its first, its last, its primary and then its replicas.
///
/// A node that does not know its own name leaves it out: that is the node that was asked, at `asked`.
pub(super) fn read(answer: &Value, asked: &Address) -> Result<Vec<Share>, String> {
    let Value::Array(ranges) = answer else { return Err(format!("the slot map is not a list: {answer:?}")) };
    let shares: Option<Vec<_>> = ranges.iter().map(|range| share(range, asked)).collect();
    match shares {
        Some(shares) if !shares.is_empty() => Ok(shares),
        Some(_) => Err("no node has any slots".to_owned()),
        None => Err(format!("the slot map cannot be read: {answer:?}")),
    }
}

fn share(range: &Value, asked: &Address) -> Option<Share> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host != b"?" => std::str::from_utf8(host).ok()?,
        Value::BulkString(_) | Value::Nil => &asked.host,
        _ => return None,
    };
    let address = Address { host: host.to_owned(), port: u16::try_from(*port).ok()? };
    Some((u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_a_node_tells_them() {
        let told = "*2\r\n\
            *4\r\n:0\r\n:5460\r\n*3\r\n$8\r\n10.0.0.1\r\n:1\r\n$1\r\na\r\n*3\r\n$8\r\n10.0.0.9\r\n:9\r\n$1\r\nb\r\n\
            *3\r\n:5461\r\n:5461\r\n*3\r\n$0\r\n\r\n:2\r\n$1\r\nc\r\n";
        let answer = redis::parse_redis_value(told.as_bytes()).unwrap();
        let asked = address("10.0.0.7", 7);
        let shares = read(&answer, &asked).unwrap();
        assert_eq!(shares, [(0..=5460, address("10.0.0.1", 1)), (5461..=5461, address("10.0.0.7", 2))]);
    }

    #[test]
    fn what_no_node_would_tell_is_an_error() {
        for told in ["*0\r\n", ":1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n", "*1\r\n*3\r\n:-1\r\n:1\r\n*0\r\n"] {
            let answer = redis::parse_redis_value(told.as_bytes()).unwrap();
            assert!(read(&answer, &address("a", 1)).is_err(), "{told:?}");
        }
    }

    #[test]
    fn owners_are_listed_by_their_first_slots() {
        let mut slots = Slots::nobodys();
        assert_eq!((slots.owner(3), slots.owners()), (None, vec![]));
        slots.give(0..=100, 7);
        slots.give(50..=60, 2);
        assert_eq!((slots.owner(50), slots.owner(61), slots.owner(16384)), (Some(2), Some(7), None));
        assert_eq!(slots.owners(), [7, 2]);
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }
}
