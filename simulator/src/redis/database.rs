//! The keys of a simulated Redis, and the commands that the scripts call.

use std::collections::HashMap;

use tollway::core::{Nanos, Timestamp};

use super::resp::Reply;

/// The keys that a Redis holds, and their values. Only what changed since the last replication is copied to a replica.
#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    keys: HashMap<Vec<u8>, Stored>,
    changed: Vec<Vec<u8>>,
    /// The time of Redis's own clock.
    pub(super) now: Timestamp,
    /// The time by which keys expire too early. A Redis has none.
    pub(super) early: Nanos,
}

#[derive(Clone, Debug)]
struct Stored {
    value: Value,
    expires_at: Option<u64>,
}

#[derive(Clone, Debug)]
enum Value {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
}

impl Database {
    /// Executes a command. The words are its name and its arguments.
    pub(super) fn execute(&mut self, words: &[Vec<u8>]) -> Reply {
        let name = words[0].to_ascii_uppercase();
        let key = words.get(1).cloned().unwrap_or_default();
        self.expire(&key);
        match &name[..] {
            b"TIME" => {
                let micros = self.now.as_nanos() / 1_000;
                let part = |number: u64| Reply::Bulk(number.to_string().into_bytes());
                Reply::Array(vec![part(micros / 1_000_000), part(micros % 1_000_000)])
            }
            b"GET" => match self.keys.get(&key).map(|stored| &stored.value) {
                None => Reply::Nothing,
                Some(Value::Text(text)) => Reply::Bulk(text.clone()),
                Some(Value::List(_)) => wrong_type(),
            },
            b"SET" => self.set(key, words),
            b"DEL" | b"UNLINK" => {
                let removed = words[1..].iter().filter(|key| self.remove(key)).count();
                Reply::Integer(i64::try_from(removed).unwrap_or(i64::MAX))
            }
            b"PTTL" => self.keys.get(&key).map_or(Reply::Integer(-2), |stored| {
                Reply::Integer(stored.expires_at.map_or(-1, |at| signed(at) - signed(self.millis())))
            }),
            b"PEXPIRE" | b"PEXPIREAT" => {
                let base = if &name[..] == b"PEXPIRE" { self.millis() } else { 0 };
                let at = base + number(&words[2]).unsigned_abs();
                let Some(stored) = self.keys.get_mut(&key) else { return Reply::Integer(0) };
                stored.expires_at = Some(at);
                self.changed.push(key);
                Reply::Integer(1)
            }
            _ => self.execute_on_list(&name, key, words),
        }
    }

    fn execute_on_list(&mut self, name: &[u8], key: Vec<u8>, words: &[Vec<u8>]) -> Reply {
        let mut list = match self.keys.get(&key).map(|stored| &stored.value) {
            None => Vec::new(),
            Some(Value::List(list)) => list.clone(),
            Some(Value::Text(_)) => return wrong_type(),
        };
        let reply = match name {
            b"LLEN" => return length(&list),
            b"LINDEX" => {
                let place = place(number(&words[2]), list.len());
                return place
                    .and_then(|place| list.get(place))
                    .map_or(Reply::Nothing, |entry| Reply::Bulk(entry.clone()));
            }
            b"RPUSH" => {
                list.extend(words[2..].iter().cloned());
                length(&list)
            }
            b"LSET" => {
                let Some(place) = place(number(&words[2]), list.len()).filter(|place| *place < list.len())
                else {
                    return Reply::Error("ERR index out of range".to_owned());
                };
                list[place] = words[3].clone();
                Reply::Status("OK")
            }
            b"LTRIM" => {
                let first = place(number(&words[2]), list.len()).unwrap_or(0);
                let last = place(number(&words[3]), list.len());
                list.truncate(last.map_or(0, |last| last + 1));
                list.drain(..first.min(list.len()));
                Reply::Status("OK")
            }
            b"LREM" => {
                let (count, mut removed) = (number(&words[2]), 0);
                while removed < count.unsigned_abs() || count == 0 {
                    let mut entries = list.iter();
                    let found = match count < 0 {
                        true => entries.rposition(|entry| *entry == words[3]),
                        false => entries.position(|entry| *entry == words[3]),
                    };
                    let Some(found) = found else { break };
                    list.remove(found);
                    removed += 1;
                }
                Reply::Integer(signed(removed))
            }
            other => return Reply::Error(format!("ERR unknown command {}", String::from_utf8_lossy(other))),
        };
        if list.is_empty() {
            self.remove(&key);
            return reply;
        }
        let expires_at = self.keys.get(&key).and_then(|stored| stored.expires_at);
        self.insert(key, Value::List(list), expires_at);
        reply
    }

    fn set(&mut self, key: Vec<u8>, words: &[Vec<u8>]) -> Reply {
        let expires_at = match words.get(3).map(|option| option.to_ascii_uppercase()).as_deref() {
            Some(b"PXAT") => Some(number(&words[4]).unsigned_abs()),
            Some(b"PX") => Some(self.millis() + number(&words[4]).unsigned_abs()),
            Some(b"KEEPTTL") => self.keys.get(&key).and_then(|stored| stored.expires_at),
            _ => None,
        };
        self.insert(key, Value::Text(words[2].clone()), expires_at);
        Reply::Status("OK")
    }

    /// Returns true if something has changed since the last replication.
    pub(super) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Copies what has changed to a replica.
    pub(super) fn replicate(&mut self, replica: &mut Self) {
        for key in self.changed.drain(..) {
            match self.keys.get(&key) {
                Some(stored) => drop(replica.keys.insert(key, stored.clone())),
                None => drop(replica.keys.remove(&key)),
            }
        }
    }

    /// Takes the place of a primary that is lost.
    pub(super) fn promote(&mut self, replica: &Self) {
        self.keys = replica.keys.clone();
        self.changed.clear();
    }

    fn insert(&mut self, key: Vec<u8>, value: Value, expires_at: Option<u64>) {
        self.changed.push(key.clone());
        self.keys.insert(key, Stored { value, expires_at });
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.changed.push(key.to_vec());
        self.keys.remove(key).is_some()
    }

    fn expire(&mut self, key: &[u8]) {
        let now = self.millis() + self.early.get() / 1_000_000;
        if self.keys.get(key).is_some_and(|stored| stored.expires_at.is_some_and(|at| at <= now)) {
            self.remove(key);
        }
    }

    fn millis(&self) -> u64 {
        self.now.as_nanos() / 1_000_000
    }
}

fn wrong_type() -> Reply {
    Reply::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
}

fn length(list: &[Vec<u8>]) -> Reply {
    Reply::Integer(i64::try_from(list.len()).unwrap_or(i64::MAX))
}

/// Returns the place that an index means; a negative one counts from the end.
fn place(index: i64, length: usize) -> Option<usize> {
    let from_start = if index < 0 { index + i64::try_from(length).ok()? } else { index };
    usize::try_from(from_start).ok()
}

/// Returns the number that a word is. Scripts may write one as a double.
fn number(word: &[u8]) -> i64 {
    let text = std::str::from_utf8(word).unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
