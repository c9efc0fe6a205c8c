//! Writes the metrics of the process that every exporter has, from `/proc` on Linux. Elsewhere there are none.

use std::fs;

use super::text::Page;

/// The number of ticks in a second. The kernel may count in others, but shows these to every program.
const TICKS: f64 = 100.0;

/// Appends the metrics of the process, as far as the system tells them.
pub(super) fn write(page: &mut Page) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(stat) = ProcessStat::parse(&stat) {
        let seconds = |ticks: u64| ticks as f64 / TICKS;
        let help = "Seconds of CPU time that the process used.";
        page.single("process_cpu_seconds_total", "counter", help, seconds(stat.cpu_ticks));
        if let Some(booted) = boot_time() {
            let help = "Start time of the process, in seconds since 1970.";
            page.single(
                "process_start_time_seconds",
                "gauge",
                help,
                booted as f64 + seconds(stat.start_ticks),
            );
        }
    }
    if let Some(bytes) = resident_bytes() {
        page.single("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", bytes);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // Listing them takes one itself.
        let open = files.count().saturating_sub(1);
        page.single("process_open_fds", "gauge", "Open file descriptors.", open);
    }
}

/// The fields of `/proc/self/stat` that are shown.
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    cpu_ticks: u64,
    start_ticks: u64,
}

impl ProcessStat {
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program is the second field, in parentheses, and may contain anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        // The manual (proc_pid_stat) counts from 1, and the first two are cut off.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, start_ticks: field(22)? })
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the time when the machine started, in seconds since 1970.
fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_program_is_called() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 140 15 16 17 20 0 4 0 22000 230 240 25 26";
        let expected = ProcessStat { cpu_ticks: 155, start_ticks: 22_000 };
        assert_eq!(ProcessStat::parse(stat), Some(expected));
        assert_eq!(ProcessStat::parse("12 (a) S 1 2"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }
}
