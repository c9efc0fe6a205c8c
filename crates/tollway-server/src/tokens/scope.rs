//! The scopes of tokens: what each lets a client do.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A kind of request that a token can allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// To spend and to check.
    Decide,
    /// To give back.
    Refund,
    /// To see buckets, ids and metrics.
    Read,
    /// To forget what a bucket has used, and everything that the other scopes allow.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Decide, Self::Refund, Self::Read, Self::Admin];

    /// Returns the word for it in a token file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Refund => "refund",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A word that is no scope. The word is not repeated: it could be a token in the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a scope is decide, refund, read or admin; write several as decide,read")]
#[non_exhaustive]
pub struct UnknownScope;

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or(UnknownScope)
    }
}

/// The scopes that a token has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Returns whether these allow what a scope stands for. `admin` allows everything.
    pub const fn include(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl FromStr for Scopes {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        text.split(',').map(str::parse::<Scope>).collect()
    }
}

/// Writes the words, as a token file has them.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Scope::ALL.into_iter().filter(|scope| self.0 & scope.bit() != 0).map(Scope::name);
        f.write_str(&words.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_includes_every_scope_and_others_only_themselves() {
        for own in Scope::ALL {
            let scopes: Scopes = own.name().parse().unwrap();
            for other in Scope::ALL {
                assert_eq!(scopes.include(other), own == other || own == Scope::Admin, "{own:?} {other:?}");
            }
        }
        let both: Scopes = "read,decide".parse().unwrap();
        assert_eq!(both.to_string(), "decide,read");
        assert!(both.include(Scope::Read) && both.include(Scope::Decide) && !both.include(Scope::Refund));
        for wrong in ["", "all", "read,", "Read", "read decide"] {
            assert_eq!(wrong.parse::<Scopes>(), Err(UnknownScope), "{wrong}");
        }
    }
}
