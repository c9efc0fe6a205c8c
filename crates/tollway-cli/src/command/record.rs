//! `tollway record`: writes the decisions of a running server as a trace.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use tokio::signal::unix::SignalKind;
use tollway::Clock;
use tollway_client::ClientError;
use tollway_client::http::blocking::Client;
use tollway_client::http::{
    DECISIONS_EVENT, EventStream, RecordQuery, RecordedIds, RecordingProgress, RecordingStart, Rfc3339,
};

use super::Outcome;
use super::arguments::{AdminServer, span};
use super::interrupt::Interrupt;
use crate::output::OutputError;

/// The name that stands for standard output.
const STDOUT: &str = "-";

/// The error of an event that this program does not understand.
const UNREADABLE: &str = "cannot read an event of the server";

/// Record the decisions of a running server as a trace, which "tollway replay" reads
///
/// Writes a line for each spend, check, refund, reset and rule that the server decides, and for each request of an
/// inline limit, of Throttr, of the text protocol and of Envoy's rate limit service, with its time and its reply. The
/// first line is the policy of the server, so the trace can be replayed as it is, or with other limits. Times
/// count from the start of the recording.
///
/// --sample 1/16 records one of 16 ids, with all of its requests: their replies are the same in a replay, which they
/// would not be if requests were left out. --hash-ids writes a keyed hash in the place of each id. The server makes the
/// key for this recording, and nobody else has it. The gates text and rls are not recorded then.
///
/// The gate smockron is not recorded; the last line counts what was left out. Ctrl-C ends the recording; the file is
/// complete then. A server with tokens asks for one with the scope admin.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway record --for 30s live.trace
  tollway record --sample 1/16 --hash-ids --for 5m live.trace
  tollway replay --quiet live.trace                    # 0 differed, if the server had no buckets before
  sed '/ reload /d' live.trace | tollway replay --config candidate.yaml --quiet -

Exit status: 0 success, 1 decisions were missed because the trace was written too slowly, 2 error.")]
pub(crate) struct Record {
    /// The file that is written; "-" is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: AdminServer,
    /// Stop after this time, such as 30s or 5m [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    length: Option<Duration>,
    /// Record one of N ids, with all of its requests. N is a power of two up to 65536
    #[arg(long, value_name = "1/N", default_value = "1/1", value_parser = sample)]
    sample: u64,
    /// Write a keyed hash in the place of each id
    #[arg(long)]
    hash_ids: bool,
}

/// Parses the part of the ids that is recorded.
fn sample(text: &str) -> Result<u64, String> {
    let sample = text.strip_prefix("1/").unwrap_or(text).parse().ok();
    let invalid =
        || format!("write it as 1/N, where N is a power of two from 1 to {}", RecordQuery::SAMPLE_MAX);
    sample.filter(|sample| RecordQuery::is_sample(*sample)).ok_or_else(invalid)
}

impl Record {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let ids = if self.hash_ids { RecordedIds::Hashed } else { RecordedIds::Plain };
        let query = RecordQuery { sample: self.sample, ids };
        let client = self.server.client()?;
        // Before the file, which an error should not empty.
        let mut stream = start(&client, &query)?;
        let interrupt = Interrupt::catch(&[SignalKind::interrupt(), SignalKind::terminate()])?;
        let mut trace = TraceFile::create(&self.file)?;
        let first = stream.next_event()?;
        let started = RecordingStart::from_json(&first.data).context(UNREADABLE)?;
        trace.comment(&introduction(client.address(), &started))?;
        let until = self.length.map(|length| Instant::now() + length);
        let is_over = || interrupt.check().is_break() || until.is_some_and(|until| Instant::now() >= until);
        let ended = trace.record(&mut stream, is_over);
        trace.finish()?;
        ended?;
        Ok(if trace.missed > 0 { Outcome::No } else { Outcome::Yes })
    }
}

/// Starts to record, and says what to do if the server does not let us.
fn start(client: &Client, query: &RecordQuery) -> anyhow::Result<EventStream> {
    client.record(query).map_err(|error| match error {
        ClientError::Problem { status: 400 | 404, .. } => anyhow::Error::from(error).context(format!(
            "{} cannot be recorded; check that it is the admin gate of a server that is not older than this program",
            client.address()
        )),
        error => error.into(),
    })
}

/// Returns the comments at the start of a trace.
fn introduction(address: &str, started: &RecordingStart) -> Vec<String> {
    let RecordingStart { version, sample, ids, store, buckets, has_policy } = started;
    let ids = if *ids == RecordedIds::Hashed { ", hashed" } else { "" };
    let now = Rfc3339(Clock::monotonic().now());
    let mut lines =
        vec![format!("recorded from {address}, tollway {version}, at {now}: 1/{sample} of the ids{ids}")];
    lines.push(match (&**store, *buckets) {
        ("memory", 0) => "the server had no buckets, so every reply is the same in a replay".to_owned(),
        ("memory", buckets) => {
            let had = if buckets == 1 { "a bucket".to_owned() } else { format!("{buckets} buckets") };
            format!(
                "the server had {had}, which a replay does not have: replies to ids that were in use before differ \
                 until their buckets are full"
            )
        }
        _ => "the store is shared and has its own clock: times and order are nearly those of the decisions, so \
              replies differ slightly, and more if other servers used the same ids"
            .to_owned(),
    });
    if !has_policy {
        lines.push("the policy is too long for a line; replay with --config".to_owned());
    }
    lines
}

/// The trace that is written, and what is counted meanwhile.
struct TraceFile {
    out: BufWriter<Box<dyn Write>>,
    name: String,
    progress: Option<io::Stderr>,
    decisions: u64,
    missed: u64,
    skipped: u64,
}

impl TraceFile {
    fn create(file: &Path) -> anyhow::Result<Self> {
        let name = file.display().to_string();
        let out: Box<dyn Write> = if name == STDOUT {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(file).with_context(|| format!("cannot write {name}"))?)
        };
        let progress = io::stderr().is_terminal().then(io::stderr);
        Ok(Self { out: BufWriter::new(out), name, progress, decisions: 0, missed: 0, skipped: 0 })
    }

    /// Writes what the server sends until it is over.
    fn record(&mut self, stream: &mut EventStream, is_over: impl Fn() -> bool) -> anyhow::Result<()> {
        while !is_over() {
            let event = match stream.next_event() {
                Ok(event) => event,
                Err(error) => bail!(anyhow::Error::from(error).context("the recording ended early")),
            };
            match &*event.name {
                DECISIONS_EVENT => self.lines(&event.data)?,
                RecordingProgress::EVENT => {
                    self.progress(RecordingProgress::from_json(&event.data).context(UNREADABLE)?)?;
                }
                // An event that a newer server sends.
                _ => {}
            }
        }
        Ok(())
    }

    fn lines(&mut self, lines: &str) -> anyhow::Result<()> {
        self.decisions += lines.lines().filter(|line| !line.contains("  reload  ")).count() as u64;
        self.write(lines)
    }

    fn progress(&mut self, progress: RecordingProgress) -> anyhow::Result<()> {
        if progress.missed > 0 {
            self.comment(&[format!("{} decisions were missed here", progress.missed)])?;
        }
        self.missed += progress.missed;
        self.skipped = progress.skipped;
        // So that somebody who reads the file meanwhile is at most a second behind.
        let flushed = self.out.flush();
        self.check(flushed)?;
        if let Some(terminal) = &mut self.progress {
            // A terminal that is gone takes only the progress with it.
            let _ = write!(terminal, "\r\x1b[K{} decisions written, {} missed", self.decisions, self.missed);
        }
        Ok(())
    }

    fn comment(&mut self, lines: &[String]) -> anyhow::Result<()> {
        lines.iter().try_for_each(|line| self.write(&format!("# {line}")))
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        let written = writeln!(self.out, "{text}");
        self.check(written)
    }

    /// Completes the file, and says what is in it.
    fn finish(&mut self) -> anyhow::Result<()> {
        let Self { decisions, missed, skipped, .. } = *self;
        let summary = format!(
            "{decisions} decisions, {missed} missed, {skipped} that no line can have; see docs/traces.md"
        );
        self.comment(std::slice::from_ref(&summary))?;
        let flushed = self.out.flush();
        self.check(flushed)?;
        let clear = if self.progress.is_some() { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{}: {summary}", self.name);
        Ok(())
    }

    fn check(&self, written: io::Result<()>) -> anyhow::Result<()> {
        match written {
            Err(error) if self.name == STDOUT => Err(OutputError::from(error).into()),
            written => written.with_context(|| format!("cannot write {}", self.name)),
        }
    }
}
