//! Charges by name, before a policy has checked them.

use std::borrow::Cow;

use crate::algorithm::TokenBucket;
use crate::charge::{Charge, ChargeError, ChargeKind};
use crate::inline_limit::{InlineLimit, InlineTokenBucket};
use crate::policy::Policy;

/// One wanted charge: a limit and an id by their names, and a cost. [`Policy::charge_request`] makes it a [`Charge`].
///
/// ```
/// use tollway_core::{ChargeKind, ChargeRequest};
///
/// let own = ChargeRequest::new("Login", "alice", 1);
/// let shared = ChargeRequest::new("All", b"*", 1).with_kind(ChargeKind::CheckOnly);
/// assert_eq!((&*own.limit, &*shared.id), ("Login", &b"*"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeRequest<'a> {
    /// The name of the limit.
    pub limit: Cow<'a, str>,
    /// The id as the caller spells it.
    pub id: Cow<'a, [u8]>,
    /// The units that it would take.
    pub cost: u64,
    /// The part it has in its bill.
    pub kind: ChargeKind,
    /// The token bucket of the [inline limit](InlineLimit), if the request brings one instead of naming a limit.
    pub inline: Option<Box<InlineTokenBucket>>,
}

impl<'a> ChargeRequest<'a> {
    /// Makes a request to take `cost` from the bucket of `id` under `limit`.
    pub fn new(
        limit: &'a (impl AsRef<str> + ?Sized),
        id: &'a (impl AsRef<[u8]> + ?Sized),
        cost: u64,
    ) -> Self {
        let (limit, id) = (Cow::Borrowed(limit.as_ref()), Cow::Borrowed(id.as_ref()));
        Self { limit, id, cost, kind: ChargeKind::Spend, inline: None }
    }

    /// Makes a request to take `cost` from the bucket of `id` under the inline limit, with these numbers.
    pub fn inline(numbers: TokenBucket, id: &'a (impl AsRef<[u8]> + ?Sized), cost: u64) -> Self {
        let inline = Some(Box::new(InlineTokenBucket::new(numbers)));
        Self { inline, ..Self::new(InlineLimit::NAME, id, cost) }
    }

    /// Returns the same request with another part in its bill.
    pub fn with_kind(mut self, kind: ChargeKind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns a request that borrows nothing.
    pub fn into_owned(self) -> ChargeRequest<'static> {
        let (limit, id) = (self.limit.into_owned().into(), self.id.into_owned().into());
        ChargeRequest { limit, id, cost: self.cost, kind: self.kind, inline: self.inline }
    }
}

impl Policy {
    /// Returns the charge that `request` asks for, or why it cannot be made.
    #[inline]
    pub fn charge_request<'a>(&'a self, request: &'a ChargeRequest<'_>) -> Result<Charge<'a>, ChargeError> {
        let charge = match &request.inline {
            None => self.charge(&request.limit, &request.id, request.cost),
            Some(inline) => self.inline_limit().charge(inline.algorithm(), &request.id, request.cost),
        };
        Ok(charge?.with_kind(request.kind))
    }

    /// Returns the charge that finds the bucket of `request`, to forget it. The inline limit needs no numbers for that.
    pub fn bucket_request<'a>(&'a self, request: &'a ChargeRequest<'_>) -> Result<Charge<'a>, ChargeError> {
        if request.inline.is_none() && request.limit == InlineLimit::NAME {
            return self.bucket(&request.limit, &request.id);
        }
        self.charge_request(request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::IntoAlgorithm;
    use crate::limit::Limit;

    #[test]
    fn a_request_may_bring_its_numbers() {
        let policy = Policy::new(vec![Limit::new("Login").unwrap()]).unwrap();
        let numbers = TokenBucket::new(3, 1, Duration::from_secs(1)).unwrap();
        let request =
            ChargeRequest::inline(numbers, "alice", 3).with_kind(ChargeKind::CheckOnly).into_owned();
        let charge = policy.charge_request(&request).unwrap();
        assert_eq!(
            (charge.limit().name(), charge.id(), charge.cost()),
            (InlineLimit::NAME, &b"alice"[..], 3)
        );
        assert_eq!(charge.kind(), ChargeKind::CheckOnly);
        let error = |request| policy.charge_request(&request).unwrap_err();
        let limit = InlineLimit::NAME.to_owned();
        assert_eq!(
            error(ChargeRequest::inline(numbers, "alice", 4)),
            ChargeError::CostTooHigh { limit, cost: 4, cost_max: 3 }
        );
        let no_id = ChargeRequest::inline(numbers, "", 1);
        assert_eq!(policy.charge_request(&no_id).unwrap().id(), b"", "the empty key is a key");
    }

    #[test]
    fn the_inline_limit_is_found_by_its_name_to_look_at_a_bucket_only() {
        let policy = Policy::new(vec![Limit::new("Login").unwrap()]).unwrap();
        let request = ChargeRequest::new(InlineLimit::NAME, "alice", 1);
        let error = policy.charge_request(&request).unwrap_err();
        assert_eq!(
            error.to_string(),
            "limit \"inline/throttle\" has no numbers of its own; send them with the request"
        );
        let found = policy.bucket_request(&request).unwrap();
        let numbers = TokenBucket::new(3, 1, Duration::from_secs(1)).unwrap();
        let spent = ChargeRequest::inline(numbers, "alice", 1);
        let spent = policy.charge_request(&spent).unwrap();
        assert!(found.same_bucket(&spent) && found.bucket_fingerprint() == spent.bucket_fingerprint());
        assert_eq!(found.cost(), 0);
        let numbers = TokenBucket::per_minute(5).into_algorithm().unwrap();
        let login = Policy::new(vec![Limit::new("Login").unwrap().with_default(numbers)]).unwrap();
        let bucket_cost = |cost| {
            let request = ChargeRequest::new("Login", "alice", cost);
            login.bucket_request(&request).ok().map(|charge| charge.cost())
        };
        assert_eq!([5, 6].map(bucket_cost), [Some(5), None], "another limit is charged as the request says");
        let unknown = ChargeRequest::new("inline/nope", "alice", 1);
        assert!(matches!(policy.bucket_request(&unknown), Err(ChargeError::UnknownLimit { .. })));
    }

    #[test]
    fn requests_become_charges_in_their_order() {
        let numbers = TokenBucket::per_minute(5).into_algorithm().unwrap();
        let limit = |name| Limit::new(name).unwrap().with_default(numbers);
        let policy = Policy::new(vec![limit("Login"), limit("All")]).unwrap();
        let mut requests = vec![
            ChargeRequest::new("Login", "alice", 1),
            ChargeRequest::new("All", b"*", 2).with_kind(ChargeKind::SpendOnly).into_owned(),
        ];
        let charges =
            requests.iter().map(|request| policy.charge_request(request).unwrap()).collect::<Vec<_>>();
        let found: Vec<_> = charges
            .iter()
            .map(|charge| (charge.limit().name(), charge.id(), charge.cost(), charge.kind()))
            .collect();
        assert_eq!(
            found,
            [("Login", &b"alice"[..], 1, ChargeKind::Spend), ("All", b"*", 2, ChargeKind::SpendOnly)]
        );
        requests.push(ChargeRequest::new("Nope", "alice", 1));
        let error = requests.iter().find_map(|request| policy.charge_request(request).err()).unwrap();
        let existing = vec!["Login".to_owned(), "All".to_owned()];
        assert_eq!(error, ChargeError::UnknownLimit { name: "Nope".into(), nearest: None, existing });
        let long = "é".repeat(1_000_000);
        assert!(
            policy.unknown_limit(&long).to_string().len() < 300,
            "an error repeats the start of a long name"
        );
    }
}
