//! `tollgate replay`: a trace against a limiter of its own, as fast as it can be read.

mod busiest;
mod progress;
mod source;
mod summary;

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use tollgate::core::Timestamp;
use tollgate::store::memory::Memory;
use tollgate::trace::{Event, Reader, Target, matches};
use tollgate::{Clock, Limiter};

use self::progress::Progress;
use self::source::Source;
use self::summary::Summary;
use super::{Outcome, configured};
use crate::output::OutputError;

/// Writes to standard output are gathered up to this many bytes.
const OUTPUT_BUFFER: usize = 1 << 16;

/// Answer the requests of a trace and compare the replies with the expected ones
///
/// A trace is plain text, one request a line: the time, the gate, what is asked, and after `=>` the reply that must
/// come back, if any. Replay prints every event with the reply it got, marks each that is not as expected, and ends
/// with a summary per limit. The output is itself a trace: use it to see what a new configuration would have done to
/// yesterday's requests, or save it as what must hold from now on.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollgate replay --config tollgate.yaml orders.trace
  tollgate replay --config candidate.yaml --quiet yesterday.trace
  echo '0s limit spend demo:alice' | tollgate replay
  tollgate replay --config tollgate.yaml requests.trace > expected.trace

Exit status: 0 if no reply differed, 1 if any did, 2 if the trace or the configuration cannot be read.")]
pub(crate) struct Replay {
    /// The configuration whose limits decide; the built-in one if not given
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the buckets live
    #[arg(long, value_name = "URL", default_value = "memory", value_parser = ["memory"])]
    store: String,
    /// Print only the events that differ, and the summary
    #[arg(short, long)]
    quiet: bool,
    /// The trace; `-` is standard input
    #[arg(value_name = "TRACE", default_value = "-")]
    trace: PathBuf,
}

impl Replay {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let config = configured(self.config.as_deref())?;
        let store = Memory::new(config.max_buckets);
        let limiter = Limiter::with(config.policy, store, Clock::manual(Timestamp::EPOCH));
        let source = Source::open(&self.trace)?;
        let mut run = Run {
            name: source.name.clone(),
            progress: Progress::to_terminal(source.size, self.quiet),
            summary: Summary::default(),
            out: BufWriter::with_capacity(OUTPUT_BUFFER, io::stdout().lock()),
            reply: String::new(),
            quiet: self.quiet,
        };
        let read = run.events(limiter, Reader::new(source.stream));
        run.progress.clear();
        // Also after a bad line: what came before it was answered.
        run.out.flush().map_err(OutputError::from)?;
        read?;
        run.finish()
    }
}

/// One trace on its way through.
struct Run<W: Write> {
    name: String,
    progress: Progress<io::Stderr>,
    summary: Summary,
    out: W,
    reply: String,
    quiet: bool,
}

impl<W: Write> Run<W> {
    fn events(&mut self, mut limiter: Limiter, mut reader: Reader<impl io::BufRead>) -> anyhow::Result<()> {
        let policy = limiter.policy();
        while let Some(event) = reader.next() {
            let event = event.map_err(|error| anyhow!("{}:{error}", self.name))?;
            let reply = limiter.answer(event.at, &event.request);
            let differs = event.expected.as_ref().map(|expected| !matches(expected, &reply));
            self.summary.count(&policy, &event.request, &reply, differs);
            self.reply.clear();
            write!(self.reply, "{}", event.with_reply(&reply))?;
            self.print(&event, differs == Some(true)).map_err(OutputError::from)?;
            self.progress.tick(reader.lines(), reader.bytes());
        }
        Ok(())
    }
}

impl<W: Write> Run<W> {
    /// The line with the reply, and below it, where that differs, what it should have been.
    fn print(&mut self, event: &Event, differs: bool) -> io::Result<()> {
        if self.quiet && !differs {
            return Ok(());
        }
        self.progress.clear();
        writeln!(self.out, "{}", self.reply)?;
        if let Some(expected) = event.expected.as_ref().filter(|_| differs) {
            writeln!(self.out, "#! line {} expected: {expected}", event.line)?;
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<Outcome> {
        write!(self.out, "{}", self.summary).and_then(|()| self.out.flush()).map_err(OutputError::from)?;
        Ok(if self.summary.differed() { Outcome::No } else { Outcome::Yes })
    }
}
