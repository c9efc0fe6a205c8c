//! Checks the signatures of datagrams, and signs the replies.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use thiserror::Error;
use tollway::clock::{Clock, WallClock};
use tollway::config::{ContentWatch, TextHmac};
use tollway_core::ErrorChain;
use tollway_wire::text::{Mac, SignedRequest, SigningKey, SigningKeys, SigningKeysError};
use tracing::{error, info, warn};

use super::replay::ReplayMemory;
use crate::reload::Reloadable;
use crate::secret_file::can_be_read_by_everybody;

/// The reasons for which a datagram gets no reply at a gate with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The datagram has no signature.
    Unsigned,
    /// No key has the name that the datagram says.
    UnknownKey,
    /// The time of the datagram is outside of the window.
    Time,
    /// The key did not sign these bytes.
    WrongMac,
    /// The datagram has been answered before.
    Replayed,
    /// The memory of answered datagrams is full, so a copy could not be told from a new one.
    Full,
}

impl Rejected {
    /// All reasons, in the order of their counters.
    pub(crate) const ALL: [Self; 6] =
        [Self::Unsigned, Self::UnknownKey, Self::Time, Self::WrongMac, Self::Replayed, Self::Full];

    /// Returns the name that metrics have for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::UnknownKey => "unknown_key",
            Self::Time => "time",
            Self::WrongMac => "wrong_mac",
            Self::Replayed => "replayed",
            Self::Full => "full",
        }
    }
}

/// Checks the signatures of one gate's datagrams, on all workers.
pub(super) struct SignatureChecker {
    keys: Arc<ArcSwap<SigningKeys>>,
    replays: ReplayMemory,
    clock: Clock,
    wall: WallClock,
}

/// Checks the datagrams of one batch, which have the same keys and the same time.
pub(super) struct BatchSignatures<'a> {
    checker: &'a SignatureChecker,
    keys: Arc<SigningKeys>,
    /// The wall clock, in milliseconds.
    now: u64,
}

/// Signs the reply to one request.
#[derive(Clone, Copy)]
pub(super) struct ReplySigner<'a> {
    key: &'a SigningKey,
    request: Mac,
}

impl SignatureChecker {
    /// Takes the keys that were read, and remembers at most `max` datagrams.
    pub(super) fn new(file: &KeyFile, hmac: &TextHmac, max: usize, clock: &Clock) -> Self {
        let (keys, clock) = (Arc::clone(&file.keys), clock.clone());
        let wall = WallClock::new(clock.clone());
        let window = hmac.window.get() / 1_000_000;
        let replays = ReplayMemory::new(window, max, wall_millis(&clock, &wall));
        Self { keys, replays, clock, wall }
    }

    pub(super) fn batch(&self) -> BatchSignatures<'_> {
        let now = wall_millis(&self.clock, &self.wall);
        BatchSignatures { checker: self, keys: self.keys.load_full(), now }
    }
}

fn wall_millis(clock: &Clock, wall: &WallClock) -> u64 {
    wall.offset().to_wall_millis(clock.now().as_nanos() / 1_000_000)
}

impl BatchSignatures<'_> {
    /// Returns the request in a datagram, if it is signed and has not come before, and what signs the reply.
    pub(super) fn check<'d>(&self, datagram: &'d [u8]) -> Result<(ReplySigner<'_>, &'d [u8]), Rejected> {
        let signed = SignedRequest::split(datagram).ok_or(Rejected::Unsigned)?;
        let key = self.keys.find(signed.key_name).ok_or(Rejected::UnknownKey)?;
        let replays = &self.checker.replays;
        // Before the MAC, because it takes less time.
        replays.check_time(signed.signed_at, self.now)?;
        let request = signed.verify(key).ok_or(Rejected::WrongMac)?;
        replays.remember(&request, signed.signed_at)?;
        Ok((ReplySigner { key, request }, signed.request))
    }
}

impl ReplySigner<'_> {
    /// Signs the reply that begins at `start`.
    pub(super) fn sign(&self, start: usize, out: &mut Vec<u8>) {
        self.key.sign_reply(&self.request, start, out);
    }
}

/// The reasons why a file of keys cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("the keys of the text gate cannot be read from {}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is longer than the most keys that it may have.
    #[error("{} is too long for a file of keys; it may have {} bytes", path.display(), SigningKeys::FILE_MAX)]
    TooLong {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("{} is not a text; write a name and a secret on each line", path.display())]
    NotText {
        /// The path of the file.
        path: PathBuf,
    },
    /// A line is wrong.
    #[error("{} is wrong", path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The mistake in the file.
        source: SigningKeysError,
    },
}

impl KeyFileError {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::TooLong { path }
            | Self::NotText { path }
            | Self::Content { path, .. } => path,
        }
    }
}

/// Checks that the keys of a text gate can be used, as a server does when it starts. Returns a warning if everybody can
/// read the file.
pub(in crate::gate) fn check_key_file(path: &Path) -> Result<Option<String>, KeyFileError> {
    read_keys(&mut ContentWatch::default(), path)?;
    Ok(can_be_read_by_everybody(path).then(|| format!("{PUBLIC_KEYS}: {}", path.display())))
}

/// The warning about a file that is not private.
const PUBLIC_KEYS: &str = "every user of this system can read the keys of the text gate; use chmod 600";

/// The file with the keys of the text gate, and the keys that are in force.
pub(super) struct KeyFile {
    path: PathBuf,
    watch: ContentWatch,
    keys: Arc<ArcSwap<SigningKeys>>,
}

impl KeyFile {
    /// Reads the file, and watches it from now on.
    pub(super) fn open(path: &Path) -> Result<Self, KeyFileError> {
        let mut watch = ContentWatch::default();
        let keys = read_keys(&mut watch, path)?;
        Ok(Self { path: path.to_owned(), watch, keys: Arc::new(ArcSwap::from_pointee(keys)) })
    }
}

fn read_keys(watch: &mut ContentWatch, path: &Path) -> Result<SigningKeys, KeyFileError> {
    let path = path.to_owned();
    let bytes = match watch.read(&path) {
        Ok(bytes) => bytes,
        Err(source) => return Err(KeyFileError::Unreadable { path, source }),
    };
    if can_be_read_by_everybody(&path) {
        warn!(path = %path.display(), "{PUBLIC_KEYS}");
    }
    if bytes.len() > SigningKeys::FILE_MAX {
        return Err(KeyFileError::TooLong { path });
    }
    let Ok(text) = std::str::from_utf8(&bytes) else { return Err(KeyFileError::NotText { path }) };
    SigningKeys::parse(text).map_err(|source| KeyFileError::Content { path, source })
}

impl Reloadable for KeyFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn changed(&mut self) -> bool {
        self.watch.changed()
    }

    fn reload(&mut self) -> bool {
        self.watch.clear();
        match read_keys(&mut self.watch, &self.path) {
            Ok(keys) => {
                let count = keys.iter().len();
                self.keys.store(Arc::new(keys));
                info!(path = %self.path.display(), keys = count, "keys of the text gate reloaded");
                true
            }
            Err(wrong) => {
                error!(
                    "keys of the text gate not reloaded; the old keys stay in force: {}",
                    ErrorChain(&wrong)
                );
                false
            }
        }
    }
}
