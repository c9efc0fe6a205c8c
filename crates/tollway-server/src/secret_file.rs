//! Files with secrets: keys of certificates and of signed datagrams.

use std::path::Path;

/// Returns whether every user of the system can read a file. Such a file is not refused, because secrets that an
/// orchestrator mounts often are readable for all, in a container without other users.
#[cfg(unix)]
pub(crate) fn can_be_read_by_everybody(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// Returns false: the system has other permissions, which are not looked at.
#[cfg(not(unix))]
pub(crate) fn can_be_read_by_everybody(_file: &Path) -> bool {
    false
}
