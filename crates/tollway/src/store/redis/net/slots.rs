//! The node of each slot, and how a node reports them.

use std::ops::RangeInclusive;

use redis::Value;

use super::node::NodeId;
use crate::store::redis::Address;

/// The number of slots of a Cluster.
const SLOTS: usize = 16384;

/// A range of slots, and the primary that has them.
pub(super) type SlotRange = (RangeInclusive<u16>, Address);

/// Maps every slot to its node.
#[derive(Debug)]
pub(super) struct Slots {
    owners: Vec<Option<NodeId>>,
}

impl Slots {
    /// Makes a map in which no node has a slot.
    pub(super) fn empty() -> Self {
        Self { owners: vec![None; SLOTS] }
    }

    /// Returns the node that has a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<NodeId> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    /// Assigns slots to a node.
    pub(super) fn assign(&mut self, slots: RangeInclusive<u16>, node: NodeId) {
        for slot in slots {
            if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
                *owner = Some(node);
            }
        }
    }

    /// Returns the nodes that have slots, each once, in the order of their first slots.
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

/// Parses the answer to `CLUSTER SLOTS`: the first and the last slot of each range, its primary and then its replicas.
///
/// A node that does not know its own host leaves it out: it is the host of `asked`, the node that was asked.
pub(super) fn read(answer: &Value, asked: &Address) -> Result<Vec<SlotRange>, String> {
    let Value::Array(values) = answer else { return Err(format!("the slot map is not a list: {answer:?}")) };
    let ranges: Option<Vec<_>> = values.iter().map(|range| slot_range(range, asked)).collect();
    match ranges {
        Some(ranges) if !ranges.is_empty() => Ok(ranges),
        Some(_) => Err("no node has any slots".to_owned()),
        None => Err(format!("the slot map cannot be read: {answer:?}")),
    }
}

fn slot_range(range: &Value, asked: &Address) -> Option<SlotRange> {
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
    fn ranges_are_parsed_as_a_node_reports_them() {
        let reply = "*2\r\n\
            *4\r\n:0\r\n:5460\r\n*3\r\n$8\r\n10.0.0.1\r\n:1\r\n$1\r\na\r\n*3\r\n$8\r\n10.0.0.9\r\n:9\r\n$1\r\nb\r\n\
            *3\r\n:5461\r\n:5461\r\n*3\r\n$0\r\n\r\n:2\r\n$1\r\nc\r\n";
        let answer = redis::parse_redis_value(reply.as_bytes()).unwrap();
        let asked = address("10.0.0.7", 7);
        let ranges = read(&answer, &asked).unwrap();
        assert_eq!(ranges, [(0..=5460, address("10.0.0.1", 1)), (5461..=5461, address("10.0.0.7", 2))]);
    }

    #[test]
    fn malformed_slot_maps_are_errors() {
        for reply in ["*0\r\n", ":1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n", "*1\r\n*3\r\n:-1\r\n:1\r\n*0\r\n"] {
            let answer = redis::parse_redis_value(reply.as_bytes()).unwrap();
            assert!(read(&answer, &address("a", 1)).is_err(), "{reply:?}");
        }
    }

    #[test]
    fn owners_are_listed_by_their_first_slots() {
        let mut slots = Slots::empty();
        assert_eq!((slots.owner(3), slots.owners()), (None, vec![]));
        slots.assign(0..=100, 7);
        slots.assign(50..=60, 2);
        assert_eq!((slots.owner(50), slots.owner(61), slots.owner(16384)), (Some(2), Some(7), None));
        assert_eq!(slots.owners(), [7, 2]);
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }
}
