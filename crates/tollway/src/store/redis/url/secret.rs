//! A password, which may be read from a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::setting::TEXT_MAX;

/// A password that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The error of a file that has no valid password.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PasswordFileError {
    /// The file cannot be read.
    #[error("password_file \"{}\" cannot be read", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is empty, or its content cannot be a password.
    #[error("password_file \"{}\" must have 1 to {TEXT_MAX} bytes of UTF-8 on one line", path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
    },
}

impl Secret {
    /// Wraps a password.
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    /// Reads the only line of a file.
    pub fn from_file(path: &Path) -> Result<Self, PasswordFileError> {
        let mut bytes = Vec::new();
        let read = File::open(path)
            // Room for the end of the line, and for one byte too many.
            .and_then(|file| file.take(TEXT_MAX as u64 + 3).read_to_end(&mut bytes));
        read.map_err(|source| PasswordFileError::Unreadable { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).unwrap_or_default();
        let line = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        if line.is_empty() || line.len() > TEXT_MAX || line.contains(['\n', '\r', '\0']) {
            return Err(PasswordFileError::Content { path: path.to_owned() });
        }
        Ok(Self(line.to_owned()))
    }

    /// Returns the password, to send it to Redis.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_password_on_one_line() {
        let long = "x".repeat(TEXT_MAX);
        let cases: [(&[u8], Option<&str>); 11] = [
            (b"s3cret", Some("s3cret")),
            (b"s3cret\n", Some("s3cret")),
            (b"s3cret\r\n", Some("s3cret")),
            (b" s3 cret \n", Some(" s3 cret ")),
            (long.as_bytes(), Some(&long)),
            (b"", None),
            (b"\n", None),
            (b"s3cret\n\n", None),
            (b"s3\ncret\n", None),
            (b"gr\xfc\xdfe\n", None),
            (&[b'x'; TEXT_MAX + 1], None),
        ];
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (content, expected) in cases {
            std::fs::write(&file, content).expect("written");
            let secret = Secret::from_file(file.path());
            assert_eq!(secret.as_ref().ok().map(Secret::reveal), expected, "{secret:?}");
            if let Err(error) = secret {
                assert!(error.to_string().contains("must have 1 to 4096 bytes"), "{error}");
            }
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Secret::from_file(Path::new("no/such/file")).expect_err("there is none");
        assert_eq!(error.to_string(), "password_file \"no/such/file\" cannot be read");
    }
}
