//! Finds the process that listens at a port, from `/proc`, which only Linux has.

use std::fs;
use std::path::Path;

/// Returns the name and the id of the process that has a socket at this port, if the system shows it to us.
pub(super) fn find(port: u16) -> Option<String> {
    let sockets: Vec<_> =
        ["tcp", "tcp6", "udp", "udp6"].into_iter().flat_map(|by| sockets_at(port, by)).collect();
    let mut processes = fs::read_dir("/proc").ok()?.flatten();
    let owner = processes.find(|process| has_one_of(&sockets, &process.path()))?;
    let name = fs::read_to_string(owner.path().join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim(), owner.file_name().to_str()?))
}

/// Returns the links of the sockets at a port: `socket:[INODE]`. Connections are left out.
fn sockets_at(port: u16, by: &str) -> Vec<String> {
    let table = fs::read_to_string(format!("/proc/net/{by}")).unwrap_or_default();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter_map(|row| {
        let is_here = row.get(1)?.ends_with(&format!(":{port:04X}"));
        let is_unconnected = row.get(2)?.ends_with(":0000");
        (is_here && is_unconnected).then_some(format!("socket:[{}]", row.get(9)?))
    })
    .collect()
}

/// Returns whether a process has one of these sockets open. The files of other users' processes cannot be read.
fn has_one_of(sockets: &[String], process: &Path) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| sockets.iter().any(|socket| link == Path::new(socket)))
}
