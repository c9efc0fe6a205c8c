//! Makes a new token, and the line for it in a token file.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

use super::list::{FILE_MAX, check_name, digest_text};
use super::{LimitGlobs, PREFIX, Scopes, TokenFileError, TokenList};

/// The random bytes of a token. Nobody can guess so many, so its digest needs no salt and no slow function.
const RANDOM_BYTES: usize = 32;

/// A new token, which nobody else has seen.
pub struct NewToken {
    secret: String,
    line: String,
}

/// The reasons why no token was made, or why it was not added to a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NewTokenError {
    /// The name is not valid.
    #[error("{problem}")]
    Name {
        /// The rule that names have.
        problem: &'static str,
    },
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The file is not a valid token file, or would not be one with this line.
    #[error(transparent)]
    File(#[from] TokenFileError),
    /// The file for the token itself exists already. It may have another token.
    #[error("{} exists already; a token is written to a new file", path.display())]
    Exists {
        /// The path of the file.
        path: PathBuf,
    },
    /// Another command adds a token to the same file, or was killed while it did.
    #[error(
        "{} exists: another \"tollway token\" command is changing the token file; try again, or remove this file if no \
         such command is running", path.display()
    )]
    Locked {
        /// The path of the file that the other command writes.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("{} cannot be written", path.display())]
    Unwritable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl NewToken {
    /// Makes a token of random numbers.
    pub fn generate(name: &str, scopes: Scopes, limits: Option<&LimitGlobs>) -> Result<Self, NewTokenError> {
        check_name(name).map_err(|problem| NewTokenError::Name { problem })?;
        let mut random = [0; RANDOM_BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| NewTokenError::Random)?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let secret = format!("{PREFIX}{digits}");
        let limits = limits.map(|limits| format!(" {limits}")).unwrap_or_default();
        let line = format!("{name} {} {scopes}{limits}", digest_text(secret.as_bytes()));
        Ok(Self { secret, line })
    }

    /// Returns the token itself, for the client.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Writes the token itself to a new file, which only its owner can read.
    pub fn write_secret_to(&self, path: &Path) -> Result<(), NewTokenError> {
        let written = create_private(path).and_then(|mut file| writeln!(file, "{}", self.secret));
        written.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => NewTokenError::Exists { path: path.to_owned() },
            _ => NewTokenError::Unwritable { path: path.to_owned(), source },
        })
    }

    /// Returns the line for the token file, which has no secret in it.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Adds the line to a token file. The file is replaced as a whole, so that a server never reads half of it, and
    /// keeps its owner and its permissions. If it does not exist, it is made, and only its owner can read it. Nothing
    /// is changed if the file is not valid, or has a token of this name already, or if another command changes it.
    pub fn append_to(&self, path: &Path) -> Result<(), NewTokenError> {
        let unwritable = |source| NewTokenError::Unwritable { path: path.to_owned(), source };
        // A link stays a link: the file that it points to is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let new_path = new_path(&target).map_err(unwritable)?;
        // Before the old file is read: of two commands that have read the same lines, one would lose the other's.
        let new = create_private(&new_path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => NewTokenError::Locked { path: new_path.clone() },
            _ => unwritable(source),
        })?;
        let replaced = self
            .with_line_of(&target, path)
            .and_then(|text| replace(&target, &new_path, new, &text).map_err(unwritable));
        if replaced.is_err() {
            let _ = fs::remove_file(&new_path);
        }
        replaced
    }

    /// Returns the text of a token file, which errors call `path`, with the line behind it.
    fn with_line_of(&self, target: &Path, path: &Path) -> Result<Vec<u8>, NewTokenError> {
        let mut text = match read(target) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(TokenFileError::Unreadable { path: path.to_owned(), source }.into()),
        };
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(self.line.as_bytes());
        text.push(b'\n');
        TokenList::parse(&text, path, 0)?;
        Ok(text)
    }
}

/// Shows the line, and never the token.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("line", &self.line).finish_non_exhaustive()
    }
}

/// Reads one byte more than a token file may have, which is enough to refuse it.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a file that only its owner can read.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the path of the new file, beside the old one. All commands have the same, which is their lock.
fn new_path(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    Ok(path.with_file_name(name))
}

/// Writes the new file, and gives it the name of the old one.
fn replace(path: &Path, new_path: &Path, mut new: File, text: &[u8]) -> io::Result<()> {
    keep_owner(path, &new)?;
    new.write_all(text)?;
    new.sync_all()?;
    fs::rename(new_path, path)
}

/// Gives a file the owner and the permissions of the file at `path`, if there is one: the server that reads it may run
/// as another user than the one who adds a token.
#[cfg(unix)]
fn keep_owner(path: &Path, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let Ok(old) = fs::metadata(path) else { return Ok(()) };
    let new = file.metadata()?;
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(old.permissions())
}

#[cfg(not(unix))]
fn keep_owner(_path: &Path, _file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Scope, TokenFile};

    fn new(name: &str) -> NewToken {
        NewToken::generate(name, [Scope::Decide, Scope::Read].into_iter().collect(), None).unwrap()
    }

    #[test]
    fn a_token_is_random_and_its_line_has_no_secret() {
        let (one, other) = (new("web"), new("web"));
        assert_ne!(one.secret(), other.secret());
        assert!(one.secret().starts_with("tw_") && one.secret().len() == 3 + 2 * RANDOM_BYTES);
        assert!(one.line().starts_with("web sha256:") && one.line().ends_with(" decide,read"));
        let debug = format!("{one:?}");
        assert!(!one.line().contains(&one.secret()[3..]) && !debug.contains(&one.secret()[3..]), "{debug}");
        let limits = "shop-*,login".parse().unwrap();
        let token = NewToken::generate("web", Scopes::from_iter([Scope::Admin]), Some(&limits)).unwrap();
        assert!(token.line().ends_with(" admin shop-*,login"));
        assert!(NewToken::generate("two words", Scopes::from_iter([Scope::Admin]), None).is_err());
    }

    /// Each has its line in the file, or an error.
    #[test]
    fn commands_that_add_at_once_lose_no_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.txt");
        let tokens: Vec<_> = (0..40).map(|number| new(&format!("web{number}"))).collect();
        let add = |token: &NewToken| match token.append_to(&path) {
            Ok(()) => true,
            Err(NewTokenError::Locked { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let added: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = tokens.iter().map(|token| scope.spawn(|| add(token))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let text = fs::read_to_string(&path).unwrap();
        for (token, added) in tokens.iter().zip(added) {
            assert_eq!(text.lines().any(|line| line == token.line()), added, "{}", token.line());
        }

        let lock = directory.path().join("tokens.txt.new");
        fs::write(&lock, "").unwrap();
        let error = new("ops").append_to(&path).unwrap_err().to_string();
        assert!(error.contains("tokens.txt.new exists: another \"tollway token\" command"), "{error}");
        assert!(lock.exists(), "the lock of another command stays");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn lines_are_added_to_a_file_that_only_its_owner_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.txt");
        let (web, ops) = (new("web"), new("ops"));
        web.append_to(&path).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap().trim_end()).unwrap();
        ops.append_to(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n{}\n", web.line(), ops.line()));
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777,
            0o600
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            new("group").append_to(&path).unwrap();
            assert_eq!(mode(), 0o640, "those who could read the file still can");
        }
        let (file, _) = TokenFile::open(&path).unwrap();
        assert!(file.grant(ops.secret().as_bytes(), &mut None).is_some());
        let error = new("ops").append_to(&path).unwrap_err().to_string();
        assert!(error.ends_with("tokens.txt:4:1: another line has the same name"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
