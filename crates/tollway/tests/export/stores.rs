//! The stores that buckets are moved between, and moving them.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tollway::core::{Nanos, Policy, Timestamp};
use tollway::engine::{Engine, JournalExport};
use tollway::export::{ExportHeader, ExportReader, ExportWriter, ImportReport, ImportSettings, NameList};
use tollway::journal::{JournalSettings, JournalSync};
use tollway::store::Store;
use tollway::store::memory::Memory;
use tollway::store::redis::{Redis, RedisUrl};
use tollway::{Clock, Config, block_on};
use tollway_testbed::{RedisCluster, RedisServer};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);

pub(crate) const BUCKETS: usize = 10_000;

pub(crate) fn policy(text: &str) -> Policy {
    Config::parse(text, "policy.yaml").unwrap().policy
}

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_millis(millis)
}

/// An engine and what it keeps its buckets in.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) kept: Kept,
}

pub(crate) enum Kept {
    Memory(TempDir),
    Redis(Redis),
}

/// Opens a store of its own in one Redis or in a Cluster.
pub(crate) fn open_redis(cluster: bool) -> Redis {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let url = if cluster { CLUSTER.url() } else { SERVER.url() };
    let url: RedisUrl = url.parse().unwrap();
    let namespace = format!("store-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    Redis::open(&RedisUrl { namespace, deadline: Duration::from_secs(60), ..url }).unwrap()
}

impl Place {
    pub(crate) fn redis(text: &str, cluster: bool, clock: &Clock) -> Self {
        let redis = open_redis(cluster);
        let store = Store::Redis(redis.clone(), Memory::new(BUCKETS));
        Self { engine: Engine::with(policy(text), store, clock.clone()), kept: Kept::Redis(redis) }
    }

    /// Returns an engine with an empty journal.
    pub(crate) fn memory(text: &str, clock: &Clock) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine =
            Engine::with_journal(policy(text), BUCKETS, &settings(dir.path()), clock.clone()).unwrap();
        Self { engine, kept: Kept::Memory(dir) }
    }

    /// Returns an engine with a journal for this export.
    pub(crate) fn memory_for(text: &str, clock: &Clock, header: &ExportHeader) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let engine =
            Engine::with_journal_for(policy(text), BUCKETS, &settings, clock.clone(), header).unwrap();
        Self { engine, kept: Kept::Memory(dir) }
    }

    /// Exports all buckets of a running engine, in the bytes of one file.
    pub(crate) fn export(&self) -> Vec<u8> {
        let clock = self.engine.clock();
        match &self.kept {
            Kept::Memory(_) => {
                let (mut writer, mut from) = (None, Some(0));
                while let Some(at) = from {
                    let page = self.engine.export_page(at).unwrap();
                    let mut reader = ExportReader::open(&*page).unwrap();
                    let header = *reader.header();
                    let writer =
                        writer.get_or_insert_with(|| ExportWriter::new(Vec::new(), &header).unwrap());
                    while let Some(mut batch) = reader.next_batch().unwrap() {
                        batch.receive(clock.wall());
                        writer.write(&batch).unwrap();
                    }
                    from = reader.next_page();
                }
                writer.unwrap().finish().unwrap().1
            }
            Kept::Redis(redis) => {
                let mut writer = ExportWriter::new(Vec::new(), &redis.export_header(clock)).unwrap();
                let mut from = Some(0);
                while let Some(at) = from {
                    let page = block_on(redis.export_page(at, clock)).unwrap();
                    assert_eq!(page.foreign, 0);
                    writer.write(&page.batch).unwrap();
                    from = page.next;
                }
                writer.finish().unwrap().1
            }
        }
    }

    /// Imports a file, whose buckets get these names if they have none.
    pub(crate) fn import(
        &self,
        file: &[u8],
        names: Option<&[String]>,
        settings: ImportSettings,
    ) -> ImportReport {
        let (clock, mut report) = (self.engine.clock(), ImportReport::default());
        let mut reader = ExportReader::open(file).unwrap();
        let header = *reader.header();
        let list = names.and_then(|names| {
            let mut list = NameList::new(&header, (*self.engine.policy()).clone(), clock.now())?;
            names.iter().for_each(|name| list.add(name.as_bytes()).unwrap());
            Some(list)
        });
        while let Some(mut batch) = reader.next_batch().unwrap() {
            batch.restate(clock.wall());
            list.iter().for_each(|list| list.name(&mut batch));
            report += match &self.kept {
                Kept::Memory(_) => self.engine.import(&header, &batch, settings).unwrap(),
                Kept::Redis(redis) => block_on(redis.import(&batch, settings, clock)).unwrap(),
            };
        }
        report
    }
}

pub(crate) fn settings(dir: &Path) -> JournalSettings {
    JournalSettings { dir: dir.to_owned(), sync: JournalSync::Never }
}

/// Exports the journal in a directory that no engine uses.
pub(crate) fn export_journal(dir: &Path, clock: &Clock) -> Vec<u8> {
    let journal = JournalExport::open(&settings(dir), BUCKETS, clock.clone()).unwrap();
    let mut writer = ExportWriter::new(Vec::new(), &journal.header()).unwrap();
    let mut from = Some(0);
    while let Some(at) = from {
        let (batch, next) = journal.batch(at);
        writer.write(&batch).unwrap();
        from = next;
    }
    writer.finish().unwrap().1
}
