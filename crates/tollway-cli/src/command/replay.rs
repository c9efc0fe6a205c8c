//! `tollway replay`: a trace against a limiter of its own, as fast as it can be read.

mod busiest;
mod progress;
mod source;
mod summary;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tollway::config::StoreUrl;
use tollway::core::{ErrorChain, Timestamp};
use tollway::engine::Engine;
use tollway::store::redis::RedisUrl;
use tollway::trace::{TraceEvent, TraceReader, TraceReply, TraceRequest, TraceTarget, matches};
use tollway::{Clock, Config};
use tollway_server::TraceResponder;

use self::progress::Progress;
use self::source::Source;
use self::summary::Summary;
use super::{Outcome, configured, store};
use crate::output::OutputError;

/// The deadline for a reply of a shared store. It is long, because a replay should show the store's own replies.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes to standard output are gathered up to this many bytes.
const OUTPUT_BUFFER: usize = 1 << 16;

/// Run a trace against a configuration, and compare the replies with the expected ones
///
/// A trace is plain text with one request a line: the time, the gate, the request, and after "=>" the expected reply,
/// if any. Prints every event with its reply, marks replies that differ, and ends with a summary of each limit. The
/// output is itself a trace: use it to see what a new configuration would have done to yesterday's requests, or save it
/// as a test.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway replay --config tollway.yaml orders.trace
  tollway replay --config candidate.yaml --quiet yesterday.trace
  echo '0s limit spend demo:alice' | tollway replay
  tollway replay --config tollway.yaml requests.trace > expected.trace

Exit status: 0 every reply is as expected, 1 a reply differs, 2 error.")]
pub(crate) struct Replay {
    /// The configuration file [default: the built-in configuration]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store: memory, or a Redis URL, where a new namespace is used [default: the store of the configuration]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Print only the events that differ and the summary
    #[arg(short, long)]
    quiet: bool,
    /// The trace file, or - for standard input
    #[arg(value_name = "TRACE", default_value = "-")]
    trace: PathBuf,
}

impl Replay {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let responder = self.responder()?;
        let source = Source::open(&self.trace)?;
        let mut run = Run {
            out: BufWriter::with_capacity(OUTPUT_BUFFER, io::stdout().lock()),
            quiet: self.quiet,
            progress: Progress::to_terminal(source.size, self.quiet),
            summary: Summary::default(),
        };
        let read = run.events(responder, source);
        run.progress.clear();
        // Also after a bad line: what came before it was answered.
        run.out.flush().map_err(OutputError::from)?;
        read?;
        run.finish()
    }

    fn responder(&self) -> anyhow::Result<TraceResponder> {
        let config = configured(self.config.as_deref())?;
        let store = apart(store::chosen(self.store.as_deref(), config.store.clone())?);
        let settings = config.gates.throttr_settings;
        let limiter =
            Engine::open(Config { store, journal: None, ..config }, Clock::manual(Timestamp::EPOCH))?;
        Ok(TraceResponder::new(limiter, settings))
    }
}

/// The same store with a namespace of its own: a trace has its own times, finds no buckets, and changes nobody's.
fn apart(store: StoreUrl) -> StoreUrl {
    match store {
        StoreUrl::Redis(url) => {
            let namespace = format!("{}-replay-{}", url.namespace, std::process::id());
            let deadline = url.deadline.max(PATIENCE);
            StoreUrl::Redis(RedisUrl { namespace, deadline, ..url })
        }
        memory => memory,
    }
}

/// A trace that is being replayed.
struct Run<W: Write> {
    out: W,
    quiet: bool,
    progress: Progress<io::Stderr>,
    summary: Summary,
}

impl<W: Write> Run<W> {
    fn events(&mut self, mut responder: TraceResponder, source: Source) -> anyhow::Result<()> {
        let mut policy = responder.limiter().policy();
        let mut reader = TraceReader::new(source.stream);
        while let Some(event) = reader.next() {
            let event = event.map_err(|error| anyhow!("{}:{}", source.name, ErrorChain(&error)))?;
            let reply = responder.answer(event.at, &event.request);
            if let TraceRequest::Reload(_) = event.request {
                policy = responder.limiter().policy();
            }
            let differs = event.expected.as_ref().map(|expected| !matches(expected, &reply));
            self.summary.count(&policy, &event.request, &reply, differs);
            self.print(&event, &reply, differs == Some(true)).map_err(OutputError::from)?;
            self.progress.tick(reader.lines(), reader.bytes());
        }
        Ok(())
    }

    fn print(&mut self, event: &TraceEvent, reply: &TraceReply, differs: bool) -> io::Result<()> {
        if !self.quiet {
            return self.write(event, reply, differs);
        }
        if !differs {
            return Ok(());
        }
        self.progress.clear();
        self.write(event, reply, differs)?;
        // Before the progress is shown again, perhaps on the same terminal.
        if self.progress.is_on() { self.out.flush() } else { Ok(()) }
    }

    /// The line with the reply, and below it, where that differs, what it should have been.
    fn write(&mut self, event: &TraceEvent, reply: &TraceReply, differs: bool) -> io::Result<()> {
        writeln!(self.out, "{}", event.with_reply(reply))?;
        match &event.expected {
            Some(expected) if differs => writeln!(self.out, "#! line {} expected: {expected}", event.line),
            _ => Ok(()),
        }
    }

    fn finish(mut self) -> anyhow::Result<Outcome> {
        write!(self.out, "{}", self.summary).and_then(|()| self.out.flush()).map_err(OutputError::from)?;
        Ok(if self.summary.differed() { Outcome::No } else { Outcome::Yes })
    }
}
