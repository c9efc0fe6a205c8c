//! Charges by name, before a policy has checked them.

use std::borrow::Cow;

use crate::algorithm::TokenBucket;
use crate::charge::{Charge, ChargeError, ChargeKind};
use crate::id::IdError;
use crate::inline_limit::InlineTokenBucket;
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
    /// The numbers of an inline limit, which are used instead of a limit by name.
    pub numbers: Option<Box<InlineTokenBucket>>,
}

impl<'a> ChargeRequest<'a> {
    /// The name that decisions have for the inline limit of requests.
    pub const INLINE: &'static str = "inline/throttle";

    /// Makes a request to take `cost` from the bucket of `id` under `limit`.
    pub fn new(
        limit: &'a (impl AsRef<str> + ?Sized),
        id: &'a (impl AsRef<[u8]> + ?Sized),
        cost: u64,
    ) -> Self {
        let (limit, id) = (Cow::Borrowed(limit.as_ref()), Cow::Borrowed(id.as_ref()));
        Self { limit, id, cost, kind: ChargeKind::Spend, numbers: None }
    }

    /// Makes a request to take `cost` from the bucket of `id` under an inline limit with these numbers.
    pub fn inline(numbers: TokenBucket, id: &'a (impl AsRef<[u8]> + ?Sized), cost: u64) -> Self {
        let numbers = Some(Box::new(InlineTokenBucket::new(numbers)));
        Self { numbers, ..Self::new(Self::INLINE, id, cost) }
    }

    /// Returns the same request with another part in its bill.
    pub fn with_kind(mut self, kind: ChargeKind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns a request that borrows nothing.
    pub fn into_owned(self) -> ChargeRequest<'static> {
        let (limit, id) = (self.limit.into_owned().into(), self.id.into_owned().into());
        ChargeRequest { limit, id, cost: self.cost, kind: self.kind, numbers: self.numbers }
    }
}

impl Policy {
    /// Returns the charge that `request` asks for, or why it cannot be made.
    #[inline]
    pub fn charge_request<'a>(&'a self, request: &'a ChargeRequest<'_>) -> Result<Charge<'a>, ChargeError> {
        let charge = match &request.numbers {
            None => self.charge(&request.limit, &request.id, request.cost),
            Some(_) if request.id.is_empty() => {
                Err(ChargeError::Id { limit: request.limit.clone().into_owned(), source: IdError::Empty })
            }
            Some(numbers) => self.inline_limit().charge(numbers.numbers(), &request.id, request.cost),
        };
        Ok(charge?.with_kind(request.kind))
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
            (ChargeRequest::INLINE, &b"alice"[..], 3)
        );
        assert_eq!(charge.kind(), ChargeKind::CheckOnly);
        let error = |request| policy.charge_request(&request).unwrap_err();
        let limit = || ChargeRequest::INLINE.to_owned();
        assert_eq!(
            error(ChargeRequest::inline(numbers, "alice", 4)),
            ChargeError::CostTooHigh { limit: limit(), cost: 4, cost_max: 3 }
        );
        let empty = ChargeError::Id { limit: limit(), source: IdError::Empty };
        assert_eq!(error(ChargeRequest::inline(numbers, "", 1)), empty);
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
    }
}
