//! Two processes that share a Redis: the store's own logic down to the bytes, and a Redis that runs the real scripts.
//!
//! ```text
//! client ─> Engine ─> Router ─> bytes ─> network ─> SimulatedRedis: Lua ─> bytes ─> … ─> decision
//! ```
//!
//! The oracle sits in the simulated Redis: it knows when each call was executed, and whether it was. So what a caller
//! is told can be compared exactly, also after calls were lost, answered too late, or forgotten by a failover.

mod caller;
mod database;
mod lua;
mod node;
mod resp;

use std::collections::VecDeque;
use std::time::Duration;

use tollway::clock::Clock;
use tollway::core::{Nanos, Timestamp, Verb};
use tollway::engine::Engine;
use tollway::store::Store;
use tollway::store::memory::Memory;
use tollway::store::redis::{Address, NetAction, Redis, RedisUrl, SimulatedDriver, Topology};
use tollway_testbed::Random;

use self::caller::Caller;
use self::node::SimulatedRedis;
use crate::history::{Entry, History};
use crate::oracle::{Model, Sharing};
use crate::plant::Plant;
use crate::requests::{LimitName, Numbers, Request};
use crate::schedule::{START, Schedule};

const PLACE: &str = "redis";

/// The number of processes that share the Redis.
const PROCESSES: usize = 2;

/// The pause after which calls are sent again whose node asked for patience.
const REST: Nanos = Nanos::from_millis(2);

/// The time for which an idle process looks after its connection.
const IDLE_MAX: Nanos = Nanos::from_secs(3);

/// The limits whose numbers stay. Processes that disagree about the period of a log keep its entries for different
/// times, and the model does not say for how long.
const UNCHANGED: &[LimitName] = &["log"];

/// The number of requests that come at once in an overload.
const OVERLOAD: usize = 300;

/// An event that happens in this part of the world.
#[derive(Debug)]
pub(crate) enum RedisEvent {
    /// A client asks one of the processes, or something fails.
    Step,
    /// A process looks at its alarms, if it still has one at this time.
    Alarm(usize, Timestamp),
    /// A connection attempt ends.
    Dialed { process: usize, generation: u64 },
    /// A connection ends: the process is told that it was closed.
    Closed { process: usize, generation: u64 },
    /// A pipeline reaches the Redis.
    Arrived { process: usize, generation: u64, number: u64, commands: Vec<(Option<u64>, Vec<u8>)> },
    /// The replies reach the process.
    Answered { process: usize, generation: u64, number: u64, replies: Vec<Vec<u8>> },
    /// Calls have rested.
    Rested(usize),
    /// The replica has caught up.
    Replicated,
}

/// The processes, the Redis, and the network between them.
pub(crate) struct RedisFleet {
    processes: Vec<Process>,
    redis: SimulatedRedis,
    network: Network,
    plant: Option<Plant>,
}

/// A process that has the Redis as its store.
struct Process {
    engine: Engine,
    driver: SimulatedDriver,
    clock: Clock,
    numbers: Numbers,
    callers: VecDeque<Caller>,
    /// The number of batches that were sent.
    batches: u64,
    /// The generation of the open connection.
    connection: Option<u64>,
    /// The newest generation that Redis has closed: what is on its way there is lost.
    closed_by_redis: u64,
    /// The moment of the alarm that is scheduled.
    alarm: Option<Timestamp>,
    /// The time of the last request.
    asked: Timestamp,
    /// The buckets that the process decides by while the store is unreachable.
    local: Model,
}

/// The state that the network is in. All processes suffer alike, except that each may be partitioned alone.
struct Network {
    slow_until: Timestamp,
    refuses_until: Timestamp,
    partitioned_until: [Timestamp; PROCESSES],
    /// The time at which the last message on the way arrives, because a connection keeps the order.
    busy_until: [[Timestamp; 2]; PROCESSES],
}

impl RedisFleet {
    pub(crate) fn start(
        random: &mut Random,
        schedule: &mut Schedule<impl From<RedisEvent>>,
        plant: Option<Plant>,
    ) -> Self {
        let numbers = Numbers::any(random);
        let processes = (0..PROCESSES).map(|_| Process::start(random, numbers.clone())).collect();
        let network = Network {
            slow_until: START,
            refuses_until: START,
            partitioned_until: [START; PROCESSES],
            busy_until: [[START; 2]; PROCESSES],
        };
        schedule.after(Nanos::ZERO, RedisEvent::Step.into());
        Self { processes, redis: SimulatedRedis::new(plant), network, plant }
    }

    /// Handles an event.
    pub(crate) fn on_event(
        &mut self,
        event: RedisEvent,
        random: &mut Random,
        schedule: &mut Schedule<impl From<RedisEvent>>,
        history: &mut History,
    ) {
        let (now, at) = (schedule.now(), schedule.elapsed());
        self.redis.set_time(now);
        let process = match event {
            RedisEvent::Step => return self.step(random, schedule, history),
            RedisEvent::Replicated => return self.redis.replicate(),
            RedisEvent::Alarm(process, due) => {
                if self.processes[process].alarm != Some(due) {
                    return;
                }
                self.processes[process].alarm = None;
                process
            }
            RedisEvent::Dialed { process, generation } => {
                self.dialed(process, generation, now, at);
                process
            }
            RedisEvent::Closed { process, generation } => {
                self.processes[process].close(generation, at);
                process
            }
            RedisEvent::Arrived { process, generation, number, commands } => {
                self.arrived(process, generation, number, &commands, random, schedule, history);
                return;
            }
            RedisEvent::Answered { process, generation, number, replies } => {
                if self.processes[process].connection != Some(generation) {
                    return;
                }
                self.processes[process].driver.answered(number, &replies, at);
                process
            }
            RedisEvent::Rested(process) => {
                self.processes[process].driver.rested(at);
                process
            }
        };
        self.drive(process, random, schedule, history);
    }

    fn step(
        &mut self,
        random: &mut Random,
        schedule: &mut Schedule<impl From<RedisEvent>>,
        history: &mut History,
    ) {
        if random.one_in(40) {
            self.fail(random, schedule, history);
        }
        let process = usize::try_from(random.below(PROCESSES as u64)).expect("an index");
        if random.one_in(150) {
            let changed = self.processes[process].numbers.changed(random, UNCHANGED);
            self.processes[process].reload(changed, schedule.now());
            history.record(Entry { place: PLACE, what: "reload", ..Entry::default() });
        }
        let requests = if random.one_in(1_000) { OVERLOAD } else { 1 };
        if requests > 1 {
            history.record(Entry { place: PLACE, what: "overload", ..Entry::default() });
        }
        for _ in 0..requests {
            let request = Request::any(random, &self.processes[process].numbers, 8, true);
            self.processes[process].ask(request, schedule.now());
        }
        self.drive(process, random, schedule, history);
    }

    /// Lets something fail for a while.
    fn fail(
        &mut self,
        random: &mut Random,
        schedule: &mut Schedule<impl From<RedisEvent>>,
        history: &mut History,
    ) {
        let (now, a_while) = (schedule.now(), Nanos::new(random.magnitude(5_000_000_000)));
        let what = match random.below(7) {
            0 => {
                self.network.slow_until = now + a_while;
                "slow network"
            }
            1 => {
                self.network.refuses_until = now + a_while;
                self.close_all(schedule);
                "redis down"
            }
            2 => {
                let process = usize::try_from(random.below(PROCESSES as u64)).expect("an index");
                self.network.partitioned_until[process] = now + a_while;
                "partition"
            }
            3 => {
                self.close_all(schedule);
                "connections lost"
            }
            4 => {
                self.redis.fail_over(random.one_in(2));
                self.close_all(schedule);
                "failover"
            }
            5 => {
                self.redis.refuse_until(now + a_while, random.pick(&["OOM", "LOADING", "READONLY"]));
                "redis refuses"
            }
            _ => {
                self.redis.step_clock(Nanos::new(random.magnitude(20_000_000_000)));
                "redis clock step"
            }
        };
        history.record(Entry { place: PLACE, what, numbers: [a_while.get(), 0, 0, 0], ..Entry::default() });
    }

    fn close_all(&mut self, schedule: &mut Schedule<impl From<RedisEvent>>) {
        for (process, open) in self.processes.iter_mut().enumerate() {
            if let Some(generation) = open.connection {
                open.closed_by_redis = generation;
                schedule.after(Nanos::ZERO, RedisEvent::Closed { process, generation }.into());
            }
        }
    }

    fn dialed(&mut self, process: usize, generation: u64, now: Timestamp, at: Duration) {
        let is_away = self.network.refuses_until > now || self.network.partitioned_until[process] > now;
        let outcome = if is_away { Err("connection refused") } else { Ok(()) };
        self.processes[process].driver.connected(generation, outcome, at);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one event, and the world")]
    fn arrived(
        &mut self,
        process: usize,
        generation: u64,
        number: u64,
        commands: &[(Option<u64>, Vec<u8>)],
        random: &mut Random,
        schedule: &mut Schedule<impl From<RedisEvent>>,
        history: &mut History,
    ) {
        let is_down = self.network.refuses_until > schedule.now();
        if is_down || generation <= self.processes[process].closed_by_redis {
            return history.count("lost messages");
        }
        let times = if self.plant == Some(Plant::RepeatsCalls) && random.one_in(20) { 2 } else { 1 };
        let mut replies = Vec::new();
        for _ in 0..times {
            replies.clear();
            for (batch, bytes) in commands {
                let position = batch.and_then(|batch| self.processes[process].position(batch));
                let caller = position.map(|place| &mut self.processes[process].callers[place]);
                let call = batch.map(|batch| (process, batch));
                replies.push(self.redis.execute(bytes, caller, call, history));
            }
        }
        if self.redis.has_changes() {
            let lag = Nanos::new(random.magnitude(500_000_000));
            schedule.after(lag, RedisEvent::Replicated.into());
        }
        let Some(wait) = self.network.deliver(process, 1, random, schedule.now()) else {
            return history.count("lost messages");
        };
        schedule.after(wait, RedisEvent::Answered { process, generation, number, replies }.into());
    }

    /// Moves the router of a process on, and hands out the answers that have come.
    fn drive(
        &mut self,
        process: usize,
        random: &mut Random,
        schedule: &mut Schedule<impl From<RedisEvent>>,
        history: &mut History,
    ) {
        let now = schedule.now();
        loop {
            let actions = self.processes[process].driver.run(schedule.elapsed());
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    NetAction::Dial { generation, pause } => {
                        let wait = nanos(pause) + self.network.delay(random, now);
                        schedule.after(wait, RedisEvent::Dialed { process, generation }.into());
                    }
                    NetAction::Use { generation } => self.processes[process].connection = Some(generation),
                    NetAction::Close => {
                        if let Some(generation) = self.processes[process].connection {
                            self.processes[process].close(generation, schedule.elapsed());
                        }
                    }
                    NetAction::Send { generation, number, commands } => {
                        let Some(wait) = self.network.deliver(process, 0, random, now) else {
                            history.count("lost messages");
                            continue;
                        };
                        let event = RedisEvent::Arrived { process, generation, number, commands };
                        schedule.after(wait, event.into());
                    }
                    NetAction::Rest => schedule.after(REST, RedisEvent::Rested(process).into()),
                }
            }
        }
        let asked = &mut self.processes[process];
        asked.hand_out(process, &mut self.redis, now, history);
        asked.set_alarm(process, schedule);
    }
}

impl Process {
    fn start(random: &mut Random, numbers: Numbers) -> Self {
        let address = Address { host: "redis".to_owned(), port: 6379 };
        let url = RedisUrl::new(Topology::Single(address));
        let (redis, driver) = Redis::simulated(&url, random.any());
        let clock = Clock::simulated(START);
        let store = Store::Redis(redis, Memory::with_known_hashes(1_000, [1, 2]));
        let engine = Engine::with(numbers.policy(), store, clock.clone());
        Self {
            engine,
            driver,
            clock,
            numbers,
            callers: VecDeque::new(),
            batches: 0,
            connection: None,
            closed_by_redis: 0,
            alarm: None,
            asked: START,
            local: Model::new(Sharing::Own),
        }
    }

    fn reload(&mut self, numbers: Numbers, now: Timestamp) {
        self.clock.set(now);
        self.engine.reload(numbers.policy());
        self.numbers = numbers;
    }

    fn ask(&mut self, request: Request, now: Timestamp) {
        self.clock.set(now);
        self.asked = now;
        if request.verb == Verb::Reset {
            self.local.reset(request.lines[0].limit, request.lines[0].id);
        }
        let mut caller = Caller::new(&self.engine, request, now);
        if !caller.poll() {
            caller.batch = Some(self.batches);
            self.batches += 1;
        }
        self.callers.push_back(caller);
    }

    /// Returns the place of the caller whose call is in a batch, if it still waits.
    fn position(&self, batch: u64) -> Option<usize> {
        self.callers.iter().position(|caller| caller.batch == Some(batch))
    }

    fn close(&mut self, generation: u64, at: Duration) {
        if self.connection == Some(generation) {
            self.connection = None;
            self.driver.lost(generation, at);
        }
    }

    /// Judges the answers that have come.
    fn hand_out(
        &mut self,
        process: usize,
        redis: &mut SimulatedRedis,
        now: Timestamp,
        history: &mut History,
    ) {
        self.clock.set(now);
        for caller in &mut self.callers {
            if caller.poll() {
                caller.judge(process, &mut self.local, redis, now, history);
            }
        }
        self.callers.retain(|caller| !caller.is_done());
    }

    fn set_alarm(&mut self, process: usize, schedule: &mut Schedule<impl From<RedisEvent>>) {
        let Some(due) = self.driver.alarm() else { return };
        let due = (START + nanos(due)).max(schedule.now());
        // An idle connection is pinged every second, for ever. After a while the process sleeps until somebody asks, as
        // one that is suspended does.
        let is_idle = self.callers.is_empty() && due.since(self.asked) > IDLE_MAX;
        if !is_idle && self.alarm.is_none_or(|alarm| due < alarm || alarm < schedule.now()) {
            self.alarm = Some(due);
            schedule.after(due.since(schedule.now()), RedisEvent::Alarm(process, due).into());
        }
    }
}

impl Network {
    /// Returns the time that a message takes, or `None` if it is lost. Messages of one connection keep their order.
    fn deliver(
        &mut self,
        process: usize,
        direction: usize,
        random: &mut Random,
        now: Timestamp,
    ) -> Option<Nanos> {
        if self.partitioned_until[process] > now {
            return None;
        }
        let arrives = (now + self.delay(random, now)).max(self.busy_until[process][direction]);
        self.busy_until[process][direction] = arrives;
        Some(arrives.since(now))
    }

    fn delay(&self, random: &mut Random, now: Timestamp) -> Nanos {
        let usual = random.between(50_000, 2_000_000);
        if self.slow_until > now {
            Nanos::new(usual + random.magnitude(200_000_000))
        } else {
            Nanos::new(usual)
        }
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::new(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
