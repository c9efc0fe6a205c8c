//! Named rules, as a configuration has them.

use thiserror::Error;

use super::{KeyedRule, RuleLimit};
use crate::limit::is_name;

/// A rule and its name, which is the key that it is counted under unless a request brings another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    name: Box<str>,
    keyed: KeyedRule,
}

/// An error for a name that a rule cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "\"{name}\" cannot be the name of a rule; use letters, digits, \"_\", \"-\" and \".\", but not only digits"
)]
#[non_exhaustive]
pub struct RuleNameError {
    /// The name that was given.
    pub name: String,
}

impl RuleNameError {
    /// Creates the error for this name.
    pub const fn new(name: String) -> Self {
        Self { name }
    }
}

impl NamedRule {
    /// Makes a rule that has this name. Rules can have the names that limits can have.
    pub fn new(name: &str, limit: RuleLimit) -> Result<Self, RuleNameError> {
        if !is_name(name) {
            return Err(RuleNameError { name: name.to_owned() });
        }
        Ok(Self { keyed: KeyedRule::new(limit, "", name), name: name.into() })
    }

    /// Returns the name that requests use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rule, which is counted under its name.
    pub const fn keyed(&self) -> &KeyedRule {
        &self.keyed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_key() {
        let limit = RuleLimit::new("10/s".parse().unwrap());
        let upload = NamedRule::new("upload", limit.clone()).unwrap();
        assert_eq!((upload.name(), upload.keyed()), ("upload", &KeyedRule::new(limit.clone(), "", "upload")));
        for name in ["", "7", "a b", "a:b", "\"10/s\"", "user=x"] {
            assert_eq!(NamedRule::new(name, limit.clone()), Err(RuleNameError { name: name.to_owned() }));
        }
    }
}
