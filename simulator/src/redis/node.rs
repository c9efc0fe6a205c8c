//! A Redis with one replica: it runs the real scripts, and asks the oracle about every call that it executes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::HashSet;
use std::rc::Rc;

use tollway::core::{ChargeKind, Nanos, Timestamp, Verb};

use super::caller::{Answer, Caller};
use super::database::Database;
use super::lua::LuaScripts;
use super::resp::{self, Reply};
use crate::history::History;
use crate::oracle::{Ledger, Line, Model, Sharing};
use crate::plant::Plant;
use crate::requests::Request;
use crate::schedule::START;

/// The number of calls that were given up and may still be executed. They arrive within seconds, or never.
const LATE_MAX: usize = 4_096;

/// The process and the batch that identify a call.
pub(super) type CallKey = (usize, u64);

/// A primary that has a replica, and the oracle beside each.
pub(super) struct SimulatedRedis {
    scripts: LuaScripts,
    /// The scripts that the primary has loaded.
    loaded: HashSet<Vec<u8>>,
    replica: Database,
    model: Model,
    model_of_replica: Model,
    ledger: Ledger,
    now: Timestamp,
    /// The time by which the clock is ahead.
    ahead: Nanos,
    refuses: (Timestamp, &'static str),
    late: HashMap<CallKey, Request>,
    plant: Option<Plant>,
}

impl SimulatedRedis {
    pub(super) fn new(plant: Option<Plant>) -> Self {
        let early = if plant == Some(Plant::ExpiresEarly) { Nanos::from_secs(1) } else { Nanos::ZERO };
        let mut database = Database::default();
        database.early = early;
        Self {
            scripts: LuaScripts::new(Rc::new(RefCell::new(database))),
            loaded: HashSet::new(),
            replica: Database::default(),
            model: Model::new(Sharing::Shared),
            model_of_replica: Model::new(Sharing::Shared),
            ledger: Ledger::default(),
            now: START,
            ahead: Nanos::ZERO,
            refuses: (START, ""),
            late: HashMap::new(),
            plant,
        }
    }

    /// Sets the time of the world. The clock of Redis is ahead of it by what it has stepped.
    pub(super) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
        self.scripts.database().borrow_mut().now = self.own_time();
    }

    /// Steps the clock forward.
    pub(super) fn step_clock(&mut self, by: Nanos) {
        self.ahead = self.ahead + by;
    }

    /// Answers every command with an error until then, and executes none.
    pub(super) fn refuse_until(&mut self, until: Timestamp, error: &'static str) {
        self.refuses = (until, error);
    }

    /// Keeps the request of a call whose caller has gone, in case it is executed after all.
    pub(super) fn remember_late(&mut self, call: CallKey, request: Request) {
        if self.late.len() >= LATE_MAX {
            self.late.clear();
        }
        self.late.insert(call, request);
    }

    /// Returns true if the replica is behind.
    pub(super) fn has_changes(&self) -> bool {
        self.scripts.database().borrow().has_changes()
    }

    /// Brings the replica up to date.
    pub(super) fn replicate(&mut self) {
        if self.plant == Some(Plant::LosesMore) {
            // It says so, and has nothing.
            self.ledger.saved();
            self.model.replicate(&mut self.model_of_replica);
            return;
        }
        self.scripts.database().borrow_mut().replicate(&mut self.replica);
        self.model.replicate(&mut self.model_of_replica);
        self.ledger.saved();
    }

    /// Makes the replica the primary: what it has not received is forgotten.
    pub(super) fn fail_over(&mut self, knows_scripts: bool) {
        self.scripts.database().borrow_mut().promote(&self.replica);
        self.model = self.model_of_replica.clone();
        self.ledger.crashed();
        if !knows_scripts {
            self.loaded.clear();
        }
    }

    /// Executes one command, and returns the bytes of its reply. The caller has gone if only the call is known.
    pub(super) fn execute(
        &mut self,
        bytes: &[u8],
        caller: Option<&mut Caller>,
        call: Option<CallKey>,
        history: &mut History,
    ) -> Vec<u8> {
        let words = resp::words(bytes);
        let (until, error) = self.refuses;
        if until > self.now {
            return Reply::Error(format!("{error} simulated")).encode();
        }
        let reply = match &words[0][..] {
            b"PING" => Reply::Status("PONG"),
            b"SCRIPT" => self.load(&words[2]),
            b"EVALSHA" if !self.loaded.contains(&words[1]) => {
                Reply::Error("NOSCRIPT No matching script.".to_owned())
            }
            b"EVALSHA" => {
                let keys: usize = String::from_utf8_lossy(&words[2]).parse().expect("a number of keys");
                let (keys, arguments) = words[3..].split_at(keys);
                self.scripts.run(&words[1], keys, arguments)
            }
            _ => self.scripts.database().borrow_mut().execute(&words),
        };
        let is_executed = !matches!(reply, Reply::Error(_)) && &words[0][..] != b"SCRIPT";
        if is_executed {
            let late = call.filter(|_| caller.is_none()).and_then(|call| self.late.remove(&call));
            if let Some(caller) = caller {
                caller.executed += 1;
                caller.expected = Some(self.expect(&caller.request.clone(), history));
            } else if let Some(request) = late {
                history.count("late executions");
                let _ = self.expect(&request, history);
            }
        }
        if let Reply::Error(error) = &reply
            && !error.starts_with("NOSCRIPT")
        {
            history.violated(format!("a script failed: {error}"));
        }
        reply.encode()
    }

    fn load(&mut self, source: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(source).into_owned();
        let sha = tollway::store::redis::script_sha(&text).into_bytes();
        if !self.scripts.has(&sha) {
            let text = match self.plant {
                Some(Plant::NeverClamps) => text.replace("= math.min(owed, fill)", "= owed"),
                _ => text,
            };
            self.scripts.load(sha.clone(), text.as_bytes());
        }
        self.loaded.insert(sha.clone());
        Reply::Bulk(sha)
    }

    /// Returns the answer that the promise demands for a request that is executed now.
    fn expect(&mut self, request: &Request, history: &mut History) -> Answer {
        // Scripts read the clock in microseconds.
        let now = Timestamp::from_nanos(self.own_time().as_nanos() / 1_000 * 1_000);
        match request.verb {
            Verb::Check => Answer::Decision(self.model.check(&request.lines, request.rule, now)),
            Verb::Refund => {
                let line = &request.lines[0];
                self.ledger.refund((line.limit, line.id), &line.algorithm, line.cost, now);
                Answer::Refund(self.model.refund(line, now))
            }
            Verb::Reset => {
                let line = &request.lines[0];
                self.ledger.reset((line.limit, line.id));
                self.model.reset(line.limit, line.id);
                Answer::Reset
            }
            Verb::Spend => {
                let fits: Vec<bool> = request
                    .lines
                    .iter()
                    .map(|line| Line { kind: ChargeKind::Spend, ..*line })
                    .map(|line| self.model.check(&[line], None, now).allowed())
                    .collect();
                let decision = self.model.settle(&request.lines, request.rule, now, &[], None);
                for (line, fits) in request.lines.iter().zip(fits) {
                    if decision.allowed() && line.kind != ChargeKind::CheckOnly && fits {
                        let granted =
                            self.ledger.grant((line.limit, line.id), &line.algorithm, line.cost, now);
                        granted.unwrap_or_else(|what| history.violated(what));
                    } else if !fits {
                        self.ledger.touch((line.limit, line.id), &line.algorithm, now);
                    }
                }
                Answer::Decision(decision)
            }
        }
    }

    fn own_time(&self) -> Timestamp {
        self.now + self.ahead
    }
}
