//! Runs the world of one seed: everything under one clock, in one thread.

use tollway::core::{Nanos, Timestamp};
use tollway_testbed::Random;

use crate::fleet::{Fleet, FleetEvent};
use crate::history::History;
use crate::memory::{JournaledEvent, JournaledProcess, MemoryProcess};
use crate::plant::Plant;
use crate::redis::{RedisEvent, RedisFleet};
use crate::schedule::{START, Schedule};

/// The mean time between two steps of a part of the world: bursts of activity, and long silence between them.
const MEAN_PAUSE: Nanos = Nanos::from_secs(50);

/// An event that happens in the world.
#[derive(Debug)]
enum Event {
    /// The process with its own memory takes a step.
    Memory,
    /// Something happens to the process that has a journal.
    Journaled(JournaledEvent),
    /// Something happens among the processes that share a Redis.
    Redis(RedisEvent),
    /// Something happens among a master and its gatekeepers.
    Fleet(FleetEvent),
}

impl From<FleetEvent> for Event {
    fn from(event: FleetEvent) -> Self {
        Self::Fleet(event)
    }
}

impl From<JournaledEvent> for Event {
    fn from(event: JournaledEvent) -> Self {
        Self::Journaled(event)
    }
}

impl From<RedisEvent> for Event {
    fn from(event: RedisEvent) -> Self {
        Self::Redis(event)
    }
}

/// Simulates one seed for a number of seconds, and returns what happened.
pub fn simulate(seed: u64, seconds: u64, plant: Option<Plant>) -> History {
    let mut history = History::default();
    let mut schedule = Schedule::default();
    let mut random = Random::new(seed);
    let mut memory_random = Random::new(random.any());
    let mut memory = MemoryProcess::start(&mut memory_random, plant);
    schedule.after(Nanos::ZERO, Event::Memory);
    let mut redis_random = Random::new(random.any());
    let mut redis = RedisFleet::start(&mut redis_random, &mut schedule, plant);
    let mut fleet_random = Random::new(random.any());
    let mut fleet = Fleet::start(&mut fleet_random, &mut schedule, plant);
    let mut journaled_random = Random::new(random.any());
    let mut journaled = JournaledProcess::start(&mut journaled_random, &mut schedule, plant);
    let end: Timestamp = START + Nanos::from_secs(seconds);
    while let Some(event) = schedule.next() {
        if schedule.now() > end || !history.violations().is_empty() {
            break;
        }
        history.set_time(schedule.now());
        match event {
            Event::Memory => {
                memory.step(&mut memory_random, &schedule, &mut history);
                schedule.after(pause(&mut memory_random), Event::Memory);
            }
            Event::Journaled(event) => {
                journaled.on_event(event, &mut journaled_random, &mut schedule, &mut history);
            }
            Event::Fleet(event) => {
                let is_step = matches!(event, FleetEvent::Step);
                fleet.on_event(event, &mut fleet_random, &mut schedule, &mut history);
                if is_step {
                    schedule.after(fleet.pause(&mut fleet_random), FleetEvent::Step.into());
                }
            }
            Event::Redis(event) => {
                let is_step = matches!(event, RedisEvent::Step);
                redis.on_event(event, &mut redis_random, &mut schedule, &mut history);
                if is_step {
                    schedule.after(pause(&mut redis_random), RedisEvent::Step.into());
                }
            }
        }
    }
    history
}

/// Returns the time until the next step: mostly a moment, sometimes hours.
fn pause(random: &mut Random) -> Nanos {
    match random.below(16) {
        0..=4 => Nanos::ZERO,
        5..=10 => Nanos::new(random.magnitude(4_000_000_000)),
        11 => Nanos::from_millis(random.pick(&[100, 500, 1_000, 2_000, 10_000])),
        12..=14 => Nanos::new(random.below(MEAN_PAUSE.get())),
        _ => Nanos::new(random.below(MEAN_PAUSE.get() * 27)),
    }
}
