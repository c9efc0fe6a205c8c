//! `tollway buckets import`: takes the buckets of a file into a store.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tollway::config::Config;
use tollway::engine::{Engine, JournalExport};
use tollway::export::{
    Batch, ExportHeader, ExportWriter, ImportError, ImportReport, ImportSettings, NameList,
};
use tollway::journal::JournalSettings;
use tollway::{Clock, block_on};
use tollway_client::ClientError;
use tollway_client::http::blocking::Client;
use tollway_client::http::{BucketsPage, ImportQuery};

use super::place::{OpenPlace, Place, ServerFlags};
use super::progress::Progress;
use super::{cannot_use, is_standard, open, with_attempts};
use crate::command::{Outcome, configured};

/// The longest page that is sent to a server, in bytes: in Base64 it is within what a gate takes.
const PAGE_MAX: usize = 44 << 10;

/// Take the buckets of a file into a store
///
/// TO is one of these:
///   http://HOST:8082     the memory of a running server, by its admin gate (scope "admin"); decisions go on
///   DIR                  the journal in a directory that no server uses; it is created if it does not exist
///   redis://HOST         a Redis or Valkey, also rediss://, redis+cluster:// and redis+sentinel://
///
/// If the target has a bucket already, the stricter state of both stays. So an import can be started again, and ends in
/// the same state. A file is read to its end before the first bucket is taken: one that is cut or damaged is refused.
/// What comes from standard input is taken as it arrives.
///
/// Times are moved to the clock of the target; windows stay where the calendar puts them.
///
/// Every bucket that cannot be taken is counted, and the reason is printed.
#[derive(Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  tollway buckets import buckets.export redis+cluster://a:6379,b:6379
  tollway buckets import buckets.export /var/lib/tollway --config tollway.yaml
  tollway buckets import memory.export redis://new --config tollway.yaml --ids accounts.txt

A line of accounts.txt is the name of a bucket, as \"tollway keys\" prints it, such as LoginsPerAccount:alice; a % in
an id is written %25.

Exit status: 0 all live buckets were taken, 1 some were left behind, 2 error.")]
pub(super) struct Import {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A server's URL, a Redis URL, or a directory
    #[arg(value_name = "TO")]
    to: Place,
    /// The configuration whose limits the buckets belong to, for a directory or --ids [default: built-in]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The names of buckets, one a line, for an export that has only hashes of ids
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Check everything, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Accept any difference between the clocks of source and target [default: at most a minute]
    #[arg(long)]
    any_clock: bool,
    #[command(flatten)]
    server: ServerFlags,
}

impl Import {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let failed = || cannot_use(&self.file);
        if !is_standard(&self.file) {
            let mut reader = open(&self.file)?;
            while reader.next_batch().with_context(failed)?.is_some() {}
        }
        let mut reader = open(&self.file)?;
        let header = *reader.header();
        let (config, clock) = (configured(self.config.as_deref())?, Clock::monotonic());
        let names = self.names(&header, &config, &clock)?;
        let settings = ImportSettings::default().with_dry_run(self.dry_run).with_any_clock(self.any_clock);
        let target = Target::open(self.to.open(&self.server)?, &header, config, settings, names.is_some())?;
        let (mut report, mut progress) = (ImportReport::default(), Progress::new("read"));
        while let Some(mut batch) = reader.next_batch().with_context(failed)? {
            let len = batch.len();
            names.iter().for_each(|names| names.name(&mut batch));
            report += target.import(&header, batch, settings, &clock)?;
            progress.add(len);
        }
        target.close()?;
        let mut stdout = io::stdout().lock();
        let would = if self.dry_run { "dry run, nothing was changed: " } else { "" };
        writeln!(stdout, "{would}{report}").map_err(crate::output::OutputError::from)?;
        Ok(if report.left_behind() == 0 { Outcome::Yes } else { Outcome::No })
    }

    /// Reads the list of names.
    fn names(
        &self,
        header: &ExportHeader,
        config: &Config,
        clock: &Clock,
    ) -> anyhow::Result<Option<NameList>> {
        let Some(path) = &self.ids else { return Ok(None) };
        let Some(mut names) = NameList::new(header, config.policy.clone(), clock.now()) else {
            bail!("the export has the ids of its buckets; leave --ids out");
        };
        let file = fs::File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        for (line, name) in (1..).zip(io::BufReader::new(file).split(b'\n')) {
            let name = name.with_context(|| format!("{} cannot be read", path.display()))?;
            let name = name.strip_suffix(b"\r").unwrap_or(&name);
            if !name.is_empty() {
                names.add(name).with_context(|| format!("{}:{line}", path.display()))?;
            }
        }
        Ok(Some(names))
    }
}

/// The store that takes the buckets.
enum Target {
    Server(Client),
    Redis(tollway::store::redis::Redis),
    Memory(Engine),
}

impl Target {
    fn open(
        place: OpenPlace,
        header: &ExportHeader,
        config: Config,
        settings: ImportSettings,
        has_names: bool,
    ) -> anyhow::Result<Self> {
        Ok(match place {
            OpenPlace::Server(client) => Self::Server(client),
            OpenPlace::Redis(_) if !header.has_names() && !has_names => {
                return Err(ImportError::NoNames.into());
            }
            OpenPlace::Redis(redis) => Self::Redis(redis),
            OpenPlace::Directory(dir) => Self::Memory(open_directory(&dir, header, config, settings)?),
        })
    }

    fn import(
        &self,
        header: &ExportHeader,
        mut batch: Batch,
        settings: ImportSettings,
        clock: &Clock,
    ) -> anyhow::Result<ImportReport> {
        match self {
            Self::Server(client) => import_pages(client, header, batch, settings, clock),
            Self::Redis(redis) => Ok(with_attempts(
                || {
                    batch.restate(clock.wall());
                    block_on(redis.import(&batch, settings, clock))
                },
                |error| matches!(error, ImportError::Store(_)),
            )?),
            Self::Memory(engine) => {
                batch.restate(clock.wall());
                Ok(engine.import(header, &batch, settings)?)
            }
        }
    }

    /// Waits until everything is kept.
    fn close(&self) -> anyhow::Result<()> {
        let Self::Memory(engine) = self else { return Ok(()) };
        engine.close_journal();
        match engine
            .journal_stats()
            .and_then(|stats| stats.last_error.filter(|_| stats.failing_since.is_some()))
        {
            Some(error) => {
                bail!("the journal could not be written: {error}; import again when that is mended")
            }
            None => Ok(()),
        }
    }
}

/// Opens the journal in a directory; for a dry run without writing to it.
fn open_directory(
    dir: &Path,
    header: &ExportHeader,
    config: Config,
    settings: ImportSettings,
) -> anyhow::Result<Engine> {
    let (clock, journal) = (Clock::monotonic(), JournalSettings::at(dir));
    let Config { policy, memory_bounds, .. } = config;
    Ok(match (settings.dry_run, dir.is_dir()) {
        (false, _) => Engine::with_journal_for(policy, memory_bounds, &journal, clock, header)?,
        (true, true) => JournalExport::open(&journal, memory_bounds, clock)?.into_engine(policy, header),
        (true, false) => Engine::with_memory_for(policy, memory_bounds, clock, header),
    })
}

/// Sends a batch to a server, in pages that a gate takes.
fn import_pages(
    client: &Client,
    header: &ExportHeader,
    mut batch: Batch,
    settings: ImportSettings,
    clock: &Clock,
) -> anyhow::Result<ImportReport> {
    if batch.is_empty() {
        return Ok(ImportReport::default());
    }
    batch.restate(clock.wall());
    let mut writer = ExportWriter::new(Vec::new(), header)?;
    writer.write(&batch)?;
    let page = writer.finish()?.1;
    if page.len() <= PAGE_MAX {
        let query = ImportQuery { dry_run: settings.dry_run, any_clock: settings.any_clock };
        let page = BucketsPage(page);
        let counts = with_attempts(
            || client.import_buckets(&page, query),
            |error| matches!(error, ClientError::TimedOut { .. }),
        )?;
        return Ok(ImportReport::from_numbers(counts.numbers()));
    }
    if batch.len() == 1 {
        bail!(
            "a bucket has a log of {} bytes, and a running server takes {PAGE_MAX}; stop the server, and import into its \
             journal directory",
            page.len()
        );
    }
    let rest = batch.split_off(batch.len() / 2);
    let mut report = import_pages(client, header, batch, settings, clock)?;
    report += import_pages(client, header, rest, settings, clock)?;
    Ok(report)
}
