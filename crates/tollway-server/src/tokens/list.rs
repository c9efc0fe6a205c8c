//! The tokens of one file: parsed, and found by the digest of what a client sends.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::{LimitGlobs, PREFIX, Scope, Scopes, TOKEN_MAX};
use crate::{caller, reload};

/// The most bytes that a token file may have.
pub(super) const FILE_MAX: usize = 1 << 20;
/// The most lines that a token file may have.
const LINES_MAX: usize = 10_000;
/// The longest name of a token, in bytes.
const NAME_MAX: usize = 64;
/// The most errors of one file that are shown.
const ERRORS_MAX: usize = 20;
/// The names that the audit log has for those who have no token.
const RESERVED: [&str; 3] = [caller::ANYONE, reload::BY_SIGNAL, reload::BY_FILE];
/// The beginning of a digest in the file.
const DIGEST: &str = "sha256:";

/// The name of a token, and what it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) name: Box<str>,
    scopes: Scopes,
    /// The limits that the token is for; `None` if it is for all.
    limits: Option<LimitGlobs>,
}

impl Grant {
    pub(crate) const fn includes(&self, scope: Scope) -> bool {
        self.scopes.include(scope)
    }

    /// Returns whether the token is for the limit or the rule of this name.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        self.limits.as_ref().is_none_or(|limits| limits.match_name(name))
    }

    /// Returns whether the token is for every limit and rule.
    pub(crate) const fn is_for_all(&self) -> bool {
        self.limits.is_none()
    }
}

/// The SHA-256 of a token, in words: fewer comparisons than bytes.
type TokenDigest = [u64; 4];

/// The lines of a token file.
#[derive(Debug)]
pub(crate) struct TokenList {
    /// A number that no earlier list of the file had.
    pub(super) generation: u64,
    /// The key of the hashes below. It is a new one for each list, and never leaves the process.
    key: RandomState,
    /// The tokens, sorted by the keyed hashes of their digests.
    tokens: Vec<ListedToken>,
}

/// One line of a token file.
#[derive(Debug)]
struct ListedToken {
    hash: u64,
    digest: TokenDigest,
    grant: Arc<Grant>,
}

impl TokenList {
    /// Returns what a token allows.
    ///
    /// A binary search looks for the hash of the token's digest, and digests are compared in constant time. The steps
    /// of the search depend on the hash alone, and nobody outside knows its key: a client that measures them learns
    /// nothing about the digests of others, not even how one begins.
    pub(super) fn find(&self, token: &[u8]) -> Option<&Arc<Grant>> {
        if token.len() > TOKEN_MAX {
            return None;
        }
        let wanted = token_digest(token);
        let found = self.candidates(&wanted).find(|listed| listed.digest.ct_eq(&wanted).into());
        found.map(|listed| &listed.grant)
    }

    /// Returns the tokens whose digest has the keyed hash of this one: hardly ever another than the same.
    fn candidates(&self, digest: &TokenDigest) -> impl Iterator<Item = &ListedToken> {
        let hash = self.key.hash_one(digest);
        let from = self.tokens.partition_point(|listed| listed.hash < hash);
        self.tokens[from..].iter().take_while(move |listed| listed.hash == hash)
    }

    /// Returns the number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Parses the bytes of the file at `path`. Errors do not repeat what the file has: it could be a token.
    pub(super) fn parse(bytes: &[u8], path: &Path, generation: u64) -> Result<Self, TokenFileError> {
        if bytes.len() > FILE_MAX {
            return Err(TokenFileError::TooLong { path: path.to_owned() });
        }
        let text = String::from_utf8_lossy(bytes);
        if text.lines().count() > LINES_MAX {
            return Err(TokenFileError::TooManyLines { path: path.to_owned() });
        }
        let mut errors = Vec::new();
        let (mut tokens, mut names, mut digests, key) =
            (Vec::new(), HashSet::new(), HashSet::new(), RandomState::new());
        for (number, line) in (1..).zip(text.lines()) {
            match parse_line(line) {
                Ok(None) => {}
                Ok(Some((_, grant))) if !names.insert(grant.name.clone()) => {
                    errors.push(TokenLineError::new(number, line, line, "another line has the same name"));
                }
                Ok(Some((digest, _))) if !digests.insert(digest) => {
                    let at = words(line).nth(1).unwrap_or(line);
                    errors.push(TokenLineError::new(number, line, at, "another line has the same token"));
                }
                Ok(Some((digest, grant))) => {
                    tokens.push(ListedToken { hash: key.hash_one(digest), digest, grant: Arc::new(grant) });
                }
                Err((at, message)) => errors.push(TokenLineError::new(number, line, at, message)),
            }
        }
        if errors.is_empty() {
            tokens.sort_unstable_by_key(|listed| listed.hash);
            return Ok(Self { generation, key, tokens });
        }
        Err(TokenFileError::Lines { path: path.to_owned(), errors })
    }
}

/// Parses one line; `None` if it has no token. An error has the part of the line that is wrong.
fn parse_line(line: &str) -> Result<Option<(TokenDigest, Grant)>, (&str, String)> {
    if line.trim_start().starts_with('#') {
        return Ok(None);
    }
    let mut words = words(line);
    let Some(name) = words.next() else { return Ok(None) };
    let end = &line[line.trim_end().len()..];
    check_name(name).map_err(|message| (name, message.to_owned()))?;
    let digest = words.next().ok_or((end, "the digest is missing: sha256: and 64 digits".to_owned()))?;
    let parsed = parse_digest(digest).ok_or_else(|| {
        let must_be = "a digest is sha256: and 64 hexadecimal digits, as \"tollway token\" prints it";
        (digest, must_be.to_owned())
    })?;
    let scopes = words.next().ok_or((end, "the scopes are missing, such as decide,read".to_owned()))?;
    let parsed_scopes = scopes.parse().map_err(|error: super::UnknownScope| (scopes, error.to_string()))?;
    let limits = match words.next() {
        Some(limits) => {
            Some(limits.parse().map_err(|error: super::LimitGlobsError| (limits, error.to_string()))?)
        }
        None => None,
    };
    if let Some(more) = words.next() {
        return Err((more, "a line has a name, a digest, scopes and limits, and nothing more".to_owned()));
    }
    Ok(Some((parsed, Grant { name: name.into(), scopes: parsed_scopes, limits })))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_ascii_whitespace()
}

/// Returns what is wrong with the name of a token.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(fits) {
        return Err("a name is 1 to 64 letters, digits, \".\", \"_\" and \"-\"");
    }
    if RESERVED.contains(&name) {
        return Err("the audit log has this name for clients without a token; choose another");
    }
    // Names are logged, and a token in the place of a name would be too.
    if name.starts_with(PREFIX) {
        return Err(
            "a name must not begin with tw_, as tokens do; the file has names and digests, never tokens",
        );
    }
    Ok(())
}

fn parse_digest(text: &str) -> Option<TokenDigest> {
    let digits = text.strip_prefix(DIGEST)?;
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut words = [0; 4];
    for (word, start) in words.iter_mut().zip((0..).step_by(16)) {
        *word = u64::from_str_radix(&digits[start..start + 16], 16).ok()?;
    }
    Some(words)
}

fn token_digest(token: &[u8]) -> TokenDigest {
    let bytes = digest(&SHA256, token);
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_ref().chunks_exact(8)) {
        *word = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    }
    words
}

/// Returns the digest of a token, as a token file has it.
pub(super) fn digest_text(token: &[u8]) -> String {
    let digits: String = token_digest(token).iter().map(|word| format!("{word:016x}")).collect();
    format!("{DIGEST}{digits}")
}

/// The reasons why a token file cannot be used. None of them repeats a part of the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("the token file {} cannot be read", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has too many bytes.
    #[error("the token file {} has more than {FILE_MAX} bytes", path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file has too many lines.
    #[error("the token file {} has more than {LINES_MAX} lines", path.display())]
    TooManyLines {
        /// The path of the file.
        path: PathBuf,
    },
    /// Lines of the file are wrong.
    #[error("{}", listed(path, errors))]
    Lines {
        /// The path of the file.
        path: PathBuf,
        /// The errors, in the order of the lines.
        errors: Vec<TokenLineError>,
    },
}

impl TokenFileError {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::TooLong { path }
            | Self::TooManyLines { path }
            | Self::Lines { path, .. } => path,
        }
    }
}

/// An error in one line of a token file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenLineError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The message, which says what would be right.
    pub message: String,
}

impl TokenLineError {
    /// Makes the error of a part of a line.
    fn new(number: usize, line: &str, part: &str, message: impl Into<String>) -> Self {
        // Both are parts of one text.
        let start = (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize).min(line.len());
        let column = line.get(..start).map_or(0, |before| before.chars().count()) + 1;
        Self { line: number, column, message: message.into() }
    }
}

/// Writes `3:5: message`.
impl fmt::Display for TokenLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Returns the errors, one a line, up to a bound.
fn listed(path: &Path, errors: &[TokenLineError]) -> String {
    let path = path.display();
    let mut lines: Vec<_> = errors.iter().take(ERRORS_MAX).map(|error| format!("{path}:{error}")).collect();
    if errors.len() > ERRORS_MAX {
        lines.push(format!("{path}: and {} more", errors.len() - ERRORS_MAX));
    }
    lines.join("\n")
}

/// Checks that a token file can be read and is valid, and returns the number of its tokens.
pub(crate) fn check_token_file(path: &Path) -> Result<usize, TokenFileError> {
    super::TokenFile::open(path).map(|(file, _)| file.len())
}

/// Checks the text of a token file, which errors call `path`, and returns the number of its tokens.
pub fn check_tokens(text: &[u8], path: &Path) -> Result<usize, TokenFileError> {
    TokenList::parse(text, path, 0).map(|list| list.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "tw_secret-of-a-test";

    fn parse(text: &str) -> Result<TokenList, TokenFileError> {
        TokenList::parse(text.as_bytes(), Path::new("tokens.txt"), 0)
    }

    fn line(name: &str, token: &str, rest: &str) -> String {
        format!("{name} {} {rest}\n", digest_text(token.as_bytes()))
    }

    #[test]
    fn the_digest_is_that_of_the_standard() {
        let known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest_text(b"abc"), known);
        assert_eq!(parse_digest(known), Some(token_digest(b"abc")));
        assert_eq!(parse_digest(&known.to_uppercase().replace("SHA", "sha")), Some(token_digest(b"abc")));
    }

    #[test]
    fn a_token_is_found_in_any_line_and_nothing_else_is() {
        let names: Vec<_> = (0..100).map(|number| format!("t{number}")).collect();
        let text: String = names.iter().map(|name| line(name, &format!("tw_{name}"), "decide")).collect();
        let list = parse(&format!("# people\n\n{text}  # end\n")).unwrap();
        assert_eq!(list.len(), 100);
        for name in &names {
            let found = list.find(format!("tw_{name}").as_bytes()).unwrap();
            assert_eq!(*found.name, **name);
        }
        for wrong in ["", "tw_", "tw_t", "tw_t100", "t0", "TW_T0", "tw_t0 "] {
            assert_eq!(list.find(wrong.as_bytes()), None, "{wrong}");
        }
        let long = "a".repeat(TOKEN_MAX + 1);
        assert_eq!(parse(&line("long", &long, "decide")).unwrap().find(long.as_bytes()), None);
        let longest = &long[..TOKEN_MAX];
        assert!(parse(&line("long", longest, "decide")).unwrap().find(longest.as_bytes()).is_some());
    }

    /// The time that a wrong token takes cannot depend on how much of a digest is right: none is looked at.
    #[test]
    fn a_digest_that_begins_like_a_listed_one_is_compared_with_none() {
        let text: String = (0..100).map(|n| line(&format!("t{n}"), &format!("tw_{n}"), "decide")).collect();
        let list = parse(&text).unwrap();
        for number in 0..100 {
            let digest = token_digest(format!("tw_{number}").as_bytes());
            assert_eq!(list.candidates(&digest).count(), 1);
            for bit in 0..256 {
                let mut other = digest;
                other[bit / 64] ^= 1 << (63 - bit % 64);
                assert_eq!(list.candidates(&other).count(), 0, "{number}, the first {bit} bits are right");
            }
        }
        // The order is another one in each process.
        let again = parse(&text).unwrap();
        let names = |list: &TokenList| -> Vec<_> {
            list.tokens.iter().map(|token| token.grant.name.clone()).collect()
        };
        assert_ne!(names(&list), names(&again));
    }

    #[test]
    fn a_line_has_scopes_and_may_have_limits() {
        let text =
            line("a", "1", "decide,read") + &line("b", "2", "admin shop-*,login") + &line("c", "3", "read *");
        let list = parse(&text).unwrap();
        let grants = ["1", "2", "3"].map(|token| Arc::clone(list.find(token.as_bytes()).unwrap()));
        let [a, b, c] = grants.each_ref().map(|grant| &**grant);
        assert!(a.includes(Scope::Decide) && a.includes(Scope::Read) && !a.includes(Scope::Admin));
        assert!(a.is_for_all() && a.is_for("anything"));
        assert!(b.includes(Scope::Refund) && !b.is_for_all());
        assert!(b.is_for("shop-cart") && b.is_for("login") && !b.is_for("other"));
        assert!(c.is_for("anything"));
    }

    #[test]
    fn errors_have_their_place_and_never_repeat_the_file() {
        let good = digest_text(TOKEN.as_bytes());
        for (text, expected) in [
            ("a", "1:2: the digest is missing: sha256: and 64 digits"),
            (
                "\n  a tw_secret-of-a-test decide",
                "2:5: a digest is sha256: and 64 hexadecimal digits, as \"tollway token\" prints it",
            ),
            (&format!("a {good}"), "1:74: the scopes are missing, such as decide,read"),
            (
                &format!("a {good} tw_secret-of-a-test"),
                "1:75: a scope is decide, refund, read or admin; write several as decide,read",
            ),
            (
                &format!("a {good} read a,,tw_secret-of-a-test"),
                "1:80: limits are patterns of names, separated by commas, such as shop-*,login, of at most 256 bytes",
            ),
            (
                &format!("a {good} read * tw_secret-of-a-test"),
                "1:82: a line has a name, a digest, scopes and limits, and nothing more",
            ),
            (
                &format!("tw_secret-of-a-test {good} read"),
                "1:1: a name must not begin with tw_, as tokens do; the file has names and digests, never tokens",
            ),
            (
                &format!("anyone {good} read"),
                "1:1: the audit log has this name for clients without a token; choose another",
            ),
            (&format!("ä {good} read"), "1:1: a name is 1 to 64 letters, digits, \".\", \"_\" and \"-\""),
            (&format!("a {good} read\nb {good} read"), "2:3: another line has the same token"),
            (
                &format!("a {good} read\na sha256:{} read", "0".repeat(64)),
                "2:1: another line has the same name",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("tokens.txt:{expected}"), "{text}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = parse(&"a\n".repeat(25)).unwrap_err().to_string();
        assert!(error.ends_with("\ntokens.txt: and 5 more"), "{error}");
    }

    #[test]
    fn a_file_has_bounds() {
        let too_long = vec![b'#'; FILE_MAX + 1];
        let error = TokenList::parse(&too_long, Path::new("t"), 0).unwrap_err();
        assert_eq!(error.to_string(), "the token file t has more than 1048576 bytes");
        let error = parse(&"\n".repeat(LINES_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the token file tokens.txt has more than 10000 lines");
        assert_eq!(parse(&"\n".repeat(LINES_MAX)).unwrap().len(), 0);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused() {
        let digest = digest_text(b"1");
        for bytes in [&b"\xff\xfe"[..], b"\0\0\0 \0", b"a\rb", &[digest.as_bytes(), b"\xff"].concat()] {
            assert!(TokenList::parse(bytes, Path::new("t"), 0).is_err(), "{bytes:?}");
        }
    }
}
