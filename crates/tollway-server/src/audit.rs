//! The audit log: who reset, refunded or reloaded what, and from where.
//!
//! ```text
//! worker ──> queue, bounded ──> thread "tollway-audit" ──> the log of the server (target "audit", level info)
//!                                                      ──> a file, one JSON object a line
//! ```
//!
//! A worker never waits: what does not fit into the queue is lost, and counted. So a full disk, a slow file or a log
//! that nobody reads does not hold up a request.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use tollway::engine::Engine;
use tollway_core::{Algorithm, LogThrottle, Policy, Timestamp};
use tollway_wire::audit::{AuditLine, FAILED};
use tracing::{Level, enabled, error, info};

use crate::bounds::LOG_PAUSE;
use crate::caller::Caller;
use crate::metrics::Counter;
use crate::watch::Watch;

/// The number of lines that can wait to be written.
const QUEUE_MAX: usize = 4096;
/// The number of overrides that one reload can report. The lines of a larger change would not fit into the queue.
const OVERRIDES_MAX: usize = 1_000;
/// The time that the end of a server waits for the last lines.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The error that the file of the audit log cannot be written. It is inside of the [`io::Error`] of a server's start.
#[derive(Debug, Error)]
#[error("the audit log {} cannot be opened", path.display())]
#[non_exhaustive]
pub struct AuditFileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

/// Makes the lines of the audit log.
#[derive(Clone)]
pub(crate) struct Auditor {
    pub(crate) log: Arc<AuditLog>,
    pub(crate) limiter: Arc<Engine>,
    watch: Arc<Watch>,
}

impl Auditor {
    pub(crate) const fn new(log: Arc<AuditLog>, limiter: Arc<Engine>, watch: Arc<Watch>) -> Self {
        Self { log, limiter, watch }
    }

    /// Records that a client has changed the bucket of an id. `cost` is what it gave back. `outcome` is `unknown` if
    /// the store gave no answer.
    pub(crate) fn bucket(
        &self,
        caller: &Caller<'_>,
        what: &'static str,
        (limit, id): (&str, &[u8]),
        cost: Option<u64>,
        outcome: Option<&'static str>,
    ) {
        if !self.log.is_on() {
            return;
        }
        self.log.record(AuditLine {
            gate: Some(caller.gate),
            from: caller.from,
            limit: Some(limit.into()),
            id: self.watch.show(limit, id).map(Into::into),
            cost,
            outcome,
            ..AuditLine::new(now(), caller.who(), what)
        });
    }

    /// Records that a client has exported a page of the buckets, or imported some. `outcome` is that of an import that
    /// was refused.
    pub(crate) fn exported_or_imported(
        &self,
        caller: &Caller<'_>,
        what: &'static str,
        page: Option<u64>,
        outcome: Option<&'static str>,
    ) {
        if self.log.is_on() {
            self.log.record(AuditLine {
                gate: Some(caller.gate),
                from: caller.from,
                page,
                outcome,
                ..AuditLine::new(now(), caller.who(), what)
            });
        }
    }

    /// Records that a file was read again, and which overrides differ from those of the policy `before`.
    pub(crate) fn reloaded(&self, who: &'static str, path: &Path, is_done: bool, before: &Policy) {
        if !self.log.is_on() {
            return;
        }
        let file = Some(path.display().to_string().into());
        let now = now();
        let outcome = Some(if is_done { "done" } else { FAILED });
        self.log.record(AuditLine { file, outcome, ..AuditLine::new(now, who, "reload") });
        let after = self.limiter.policy();
        for (limit, id, change) in changed_overrides(before, &after).into_iter().take(OVERRIDES_MAX) {
            self.log.record(AuditLine {
                limit: Some(limit.into()),
                id: self.watch.show(limit, id).map(Into::into),
                outcome: Some(change),
                ..AuditLine::new(now, who, "override")
            });
        }
    }
}

/// Returns the time of a line, by the wall clock. The clock of the engine does not follow it: it is set at start, and
/// stands still while the machine sleeps.
fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the limit, the id and the kind of each override that one policy has and the other has not.
fn changed_overrides<'p>(before: &'p Policy, after: &'p Policy) -> Vec<(&'p str, &'p [u8], &'static str)> {
    let (before, after) = (overrides(before), overrides(after));
    let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key, "removed"));
    let changed = after.iter().filter_map(|(key, algorithm)| match before.get(key) {
        None => Some((key, "added")),
        Some(earlier) if earlier != algorithm => Some((key, "changed")),
        Some(_) => None,
    });
    removed.chain(changed).map(|((limit, id), change)| (*limit, *id, change)).collect()
}

fn overrides(policy: &Policy) -> BTreeMap<(&str, &[u8]), &Algorithm> {
    let limits = policy.limits().iter();
    limits
        .flat_map(|limit| limit.overrides().map(move |(id, algorithm)| ((limit.name(), id), algorithm)))
        .collect()
}

/// The audit log of a server. All its parts share it.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    /// `None` if nobody would see a line.
    queue: Option<Arc<Queue>>,
}

/// The thread that writes the audit log. The log ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    queue: Option<Arc<Queue>>,
}

/// The lines that wait to be written.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    lost: Counter,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<AuditLine>,
    /// True if the file may have been moved, and is to be opened again.
    reopen: bool,
    closing: bool,
    /// True once the last line is written.
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditLog {
    /// Starts to write to the log of the server, and to a file if there is one. A file that cannot be opened is an
    /// error.
    pub(crate) fn start(path: Option<&Path>) -> io::Result<(Self, AuditWriter)> {
        let file = path.map(AuditFile::open).transpose()?;
        if file.is_none() && !enabled!(target: "audit", Level::INFO) {
            return Ok((Self::default(), AuditWriter { queue: None }));
        }
        let queue = Arc::<Queue>::default();
        let of_thread = Arc::clone(&queue);
        thread::Builder::new().name("tollway-audit".to_owned()).spawn(move || {
            write_lines(&of_thread, file);
            of_thread.lock().closed = true;
            of_thread.changed.notify_all();
        })?;
        Ok((Self { queue: Some(Arc::clone(&queue)) }, AuditWriter { queue: Some(queue) }))
    }

    /// Returns whether somebody would see a line. If not, none need be made.
    pub(crate) const fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Writes a line soon.
    pub(crate) fn record(&self, line: AuditLine) {
        let Some(queue) = &self.queue else { return };
        let mut waiting = queue.lock();
        if waiting.lines.len() >= QUEUE_MAX {
            queue.lost.one();
            return;
        }
        waiting.lines.push(line);
        drop(waiting);
        queue.changed.notify_one();
    }

    /// Opens the file again before the next line, because a program that rotates logs may have moved it.
    pub(crate) fn reopen(&self) {
        let Some(queue) = &self.queue else { return };
        queue.lock().reopen = true;
        queue.changed.notify_one();
    }

    /// Returns the number of lines that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.lost.get())
    }
}

impl Drop for AuditWriter {
    /// Waits until the last lines are written. A file that takes none does not hold up the end for ever.
    fn drop(&mut self) {
        let Some(queue) = &self.queue else { return };
        let mut waiting = queue.lock();
        waiting.closing = true;
        queue.changed.notify_all();
        let _ = queue.changed.wait_timeout_while(waiting, CLOSE_TIME, |waiting| !waiting.closed);
    }
}

/// Writes lines until the log is closed.
fn write_lines(queue: &Queue, mut file: Option<AuditFile>) {
    loop {
        let mut waiting = queue.lock();
        while waiting.lines.is_empty() && !waiting.reopen && !waiting.closing {
            waiting = queue.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let (lines, reopen) = (mem::take(&mut waiting.lines), mem::take(&mut waiting.reopen));
        let is_last = waiting.closing;
        drop(waiting);
        lines.iter().for_each(log);
        if let Some(file) = &mut file {
            let lost = file.write(&lines, reopen);
            queue.lost.add(u64::try_from(lost).unwrap_or(u64::MAX));
        }
        if is_last {
            return;
        }
    }
}

fn log(line: &AuditLine) {
    let AuditLine { who, what, gate, from, limit, id, cost, page, file, outcome, .. } = line;
    info!(
        target: "audit",
        who = &**who,
        what,
        gate,
        from = from.map(tracing::field::display),
        limit = limit.as_deref(),
        id = id.as_deref(),
        cost,
        page,
        file = file.as_deref(),
        outcome,
        "{what}",
    );
}

/// Checks that lines can be appended to the file of an audit log.
pub(crate) fn check_audit_file(path: &Path) -> io::Result<()> {
    AuditFile::open(path).map(drop)
}

/// The file of an audit log.
#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// True if the last write failed, and may have left a part of a line.
    may_end_in_part_of_line: bool,
    throttle: LogThrottle,
}

impl AuditFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = open(path).map_err(|source| {
            io::Error::new(source.kind(), AuditFileError { path: path.to_owned(), source })
        })?;
        let throttle = LogThrottle::new(LOG_PAUSE, Instant::now());
        Ok(Self { path: path.to_owned(), file, buffer: Vec::new(), may_end_in_part_of_line: false, throttle })
    }

    /// Appends lines, and returns how many were lost.
    fn write(&mut self, lines: &[AuditLine], reopen: bool) -> usize {
        let reopened = if reopen { open(&self.path).map(|file| self.file = file) } else { Ok(()) };
        self.buffer.clear();
        let is_new = reopen && self.file.metadata().is_ok_and(|file| file.len() == 0);
        if self.may_end_in_part_of_line && !is_new {
            self.buffer.push(b'\n');
        }
        lines.iter().for_each(|line| line.put_json(&mut self.buffer));
        // If it cannot be opened again, lines go on to where the old file is now.
        let written = self.file.write_all(&self.buffer);
        self.may_end_in_part_of_line = written.is_err();
        let lost = if written.is_err() { lines.len() } else { 0 };
        if let Err(error) = reopened.and(written)
            && let Some(held_back) = self.throttle.allow(Instant::now())
        {
            error!(path = %self.path.display(), %error, held_back, "cannot write the audit log");
        }
        lost
    }
}

/// Opens a file to append to it. A new one can be read by its owner only.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tollway::config::WatchSettings;
    use tollway::{Clock, Config};
    use tollway_core::Timestamp;

    use super::*;

    fn line(who: &str) -> AuditLine {
        AuditLine::new(Timestamp::EPOCH, who, "reset")
    }

    #[test]
    fn lines_are_appended_in_order_also_to_a_file_that_was_moved() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("audit.log"), directory.path().join("audit.log.1"));
        fs::write(&path, "before\n").unwrap();
        let (log, writer) = AuditLog::start(Some(&path)).unwrap();
        assert!(log.is_on());
        log.record(line("a"));
        log.record(line("b"));
        drop(writer);
        let expected = ["before\n", &json("a"), &json("b")].concat();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);

        let (log, writer) = AuditLog::start(Some(&path)).unwrap();
        fs::rename(&path, &moved).unwrap();
        log.reopen();
        log.record(line("c"));
        drop(writer);
        assert_eq!(fs::read_to_string(&moved).unwrap(), expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), json("c"));
        assert_eq!(log.lost(), 0);
    }

    #[test]
    fn a_part_of_a_line_is_ended_also_if_the_same_file_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        fs::write(&path, "a part").unwrap();
        let mut file = AuditFile::open(&path).unwrap();
        file.may_end_in_part_of_line = true;
        file.write(&[line("a")], true);
        assert_eq!(fs::read_to_string(&path).unwrap(), ["a part\n", &json("a")].concat());

        fs::remove_file(&path).unwrap();
        file.may_end_in_part_of_line = true;
        file.write(&[line("b")], true);
        assert_eq!(fs::read_to_string(&path).unwrap(), json("b"), "a new file has no part of a line");
    }

    /// The clock of the engine stands still in 1970, as that of a machine does that sleeps.
    #[test]
    fn a_line_has_the_time_of_the_wall_clock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let (log, writer) = AuditLog::start(Some(&path)).unwrap();
        let config = Config::parse("limits: {}", "policy.yaml").unwrap();
        let engine = Arc::new(Engine::open(config, Clock::manual(Timestamp::EPOCH)).unwrap());
        let watch = Arc::new(Watch::new(WatchSettings::DEFAULT, 1));
        let auditor = Auditor::new(Arc::new(log), engine, watch);
        let caller = Caller::anyone("admin");
        auditor.bucket(&caller, "reset", ("login", b"alice"), None, None);
        auditor.exported_or_imported(&caller, "export", Some(7), None);
        auditor.reloaded("signal", Path::new("policy.yaml"), true, &auditor.limiter.policy());
        drop(writer);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| !line.contains("\"at\":\"1970-")), "{text}");
        assert!(text.contains("\"what\":\"export\",\"gate\":\"admin\",\"page\":7}"), "{text}");
    }

    fn json(who: &str) -> String {
        let mut out = Vec::new();
        line(who).put_json(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn overrides_that_differ_are_found() {
        let policy = |overrides: &str| {
            let text =
                format!("limits: {{ A: {{ rate: 1/s }}, B: {{ rate: 1/s }} }}\noverrides: {{ {overrides} }}");
            tollway::Config::parse(&text, "policy.yaml").unwrap().policy
        };
        let before = policy("A:x: { rate: 2/s }, A:y: { rate: 2/s }, B:x: { rate: 2/s }");
        let after = policy("A:x: { rate: 3/s }, B:x: { rate: 2/s }, B:z: { rate: 2/s }");
        let expected = [("A", &b"y"[..], "removed"), ("A", b"x", "changed"), ("B", b"z", "added")];
        assert_eq!(changed_overrides(&before, &after), expected);
        assert_eq!(changed_overrides(&after, &after), []);
    }

    #[test]
    fn a_full_disk_loses_lines_and_counts_them() {
        let (log, writer) = AuditLog::start(Some(Path::new("/dev/full"))).unwrap();
        (0..5).for_each(|_| log.record(line("a")));
        drop(writer);
        assert_eq!(log.lost(), 5);
    }

    /// Nobody reads the pipe, so the thread waits in its first write that does not fit.
    #[test]
    fn a_file_that_takes_no_lines_holds_up_nobody() {
        let (_reader, pipe) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pipe));
        let (log, _writer) = AuditLog::start(Some(Path::new(&path))).unwrap();
        let long = line(&"a".repeat(1 << 10));
        // The pipe has room for 64 KiB, and the queue for QUEUE_MAX lines, which the thread takes at once.
        (0..3 * QUEUE_MAX).for_each(|_| log.record(long.clone()));
        assert!(log.lost() > 0);
        assert!(log.lost() < 3 * QUEUE_MAX as u64);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_that_names_it() {
        let error = AuditLog::start(Some(Path::new("/nowhere/audit.log"))).unwrap_err();
        assert_eq!(error.to_string(), "the audit log /nowhere/audit.log cannot be opened");
    }
}
