//! The client behind a request: what it may do, and how the audit log names it.
//!
//! ```text
//! request ──> Authenticator: token ──> Caller ──> check_scope(scope)  at the gate, before the request is read
//!                                             ──> check_limit(limit)  in the service, which finds the limit
//! ```
//!
//! A gate without tokens lets everybody do everything that it serves. Then nothing is looked up.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use thiserror::Error;
use tollway_core::{ChargeError, RuleLookupError};
use tollway_wire::http::TraceParent;

use crate::tokens::{Grant, KnownToken, Scope, TokenFile};

/// The name of a client of a gate that requires no authentication.
pub(crate) const ANYONE: &str = "anyone";

/// The name of a client without a token, at a gate that asks for one. Its requests are refused.
const NOBODY: &str = "nobody";

/// Returns the name of a client that has shown this certificate: its SHA-256 fingerprint. The subject would be easier
/// to read, but two certificates may have the same.
pub(crate) fn certificate_name(certificate: &[u8]) -> Arc<str> {
    let mut name = "certificate sha256:".to_owned();
    for byte in digest(&SHA256, certificate).as_ref() {
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

/// The client that has sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    /// The name of the gate.
    pub(crate) gate: &'static str,
    /// The address that the request came from; `None` if it did not come over a network.
    pub(crate) from: Option<IpAddr>,
    rights: Rights<'a>,
    /// The span of the client that the request belongs to. It is only read if decisions have spans.
    pub(crate) trace: Option<TraceParent>,
}

#[derive(Clone, Copy, Debug)]
enum Rights<'a> {
    /// Everything is allowed, to the client of this name.
    All(&'a str),
    Token(&'a Grant),
    /// Nothing is allowed: the gate asks for a token, and the client has sent none.
    Nothing,
}

/// The reasons why a client may not do what it asks for. None of them repeats the token.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AccessDenied {
    #[error("a token is needed")]
    NoToken,
    #[error("the token is not known")]
    UnknownToken,
    #[error("the token lacks the scope \"{}\"", .0.name())]
    MissingScope(Scope),
    /// The token is for other limits and rules than the one with this name.
    #[error("the token is for other limits and rules than \"{0}\"")]
    OtherLimits(String),
    /// The request is about all limits, and the token is for some.
    #[error("the token is for some limits, and this request is about all")]
    AllLimits,
}

impl<'a> Caller<'a> {
    /// Returns a client that may do everything.
    pub(crate) const fn anyone(gate: &'static str) -> Self {
        Self { gate, from: None, rights: Rights::All(ANYONE), trace: None }
    }

    /// Returns a client that may do nothing, because it is not known.
    pub(crate) const fn nobody(gate: &'static str) -> Self {
        Self { gate, from: None, rights: Rights::Nothing, trace: None }
    }

    /// Returns the client with the span that its request belongs to.
    pub(crate) fn with_trace(self, trace: Option<TraceParent>) -> Self {
        Self { trace, ..self }
    }

    /// Returns the client with the name that its certificate gives it, unless it has a token.
    pub(crate) fn with_certificate(self, name: Option<&'a str>) -> Self {
        match (self.rights, name) {
            (Rights::All(_), Some(name)) => Self { rights: Rights::All(name), ..self },
            _ => self,
        }
    }

    /// Returns the name of the client in the audit log.
    pub(crate) fn who(&self) -> &'a str {
        match self.rights {
            Rights::All(who) => who,
            Rights::Token(grant) => &grant.name,
            Rights::Nothing => NOBODY,
        }
    }

    /// Checks that the client has a scope.
    #[inline]
    pub(crate) fn check_scope(&self, scope: Scope) -> Result<(), AccessDenied> {
        match self.rights {
            Rights::All(_) => Ok(()),
            Rights::Token(grant) if grant.includes(scope) => Ok(()),
            Rights::Token(_) => Err(AccessDenied::MissingScope(scope)),
            Rights::Nothing => Err(AccessDenied::NoToken),
        }
    }

    /// Checks that the client may use the limit or the rule of this name.
    #[inline]
    pub(crate) fn check_limit(&self, name: &str) -> Result<(), AccessDenied> {
        match self.rights {
            Rights::All(_) => Ok(()),
            Rights::Token(grant) if grant.is_for(name) => Ok(()),
            Rights::Token(_) => Err(AccessDenied::OtherLimits(name.to_owned())),
            Rights::Nothing => Err(AccessDenied::NoToken),
        }
    }

    /// Checks that the client may see every limit and rule.
    pub(crate) fn check_all_limits(&self) -> Result<(), AccessDenied> {
        match self.rights {
            Rights::Token(grant) if !grant.is_for_all() => Err(AccessDenied::AllLimits),
            Rights::All(_) | Rights::Token(_) => Ok(()),
            Rights::Nothing => Err(AccessDenied::NoToken),
        }
    }

    /// Returns an error without the names of limits that the client may not use.
    pub(crate) fn hide_other_limits(&self, error: ChargeError) -> ChargeError {
        match error {
            ChargeError::UnknownLimit { name, nearest, existing } if !self.may_use_all() => {
                let may_use = |name: &String| self.check_limit(name).is_ok();
                let existing = existing.into_iter().filter(may_use).collect();
                ChargeError::UnknownLimit { name, nearest: nearest.filter(may_use), existing }
            }
            error => error,
        }
    }

    /// Returns an error without the name of a rule that the client may not use.
    pub(crate) fn hide_other_rules(&self, error: RuleLookupError) -> RuleLookupError {
        match error {
            RuleLookupError::UnknownRule { name, nearest, existing } if !self.may_use_all() => {
                let may_use = |name: &String| self.check_limit(name).is_ok();
                let existing = existing.into_iter().filter(may_use).collect();
                RuleLookupError::UnknownRule { name, nearest: nearest.filter(may_use), existing }
            }
            error => error,
        }
    }

    /// Returns whether every limit may be used, so that names need not be looked at.
    #[inline]
    pub(crate) fn may_use_all(&self) -> bool {
        match self.rights {
            Rights::All(_) => true,
            Rights::Token(grant) => grant.is_for_all(),
            Rights::Nothing => false,
        }
    }
}

/// Finds out who the clients of one gate are.
#[derive(Clone, Debug)]
pub(crate) struct Authenticator {
    gate: &'static str,
    tokens: Option<Arc<TokenFile>>,
}

impl Authenticator {
    /// Creates one for a gate that takes these tokens, or asks for none.
    pub(crate) const fn new(gate: &'static str, tokens: Option<Arc<TokenFile>>) -> Self {
        Self { gate, tokens }
    }

    /// Creates one for a gate that requires no authentication.
    pub(crate) const fn open(gate: &'static str) -> Self {
        Self::new(gate, None)
    }

    /// Returns the tokens that the gate takes; `None` if it asks for none.
    #[inline]
    pub(crate) const fn tokens(&self) -> Option<&Arc<TokenFile>> {
        self.tokens.as_ref()
    }

    /// Returns whether a client may know where the nodes of the store are: with the scope `read`, or, at a gate that
    /// asks for no token, on the same machine.
    pub(crate) fn shows_addresses_to(&self, caller: &Caller<'_>) -> bool {
        let is_known = self.tokens.is_some() || caller.from.is_some_and(|from| from.is_loopback());
        is_known && caller.check_scope(Scope::Read).is_ok()
    }

    /// Returns who sent a request with this token. `known` is the token that the connection sent last.
    #[inline]
    pub(crate) fn caller<'k>(
        &self,
        token: Option<&[u8]>,
        from: IpAddr,
        known: &'k mut Option<Arc<KnownToken>>,
    ) -> Result<Caller<'k>, AccessDenied> {
        let Some(tokens) = &self.tokens else { return Ok(self.known_caller(Some(from), None)) };
        let token = token.ok_or(AccessDenied::NoToken)?;
        let grant = tokens.grant(token, known).ok_or(AccessDenied::UnknownToken)?;
        Ok(self.known_caller(Some(from), Some(grant)))
    }

    /// Returns the client whose token allows this, or any client of a gate that asks for no token. Without a token, a
    /// client of a gate that asks for one may do nothing, whatever was checked before.
    #[inline]
    pub(crate) fn known_caller<'k>(&self, from: Option<IpAddr>, grant: Option<&'k Arc<Grant>>) -> Caller<'k> {
        let rights = match (grant, &self.tokens) {
            (Some(grant), _) => Rights::Token(grant),
            (None, None) => Rights::All(ANYONE),
            (None, Some(_)) => Rights::Nothing,
        };
        Caller { gate: self.gate, from, rights, trace: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_token_may_do_nothing_at_a_gate_that_asks_for_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (tokens, _) = TokenFile::open(file.path()).unwrap();
        let (with, without) = (Authenticator::new("resp", Some(tokens)), Authenticator::open("resp"));
        let (nobody, anyone) = (with.known_caller(None, None), without.known_caller(None, None));
        for (caller, expected) in [(nobody, Err(AccessDenied::NoToken)), (anyone, Ok(()))] {
            assert_eq!(caller.check_scope(Scope::Decide), expected);
            assert_eq!(caller.check_limit("login"), expected);
            assert_eq!(caller.check_all_limits(), expected);
            assert_eq!(caller.may_use_all(), expected.is_ok());
        }
    }
}
