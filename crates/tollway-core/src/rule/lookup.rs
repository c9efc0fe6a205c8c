//! Rule requests: a rule by its name or by its expression, under a key, with values for its selectors.

use std::borrow::Cow;

use thiserror::Error;

use super::{KeyedRule, NamedRule, RuleBill, RuleError, RuleLimit, RuleProblem};
use crate::limit::is_name;
use crate::nearest::{did_you_mean, nearest};
use crate::policy::{LISTED_MAX, Policy, shown_name};

/// A reference that names a rule or has its expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleRef {
    /// The configured rule that has this name.
    Named(String),
    /// A rule that is written out.
    Written(String),
}

/// Text that can be a name is read as one. No expression can: it has a slash, a space or a parenthesis.
impl From<&str> for RuleRef {
    fn from(text: &str) -> Self {
        if is_name(text) { Self::Named(text.to_owned()) } else { Self::Written(text.to_owned()) }
    }
}

impl RuleRef {
    /// Returns the name or the expression.
    pub fn text(&self) -> &str {
        let (Self::Named(text) | Self::Written(text)) = self;
        text
    }
}

/// An error for a rule request that cannot be decided. None of these is a denial.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleLookupError {
    /// No rule has this name.
    #[error("rule \"{name}\" does not exist{}", did_you_mean(.nearest.as_deref()))]
    UnknownRule {
        /// The name that was requested, or the start of a long one.
        name: String,
        /// The name of the rule that was probably meant.
        nearest: Option<String>,
        /// The names of all rules, if none of them is similar and they are few. The text of the error, which traces
        /// compare, leaves them out.
        existing: Vec<String>,
    },
    /// The expression is not a rule.
    #[error("the rule is invalid at character {character}")]
    Malformed {
        /// The character of the expression at which it is wrong, counted from 1.
        character: usize,
        /// The problem that the expression has there.
        source: RuleProblem,
    },
    /// The rule has a selector that the request has not.
    #[error(
        "rule \"{rule}\" needs a value for selector \"{selector}\"; send an empty value if the request has none"
    )]
    MissingSelector {
        /// The name or the expression of the rule, or the start of a long one.
        rule: String,
        /// The name of the selector.
        selector: String,
    },
}

impl From<RuleError> for RuleLookupError {
    fn from(error: RuleError) -> Self {
        Self::Malformed { character: error.character(), source: error.problem }
    }
}

impl Policy {
    /// Returns the rule that `rule` refers to, counted under `key`. Without a key it is counted under its name, if it
    /// has one.
    pub fn find_rule(
        &self,
        rule: &RuleRef,
        key: Option<&str>,
    ) -> Result<Cow<'_, KeyedRule>, RuleLookupError> {
        let name = match rule {
            RuleRef::Named(name) => name,
            RuleRef::Written(text) => {
                let limit = RuleLimit::new(text.parse()?);
                return Ok(Cow::Owned(KeyedRule::new(limit, "", key.unwrap_or_default())));
            }
        };
        let found = self.rule(name).ok_or_else(|| self.unknown_rule(name))?;
        Ok(match key {
            Some(key) => Cow::Owned(KeyedRule::new(found.limit().clone(), "", key)),
            None => Cow::Borrowed(found),
        })
    }

    #[cold]
    fn unknown_rule(&self, name: &str) -> RuleLookupError {
        let nearest = nearest(name, self.rules().iter().map(NamedRule::name)).map(str::to_owned);
        let is_listed = nearest.is_none() && self.rules().len() <= LISTED_MAX;
        let existing = self.rules().iter().filter(|_| is_listed).map(|rule| rule.name().to_owned());
        RuleLookupError::UnknownRule { name: shown_name(name), nearest, existing: existing.collect() }
    }
}

impl KeyedRule {
    /// Makes the bill of a request with these selectors; `None` and an empty one have no value. Selectors that the rule
    /// does not have are ignored, so that a caller can send all of them whatever the rule is. `rule` is the name or the
    /// expression that an error has.
    pub fn bill_of<'v>(
        &self,
        rule: &str,
        value: impl Fn(&str) -> Option<Option<&'v [u8]>>,
    ) -> Result<RuleBill<'_>, RuleLookupError> {
        self.bill(|selector| {
            value(selector).ok_or_else(|| RuleLookupError::MissingSelector {
                rule: shown_name(rule),
                selector: selector.to_owned(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_chain::ErrorChain;

    #[test]
    fn a_rule_is_asked_for_by_name_or_in_writing() {
        let upload =
            NamedRule::new("upload", RuleLimit::new("Or('10/s', 'user:5/m')".parse().unwrap())).unwrap();
        let policy = Policy::default().with_rules(vec![upload]).unwrap();
        let named = || RuleRef::Named("upload".into());
        let written = || RuleRef::Written("user:5/m".into());
        for (rule, key, names) in [
            (named(), None, &[":upload", ":upload:user:vova"][..]),
            (named(), Some("cats"), &[":cats", ":cats:user:vova"]),
            (named(), Some(""), &[":", "::user:vova"]),
            (written(), Some("cats"), &[":cats:user:vova"]),
            (written(), None, &["::user:vova"]),
        ] {
            let rule = policy.find_rule(&rule, key).unwrap();
            let bill = rule.bill_of("upload", |_| Some(Some(b"vova"))).unwrap();
            assert_eq!(bill.identifiers().iter().flatten().collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn a_name_is_told_from_an_expression() {
        for name in ["upload", "And", "a.b-c_9"] {
            assert_eq!(RuleRef::from(name), RuleRef::Named(name.into()));
            assert_eq!(RuleRef::from(name).text(), name);
        }
        for text in ["10/s", "user:10/s", "And()", "'1/s'", "", "7", "no rule"] {
            assert_eq!(RuleRef::from(text), RuleRef::Written(text.into()));
            assert_eq!(RuleRef::from(text).text(), text);
        }
    }

    #[test]
    fn what_cannot_be_resolved_says_why() {
        let policy = Policy::default();
        let error = |rule: RuleRef| ErrorChain(&policy.find_rule(&rule, None).unwrap_err()).to_string();
        assert_eq!(error(RuleRef::Named("upload".into())), "rule \"upload\" does not exist");
        let start = "n".repeat(128);
        assert_eq!(error(RuleRef::Named("n".repeat(1 << 20))), format!("rule \"{start}\" does not exist"));
        assert_eq!(
            error(RuleRef::Written("Or('10/s', 'ü:5/s')".into())),
            "the rule is invalid at character 13: the name of a selector must be letters, digits and \"_\", and must not start with a digit"
        );
        let rule = policy.find_rule(&RuleRef::Written("Or('u:1/s', 'v:1/s')".into()), None).unwrap();
        let bill = rule.bill_of("both", |selector| (selector == "u").then_some(None));
        let expected =
            "rule \"both\" needs a value for selector \"v\"; send an empty value if the request has none";
        assert_eq!(bill.unwrap_err().to_string(), expected);
    }

    #[test]
    fn an_unknown_rule_comes_with_the_rules_that_there_are() {
        let rule = |name: &str| NamedRule::new(name, RuleLimit::new("10/s".parse().unwrap())).unwrap();
        let existing = |rules: Vec<NamedRule>, name: &str| {
            let policy = Policy::default().with_rules(rules).unwrap();
            let error = policy.find_rule(&RuleRef::Named(name.into()), None).unwrap_err();
            let RuleLookupError::UnknownRule { existing, .. } = error else { panic!("{error}") };
            existing
        };
        assert_eq!(existing(vec![rule("upload"), rule("pages")], "nope"), ["upload", "pages"]);
        assert_eq!(existing(vec![rule("upload")], "uplaod"), [""; 0], "it has the one that was meant");
        assert_eq!(existing((0..99).map(|n| rule(&format!("r{n}"))).collect(), "nope"), [""; 0]);
    }
}
