//! Prepares the process for many open files: raises its limit, and lets the kernel's table of them grow beforehand.
//!
//! ```text
//! 1,000 connections at once ──> accept() at file 256, 512, 1024 …: the table is copied, and accept() waits
//! ```
//!
//! A table that grows in a process with threads waits until no processor reads the old one: 8 to 16 ms, in which the
//! worker that accepts answers nobody. So the table has its size before the first client comes; it never shrinks.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tracing::warn;

/// The number of files that are not connections: listening sockets, what the runtimes wait with, the configuration.
const OTHER_FILES: u64 = 64;
/// The largest table of open files that is made beforehand. A file takes 8 bytes of the kernel's memory there, so this
/// is 8 MB; 10,000 connections at each of four gates are 512 KB.
const TABLE_MAX: u64 = 1 << 20;

/// Raises the open file limit of the process to what this many connections need, as far as the system allows, and gives
/// the process's table of open files that size. Many systems give a process 1024 files and let it ask for more. Warns
/// if the connections do not fit.
pub fn allow_connections(connections: usize) {
    size_file_table(connections, connections);
}

/// Raises the open file limit to what `wanted` connections need, gives the process's table of open files that size, and
/// warns if not even the `needed` connections fit.
pub(crate) fn size_file_table(wanted: usize, needed: usize) {
    let files = |connections| u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    let (wanted, needed) = (files(wanted), files(needed));
    let limits = getrlimit(Resource::Nofile);
    let allowed = raise_limit(limits, wanted);
    if allowed < needed {
        warn!(
            files = allowed,
            needed, "the open file limit is lower than the connection limit; raise it with ulimit -n"
        );
    }
    grow_table(wanted.min(allowed).min(TABLE_MAX));
}

/// Raises the limit to this many files if it is lower, and returns how many the process may have.
fn raise_limit(limits: Rlimit, wanted: u64) -> u64 {
    let current = limits.current.unwrap_or(u64::MAX);
    let raised = raised_limit(&limits, wanted);
    if raised == current {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limits }) {
        Ok(()) => raised,
        Err(_) => current,
    }
}

/// Returns the limit that is nearest to this many files: no lower than it is, and no higher than the system allows.
fn raised_limit(limits: &Rlimit, wanted: u64) -> u64 {
    let current = limits.current.unwrap_or(u64::MAX);
    limits.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current)
}

/// Lets the table of open files grow until it has space for this many: a file with the highest number is opened, and
/// closed again. Where that fails, the table grows when it must.
fn grow_table(files: u64) {
    let Ok(highest) = i32::try_from(files.saturating_sub(1)) else { return };
    if let Ok(socket) = Socket::new(Domain::IPV4, Type::DGRAM, None) {
        drop(fcntl_dupfd_cloexec(&socket, highest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of files that the table of this process has space for.
    #[cfg(target_os = "linux")]
    fn table_size() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_table_has_its_size_before_the_first_connection() {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        // Not a power of two: the system rounds up.
        let connections = 3_000.min(limit - OTHER_FILES);
        allow_connections(usize::try_from(connections).unwrap());
        assert!(table_size() >= connections + OTHER_FILES, "{} for {connections}", table_size());
    }

    #[test]
    fn a_limit_is_raised_as_far_as_the_system_allows() {
        for (current, maximum, expected) in [
            (None, None, u64::MAX),
            (Some(8_000), Some(9_000), 8_000),
            (Some(1_024), None, 5_000),
            (Some(1_024), Some(9_000), 5_000),
            (Some(1_024), Some(4_096), 4_096),
            (Some(1_024), Some(1_024), 1_024),
        ] {
            assert_eq!(
                raised_limit(&Rlimit { current, maximum }, 5_000),
                expected,
                "{current:?} {maximum:?}"
            );
        }
    }
}
