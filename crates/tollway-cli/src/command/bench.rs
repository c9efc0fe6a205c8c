//! `tollway bench`: sends load to a server and prints how it answered.

mod echo;
mod flags;
mod progress;
mod report;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::SignalKind;
use tollway::core::Nanos;
use tollway_load::{
    HttpSpend, KeyFormat, KeyOrder, Load, RedisIncr, RespAsk, RespCommands, RunLength, TextOverLimit,
    ThrottleNumbers, ThrottrAsk, ThrottrQuotas,
};

use self::flags::LoadFlags;
use super::Outcome;
use super::interrupt::Interrupt;
use super::token_flags::TokenFlags;

/// Load-test a server
///
/// One thread sends requests over many connections. By default the loop is closed: each connection sends a batch,
/// waits for the replies and sends the next, which measures the highest rate of the server. With --rate the loop is
/// open: requests are sent on schedule, and latency counts from the scheduled time, so that a pause of the server
/// shows in full. Ctrl-C ends a run early and prints the result so far. Load is sent in plain text: a gate with TLS
/// needs another generator, such as wrk or h2load, because the work of encryption on this side would be measured.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench throttr --pipeline 64 --keys 1000000
  tollway bench http --limit demo --rate 20000
  tollway bench resp --pipeline 64 --keys 1000000
  tollway bench redis --pipeline 64 --keys 1000000

Exit status: 0 success, 1 every reply was an error, 2 error: no server, a lost connection, or replies of another protocol.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    target: Target,
}

#[derive(Subcommand)]
enum Target {
    Text(Text),
    Throttr(Throttr),
    Http(Http),
    Resp(Resp),
    Redis(Redis),
    Echo(echo::Echo),
}

/// Load-test the UDP text gate with over_limit
///
/// Every socket sends a batch, waits for the replies, and sends the next. Datagrams may be lost: requests without a
/// reply within the timeout count as unanswered.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench text --pipeline 64 --keys 1000000 --duration 10s
  tollway bench text --key-format 'ws ua={}' --zipf 0.99 --rate 50000")]
struct Text {
    #[command(flatten)]
    flags: LoadFlags,
    /// The key of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "ws ip={}")]
    key_format: KeyFormat,
    /// The timeout for a reply
    #[arg(long, value_name = "D", default_value = "100ms")]
    timeout: Nanos,
    /// Send every datagram by itself, without segmentation offload (GSO)
    #[arg(long)]
    no_gso: bool,
}

/// Load-test the Throttr gate with the quotas of many consumers
///
/// Before the run, every key is inserted once with a quota large enough for the run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench throttr --pipeline 64 --keys 1000000 --duration 10s
  tollway bench throttr --command query --rate 100000 --pipeline 16
  tollway bench throttr --addr 127.0.0.1:9001 --echo --pipeline 64")]
struct Throttr {
    #[command(flatten)]
    flags: LoadFlags,
    /// The request to send
    #[arg(long, value_enum, default_value_t = Ask::Update)]
    command: Ask,
    /// Skip the inserts before the run, because the keys exist already
    #[arg(long)]
    no_insert: bool,
    /// The consumer of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ask {
    /// Take 1 from the quota
    Update,
    /// Query the quota
    Query,
    /// Insert the quota
    Insert,
}

/// Load-test the HTTP gate: spend from one limit with many ids
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench http --limit LoginsPerAccount --keys 1000000 --zipf 0.99
  tollway bench http --rate 20000 --duration 30s --json")]
struct Http {
    #[command(flatten)]
    flags: LoadFlags,
    #[command(flatten)]
    token: TokenFlags,
    /// The limit to spend from
    #[arg(long, value_name = "NAME", default_value = "demo")]
    limit: String,
    /// The id of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

/// Load-test the RESP gate with CL.THROTTLE, or another server that has the same command
///
/// The numbers of the limit come with every request. The server may be tollway, redis-server with the module
/// redis-cell, or, with --command throttle, throttlecrab.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench resp --pipeline 64 --keys 1000000 --duration 10s
  tollway bench resp --max-burst 15 --count 30 --period 60 --keys 1000
  tollway bench resp --addr 127.0.0.1:6379 --command ping --pipeline 16")]
struct Resp {
    #[command(flatten)]
    flags: LoadFlags,
    #[command(flatten)]
    token: TokenFlags,
    /// The command to send
    #[arg(long, value_enum, default_value_t = RespCommandName::ClThrottle)]
    command: RespCommandName,
    /// The burst of the limit, as the command counts it
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_burst: u32,
    /// The number of tokens that come back in a period
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// The period in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    period: u32,
    /// The key of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RespCommandName {
    /// CL.THROTTLE of redis-cell
    #[value(name = "cl.throttle")]
    ClThrottle,
    /// THROTTLE of throttlecrab
    Throttle,
    /// PING, which decides nothing
    Ping,
}

/// Load-test a Redis server with INCR, for comparison
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench redis --pipeline 64 --keys 1000000 --duration 10s")]
struct Redis {
    #[command(flatten)]
    flags: LoadFlags,
    /// The key of a request, with {} for its number
    #[arg(long, value_name = "FORMAT", default_value = "k{}")]
    key_format: KeyFormat,
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.target {
            Target::Text(text) => text.run(),
            Target::Throttr(throttr) => throttr.run(),
            Target::Http(http) => http.run(),
            Target::Resp(resp) => resp.run(),
            Target::Redis(redis) => redis.run(),
            Target::Echo(echo) => echo.run(),
        }
    }
}

impl Text {
    fn run(self) -> anyhow::Result<Outcome> {
        let load = Load {
            reply_timeout: self.timeout.into(),
            segmentation_offload: !self.no_gso,
            ..self.flags.load("127.0.0.1:2000")?
        };
        self.flags.run("text", &load, TextOverLimit::new(&self.flags.keys(self.key_format)))
    }
}

impl Throttr {
    /// The number of inserts that a connection sends at once before a run.
    const INSERTS: u16 = 256;

    fn run(self) -> anyhow::Result<Outcome> {
        let (load, keys) = (self.flags.load("127.0.0.1:9000")?, self.flags.keys(self.key_format));
        let ask = match self.command {
            Ask::Update => ThrottrAsk::Update,
            Ask::Query => ThrottrAsk::Query,
            Ask::Insert => ThrottrAsk::Insert,
        };
        let quotas = ThrottrQuotas::new(ask, &keys)?;
        if !self.flags.echo && !self.no_insert && ask != ThrottrAsk::Insert {
            let all_keys = Load {
                pipeline: Self::INSERTS,
                key_order: KeyOrder::Sequential,
                length: RunLength::Requests(keys.count),
                rate: None,
                warmup: Nanos::ZERO.into(),
                ..load.clone()
            };
            let interrupt = Interrupt::catch(&[SignalKind::interrupt()])?;
            let inserts = ThrottrQuotas::new(ThrottrAsk::Insert, &keys)?;
            let inserted = all_keys.run(&inserts, &mut |_| interrupt.check())?;
            if let Some(failure) = inserted.failure {
                return Err(failure).context("cannot insert the keys");
            }
            if interrupt.check().is_break() {
                return Ok(Outcome::Yes);
            }
        }
        self.flags.run("throttr", &load, quotas)
    }
}

impl Http {
    fn run(self) -> anyhow::Result<Outcome> {
        if self.flags.echo {
            bail!(
                "the echo server does not speak HTTP; compare with the constant answer of GET /healthz instead"
            );
        }
        let token = self.token.read()?;
        let keys = self.flags.keys(self.key_format);
        let spend = HttpSpend::with_token(&self.limit, &keys, token.as_deref());
        self.flags.run("http", &self.flags.load("127.0.0.1:8080")?, spend)
    }
}

impl Resp {
    fn run(self) -> anyhow::Result<Outcome> {
        let numbers = ThrottleNumbers { max_burst: self.max_burst, count: self.count, period: self.period };
        let ask = match self.command {
            RespCommandName::ClThrottle => RespAsk::ClThrottle(numbers),
            RespCommandName::Throttle => RespAsk::Throttle(numbers),
            RespCommandName::Ping => RespAsk::Ping,
        };
        let mut commands = RespCommands::new(ask, &self.flags.keys(self.key_format));
        if let Some(token) = self.token.read()? {
            commands = commands.with_token(&token);
        }
        self.flags.run("resp", &self.flags.load("127.0.0.1:6380")?, commands)
    }
}

impl Redis {
    fn run(self) -> anyhow::Result<Outcome> {
        let incr = RedisIncr::new(&self.flags.keys(self.key_format));
        self.flags.run("redis", &self.flags.load("127.0.0.1:6379")?, incr)
    }
}
