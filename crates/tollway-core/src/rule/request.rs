//! A rule that is asked for by name, before a policy has found it.

use std::borrow::Cow;

use super::{KeyedRule, RuleBill, RuleLookupError, RuleRef};
use crate::policy::Policy;

/// A rule by its name or its expression, the key that it is counted under, and values for its selectors.
///
/// ```
/// use tollway_core::RuleRequest;
///
/// let upload = RuleRequest::new("upload").with_selector("user", "vova").with_selector("apikey", b"k1");
/// assert_eq!(upload.selectors.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRequest<'a> {
    /// The rule, by its name or as an expression.
    pub rule: RuleRef,
    /// The key that the request is counted under, if it is not the rule's own.
    pub key: Option<Cow<'a, str>>,
    /// The names and values of selectors. An empty value is no value.
    pub selectors: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
}

impl<'a> RuleRequest<'a> {
    /// Makes a request for the rule of this name, or for this expression, without values.
    pub fn new(rule: &str) -> Self {
        Self { rule: RuleRef::from(rule), key: None, selectors: Vec::new() }
    }

    /// Sets the key that the request is counted under (default: the key of the rule).
    pub fn with_key(mut self, key: &'a str) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds the value of a selector. An empty one is no value.
    pub fn with_selector(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.selectors.push((name.into(), value.as_ref().into()));
        self
    }

    /// Finds the rule in the policy, or parses its expression.
    pub fn find<'p>(&self, policy: &'p Policy) -> Result<Cow<'p, KeyedRule>, RuleLookupError> {
        policy.find_rule(&self.rule, self.key.as_deref())
    }

    /// Makes the bill of this request for the rule that was found.
    pub fn bill<'r>(&self, rule: &'r KeyedRule) -> Result<RuleBill<'r>, RuleLookupError> {
        rule.bill_of(self.rule.text(), |selector| {
            let given = self.selectors.iter().find(|(name, _)| name == selector);
            given.map(|(_, value)| Some(&value[..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_selector_has_the_value_that_the_request_has_for_it() {
        let policy = Policy::default();
        let names = |request: RuleRequest<'_>| {
            let rule = request.find(&policy).unwrap();
            let bill = request.bill(&rule)?;
            Ok(bill.identifiers().iter().map(|name| name.as_deref().map(str::to_owned)).collect::<Vec<_>>())
        };
        let request = RuleRequest::new("Or('user:1/s', 'apikey:1/s')").with_key("cats");
        let request = request.with_selector("other", "z").with_selector("apikey", "k1");
        let missing = names(request.clone()).map_err(|error: RuleLookupError| error.to_string());
        assert!(missing.is_err_and(|error| error.contains("needs a value for selector \"user\"")));
        let own = |name: &str| Some(name.to_owned());
        let expected = [own(":cats:user:vova"), own(":cats:apikey:k1")];
        assert_eq!(names(request.clone().with_selector("user", "vova")).unwrap(), expected);
        assert_eq!(names(request.with_selector("user", "")).unwrap(), [None, own(":cats:apikey:k1")]);
    }
}
