//! A token file with one token of each scope.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tollway::config::GateAccess;
use tollway_server::{LimitGlobs, NewToken, Scope, Scopes};

/// A token file, and the tokens that are in it, by their names. The name of a token is that of its scope.
pub(crate) struct Tokens {
    directory: TempDir,
    secrets: BTreeMap<String, String>,
}

impl Tokens {
    /// Makes a file with a token of each scope.
    pub(crate) fn new() -> Self {
        let mut tokens = Self { directory: tempfile::tempdir().unwrap(), secrets: BTreeMap::new() };
        Scope::ALL.into_iter().for_each(|scope| tokens.add(scope.name(), scope, None));
        tokens
    }

    /// Adds a token that is for some limits, or for all.
    pub(crate) fn add(&mut self, name: &str, scope: Scope, limits: Option<&str>) {
        let limits: Option<LimitGlobs> = limits.map(|limits| limits.parse().unwrap());
        let token = NewToken::generate(name, Scopes::from_iter([scope]), limits.as_ref()).unwrap();
        token.append_to(&self.path()).unwrap();
        self.secrets.insert(name.to_owned(), token.secret().to_owned());
    }

    /// Removes a token from the file. Clients may still send it.
    pub(crate) fn remove(&self, name: &str) {
        let text = fs::read_to_string(self.path()).unwrap();
        let kept = text.lines().filter(|line| line.split(' ').next() != Some(name));
        fs::write(self.path(), kept.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }

    /// Returns the token of this name.
    pub(crate) fn of(&self, name: &str) -> &str {
        &self.secrets[name]
    }

    /// Returns all tokens.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.values().map(|secret| &**secret)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("tokens.txt")
    }

    /// Returns the settings of a gate that takes these tokens.
    pub(crate) fn access(&self) -> GateAccess {
        GateAccess { tokens: Some(self.path()), ..GateAccess::OPEN }
    }
}
