//! Benchmarks decisions over Redis against a plain GCRA script.
//!
//! `cargo xtask bench redis`
//!
//! Redis has one core and the client the other. The plain script is what an application would write for itself: `TIME`,
//! `GET`, some arithmetic on doubles, `SET`. It is called by its hash, one at a time on each of 64 connections of the
//! `redis` crate; Tollway has 64 tasks that spend at the same time.

use std::cell::RefCell;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tollway::AsyncLimiter;
use tollway::core::Bill;
use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;
use tollway_bench::rounds::{Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, free_address};

const IDS: u64 = 100_000;
const IN_FLIGHT: u64 = 64;
const DECISIONS: u64 = 1_000 * IN_FLIGHT;

/// The script that most applications have in their own code.
const PLAIN_GCRA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local allow_at = tat + interval - burst
if allow_at > now then
  return {0, allow_at - now}
end
redis.call('SET', KEYS[1], string.format('%.0f', tat + interval), 'PX', math.ceil((tat + interval - now) / 1000))
return {1, math.floor((burst - (tat + interval - now)) / interval)}
";

/// The limit that both use. It is so high that nothing is denied.
const LIMIT: &str = "limits: { PerUser: { burst: 1000000, count: 1000, period: 1s } }";

fn main() -> Result<(), Box<dyn Error>> {
    let options = OptionSpec::NONE.read()?;
    let address = free_address()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"]);
    let server = BenchServer::start(command, address)?;
    let mut core = CpuSet::new();
    core.set(1);
    sched_setaffinity(None, &core)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let plain = runtime.block_on(PlainScript::connect(&format!("redis://{address}")))?;
    // On a busy machine a call may exceed the default deadline, and a decision without Redis must not be measured.
    let limiter = AsyncLimiter::from_yaml(&format!("{LIMIT}\nstore: redis://{address}?deadline=5s"))?;
    let limiter: &'static AsyncLimiter = Box::leak(Box::new(limiter));
    let busy = [const { RefCell::new(Vec::new()) }; 3];
    let turn = |who: usize, work: &mut dyn FnMut()| {
        let (began, started) = (server.cpu_time().unwrap_or_default(), Instant::now());
        work();
        let took = started.elapsed();
        busy[who].borrow_mut().push(per_decision(server.cpu_time().unwrap_or_default() - began));
        per_decision(took)
    };
    let mut contestants = [
        Contestant { name: "plain GCRA script", work: Box::new(|| turn(0, &mut || plain.work(&runtime))) },
        Contestant { name: "tollway", work: Box::new(|| turn(1, &mut || one_by_one(limiter, &runtime))) },
        Contestant {
            name: "tollway, 64 at a time",
            work: Box::new(|| turn(2, &mut || in_batches(limiter, &runtime))),
        },
    ];
    let standings = alternate(options.turns, &mut contestants);
    drop(contestants);
    let busy: Vec<Vec<f64>> = busy.into_iter().map(|busy| busy.into_inner().split_off(1)).collect();
    let mut table = format!(
        "{IDS} ids, {IN_FLIGHT} in flight; {} turns of {DECISIONS} decisions, alternating: median (lowest to highest),\n\
         and ratios turn by turn.\n\n\
         | | decisions per second | ratio to the plain script | CPU time of Redis per decision | ratio |\n\
         |---|---|---|---|---|\n",
        options.turns
    );
    for (standing, busy_ours) in standings.iter().zip(&busy) {
        let rate = 1e9 / standing.nanos.median;
        let beside = Spread::of(busy_ours.iter().zip(&busy[0]).map(|(ours, plain)| ours / plain).collect());
        let micros = Spread::of(busy_ours.iter().map(|nanos| nanos / 1e3).collect());
        table += &format!(
            "| {} | {rate:.0} | {:.2}x | {micros:.1} µs | {beside:.2}x |\n",
            standing.name, standing.ratio
        );
    }
    publish(&options, "cargo xtask bench redis", "redis", &table)?;
    Ok(())
}

fn per_decision(took: Duration) -> f64 {
    took.as_nanos() as f64 / DECISIONS as f64
}

/// Returns the ids that one of the concurrent tasks uses, in an order that does not repeat soon.
fn ids(asker: u64) -> impl Iterator<Item = String> {
    (0..DECISIONS / IN_FLIGHT).map(move |step| {
        let number = (step * IN_FLIGHT + asker).wrapping_mul(0x9e37_79b9_7f4a_7c15) % IDS;
        format!("user{number}")
    })
}

struct PlainScript {
    connections: Vec<MultiplexedConnection>,
    sha: String,
}

impl PlainScript {
    async fn connect(url: &str) -> redis::RedisResult<Self> {
        let client = redis::Client::open(url)?;
        let mut connections = Vec::new();
        for _ in 0..IN_FLIGHT {
            // No timeout: a busy machine must not end the run.
            let patient = AsyncConnectionConfig::new().set_response_timeout(None);
            connections.push(client.get_multiplexed_async_connection_with_config(&patient).await?);
        }
        let sha = redis::cmd("SCRIPT").arg("LOAD").arg(PLAIN_GCRA).query_async(&mut connections[0]).await?;
        Ok(Self { connections, sha })
    }

    fn work(&self, runtime: &Runtime) {
        let mut tasks = JoinSet::new();
        for (asker, connection) in (0..).zip(&self.connections) {
            let (mut connection, sha) = (connection.clone(), self.sha.clone());
            let work = async move {
                for id in ids(asker) {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(&sha).arg(1).arg(format!("plain:{id}")).arg(1_000).arg(1_000_000_000_u64);
                    let (allowed, _): (u8, u64) = call.query_async(&mut connection).await.expect("an answer");
                    assert_eq!(allowed, 1);
                }
            };
            tasks.spawn_on(work, runtime.handle());
        }
        runtime.block_on(tasks.join_all());
    }
}

fn one_by_one(limiter: &'static AsyncLimiter, runtime: &Runtime) {
    let mut tasks = JoinSet::new();
    for asker in 0..IN_FLIGHT {
        let work = async move {
            for id in ids(asker) {
                let decision = limiter.spend("PerUser", id, 1).await.expect("a limit and an id");
                assert!(decision.allowed() && !decision.degraded);
            }
        };
        tasks.spawn_on(work, runtime.handle());
    }
    runtime.block_on(tasks.join_all());
}

fn in_batches(limiter: &AsyncLimiter, runtime: &Runtime) {
    runtime.block_on(async {
        let mut askers: Vec<_> = (0..IN_FLIGHT).map(ids).collect();
        let policy = limiter.policy();
        for _ in 0..DECISIONS / IN_FLIGHT {
            let ids: Vec<_> = askers.iter_mut().filter_map(Iterator::next).collect();
            let charges: Vec<_> = ids
                .iter()
                .map(|id| policy.charge("PerUser", id.as_bytes(), 1).expect("a limit and an id"))
                .collect();
            let bills: Vec<_> = charges.iter().map(Bill::one).collect();
            for decision in limiter.engine().settle(&bills).await {
                assert!(decision.allowed() && !decision.degraded);
            }
        }
    });
}
