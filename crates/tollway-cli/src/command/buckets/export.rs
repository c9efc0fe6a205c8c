//! `tollway buckets export`: writes the live buckets of a store to a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tollway::engine::JournalExport;
use tollway::export::{Batch, ExportReader, ExportWriter};
use tollway::journal::JournalSettings;
use tollway::store::redis::Redis;
use tollway::{Clock, block_on};
use tollway_client::ClientError;
use tollway_client::http::ExportQuery;
use tollway_client::http::blocking::Client;

use super::place::{OpenPlace, Place, ServerFlags};
use super::progress::Progress;
use super::{is_standard, with_attempts};
use crate::command::{Outcome, configured};

/// Write the live buckets of a store to a file
///
/// FROM is one of these:
///   http://HOST:8082     the memory of a running server, by its admin gate (scope "admin"); decisions go on
///   DIR                  the journal in a directory that no server uses; its files are not changed
///   redis://HOST         a Redis or Valkey, also rediss://, redis+cluster:// and redis+sentinel://
///
/// Redis keeps ids, so its export can be imported anywhere. Memory and journals keep hashes of ids. Their export has
/// the hashes and the key that they were made with, and can be imported into an empty journal directory, or into a
/// server or a directory with the same key; for Redis, "import --ids" names the ids that you know. The file can be read
/// by its owner only: who has it can find out whether an id that they guess has a bucket.
///
/// What is decided while the export runs may be in it or not. To lose nothing, stop the server, and export its journal.
#[derive(Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  tollway buckets export http://127.0.0.1:8082 --output buckets.export
  tollway buckets export /var/lib/tollway --output buckets.export
  tollway buckets export redis://old | tollway buckets import - redis+cluster://a,b

Exit status: 0 exported, 1 keys were left out because they are no buckets, 2 error.")]
pub(super) struct Export {
    /// A server's URL, a Redis URL, or a directory
    #[arg(value_name = "FROM")]
    from: Place,
    /// The file to write, which must not exist; - is standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// For a directory: the configuration of its server, which says how many buckets there may be [default: built-in]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: ServerFlags,
}

impl Export {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let place = self.from.open(&self.server)?;
        let output = Output::create(&self.output)?;
        let mut export =
            Exporting { clock: Clock::monotonic(), progress: Progress::new("exported"), foreign: 0 };
        let (count, out) = match place {
            OpenPlace::Server(client) => export.server(&client, output)?,
            OpenPlace::Redis(redis) => export.redis(&redis, output)?,
            OpenPlace::Directory(dir) => export.directory(&dir, self.config.as_deref(), output)?,
        };
        out.complete()?;
        let mut stderr = io::stderr().lock();
        writeln!(stderr, "{count} buckets exported")?;
        if export.foreign > 0 {
            writeln!(stderr, "{} keys left out: they hold no bucket of Tollway", export.foreign)?;
            return Ok(Outcome::No);
        }
        Ok(Outcome::Yes)
    }
}

struct Exporting {
    clock: Clock,
    progress: Progress,
    /// The number of keys that hold no bucket.
    foreign: u64,
}

type Written = (u64, Output);

impl Exporting {
    fn server(&mut self, client: &Client, output: Output) -> anyhow::Result<Written> {
        let (mut output, mut writer, mut from) = (Some(output), None, Some(0));
        while let Some(at) = from {
            let page = with_attempts(
                || client.export_buckets(ExportQuery { from: at }),
                |error| matches!(error, ClientError::TimedOut { .. }),
            )?;
            let wall = self.clock.wall();
            let mut reader = ExportReader::open(&*page.0).context("the server sent no export")?;
            if let Some(output) = output.take() {
                writer = Some(ExportWriter::new(output, reader.header())?);
            }
            let writer = writer.as_mut().context("the first page begins the file")?;
            while let Some(mut batch) = reader.next_batch().context("the server sent a damaged export")? {
                batch.receive(wall);
                self.write(writer, &batch)?;
            }
            from = reader.next_page();
        }
        Ok(writer.context("the server sent no page")?.finish()?)
    }

    fn redis(&mut self, redis: &Redis, output: Output) -> anyhow::Result<Written> {
        let mut writer = ExportWriter::new(output, &redis.export_header(&self.clock))?;
        let mut from = Some(0);
        while let Some(at) = from {
            let page = with_attempts(|| block_on(redis.export_page(at, &self.clock)), |_| true)?;
            self.foreign += page.foreign;
            self.write(&mut writer, &page.batch)?;
            from = page.next;
        }
        Ok(writer.finish()?)
    }

    fn directory(&mut self, dir: &Path, config: Option<&Path>, output: Output) -> anyhow::Result<Written> {
        if !dir.is_dir() {
            bail!("{} is no directory; write a directory, or the URL of a server or a Redis", dir.display());
        }
        let bounds = configured(config)?.memory_bounds;
        let journal = JournalExport::open(&JournalSettings::at(dir), bounds, self.clock.clone())?;
        if journal.without_place() > 0 {
            bail!(
                "the journal has {} buckets more than max_buckets; use the --config of its server",
                journal.without_place()
            );
        }
        let mut writer = ExportWriter::new(output, &journal.header())?;
        let mut from = Some(0);
        while let Some(at) = from {
            let (batch, next) = journal.batch(at);
            self.write(&mut writer, &batch)?;
            from = next;
        }
        Ok(writer.finish()?)
    }

    fn write(&mut self, writer: &mut ExportWriter<Output>, batch: &Batch) -> anyhow::Result<()> {
        writer.write(batch)?;
        self.progress.add(batch.len());
        Ok(())
    }
}

/// The file that is written, or standard output. A file has its name only when it is complete.
enum Output {
    Standard(io::Stdout),
    File { out: BufWriter<File>, part: PathBuf, name: PathBuf },
}

impl Output {
    fn create(name: &Path) -> anyhow::Result<Self> {
        if is_standard(name) {
            return Ok(Self::Standard(io::stdout()));
        }
        if name.exists() {
            bail!("{} exists already; choose another file, or remove it", name.display());
        }
        let mut part = name.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        // Whoever reads the file can find out which ids have buckets.
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part);
        let file = opened.with_context(|| format!("{} cannot be written", part.display()))?;
        Ok(Self::File { out: BufWriter::new(file), part, name: name.to_owned() })
    }

    /// Gives the file its name, when everything is on the disk.
    fn complete(self) -> anyhow::Result<()> {
        let Self::File { out, part, name } = self else { return Ok(()) };
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all().and_then(|()| fs::rename(&part, &name)).with_context(|| name.display().to_string())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::File { out, .. } => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::File { out, .. } => out.flush(),
        }
    }
}
