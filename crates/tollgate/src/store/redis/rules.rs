//! Rules, resolved and logged by Redis.

use tollgate_core::{RuleBill, Ruling, Timestamp};

use super::{Redis, StoreError};
use crate::limiter::Examination;

impl Redis {
    /// Is the rule's limit reached? If not, the request is entered in every log that has a name.
    pub async fn resolve(&self, bill: &RuleBill<'_>, now: Option<Timestamp>) -> Result<Ruling, StoreError> {
        let _ = (bill, now, self);
        Err(StoreError::Nonsense { found: "to come".to_owned() })
    }

    /// Until when each rate of the rule is reached, remembering nothing.
    pub async fn examine(
        &self,
        bill: &RuleBill<'_>,
        now: Option<Timestamp>,
    ) -> Result<Examination, StoreError> {
        let _ = (bill, now, self);
        Err(StoreError::Nonsense { found: "to come".to_owned() })
    }
}
