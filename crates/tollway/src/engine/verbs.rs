//! The verbs by which limits are asked: spend, check, refund and reset. The first two may ask rules as well.
//!
//! The gates of a server, the limiters and the replays of traces perform them by this code, so that a trace tests what
//! a gate runs.

use std::ops::Deref;

use arrayvec::ArrayVec;
use tollway_core::{
    Bill, BillError, CHARGES_MAX, Charge, ChargeError, ChargeRequest, Decision, Policy, Refund, RuleRequest,
    Verb,
};

use super::Engine;
use crate::limiter::LimiterError;

/// The answer to a verb, with the charges that it was about.
#[derive(Debug)]
#[must_use]
pub enum VerbAnswer<'a> {
    /// The answer to a spend or a check. [`Decision::decider`] tells which charge or rule decided.
    Decision(Charges<'a>, Decision),
    /// The answer to a refund.
    Refund(Charges<'a>, Refund),
    /// The answer to a reset.
    Reset(Charges<'a>),
}

/// The charges of one request. One, as nearly always, needs no allocation.
#[derive(Debug)]
pub enum Charges<'a> {
    /// Holds exactly one charge.
    One(Charge<'a>),
    /// Holds any number of charges.
    Many(Vec<Charge<'a>>),
}

impl Engine {
    /// Performs a verb on the charges and the rules that are requested, under a policy that the caller holds. A refund
    /// and a reset have no rules.
    #[inline]
    pub async fn perform<'a>(
        &self,
        policy: &'a Policy,
        verb: Verb,
        requests: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<VerbAnswer<'a>, LimiterError> {
        match verb {
            _ if !rules.is_empty() => {
                let decided = self.decide(policy, verb, requests, rules).await;
                decided.map(|(charges, made)| VerbAnswer::Decision(charges, made))
            }
            Verb::Spend => {
                self.spend(policy, requests).await.map(|(charges, made)| VerbAnswer::Decision(charges, made))
            }
            Verb::Check => {
                self.check(policy, requests).await.map(|(charges, made)| VerbAnswer::Decision(charges, made))
            }
            Verb::Refund => {
                self.refund(policy, requests).await.map(|(charges, made)| VerbAnswer::Refund(charges, made))
            }
            Verb::Reset => self.reset(policy, requests).await.map(VerbAnswer::Reset),
        }
    }

    /// Takes all the charges, or none of them if one does not fit.
    #[inline]
    pub async fn spend<'a>(
        &self,
        policy: &'a Policy,
        requests: &'a [ChargeRequest<'_>],
    ) -> Result<(Charges<'a>, Decision), LimiterError> {
        let charges = Charges::new(requests, |request| policy.charge_request(request))?;
        let decision = match &charges {
            Charges::One(charge) => self.charge(charge).await,
            Charges::Many(charges) => self.settle_one(&Bill::new(charges)?).await,
        };
        Ok((charges, decision))
    }

    /// Makes the decision of [`spend`](Self::spend) and allocates nothing: the charges are a part of the future, which
    /// they make two kilobytes large. For callers that poll it where it was made, and want no charges back.
    #[inline]
    pub(crate) async fn spend_in_place(
        &self,
        policy: &Policy,
        requests: &[ChargeRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        let mut charges = ArrayVec::<_, CHARGES_MAX>::new();
        for request in requests {
            let charge = policy.charge_request(request)?;
            if !charges.is_full() {
                charges.push(charge);
            }
        }
        if requests.len() > CHARGES_MAX {
            return Err(BillError::TooLong { charges: requests.len() }.into());
        }
        Ok(self.settle_one(&Bill::new(&charges)?).await)
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub async fn check<'a>(
        &self,
        policy: &'a Policy,
        requests: &'a [ChargeRequest<'_>],
    ) -> Result<(Charges<'a>, Decision), LimiterError> {
        let charges = Charges::new(requests, |request| policy.charge_request(request))?;
        let decision = self.check_bills(&[Bill::new(&charges)?]).await[0];
        Ok((charges, decision))
    }

    /// Spends or checks charges and rules as one bill: all charges are taken and the request is entered in the logs of
    /// all rules, or nothing is changed anywhere.
    pub(crate) async fn decide<'a>(
        &self,
        policy: &'a Policy,
        verb: Verb,
        requests: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<(Charges<'a>, Decision), LimiterError> {
        if !verb.has_rules() {
            return Err(BillError::RulesOf { verb }.into());
        }
        let charges = Charges::new(requests, |request| policy.charge_request(request))?;
        let found = rules.iter().map(|rule| rule.find(policy)).collect::<Result<Vec<_>, _>>()?;
        let rules = rules.iter().zip(&found).map(|(rule, found)| rule.bill(found));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        let bill = Bill::with_rules(&charges, &rules)?;
        let decision = if verb == Verb::Spend {
            self.settle_one(&bill).await
        } else {
            self.check_bills(&[bill]).await[0]
        };
        Ok((charges, decision))
    }

    /// Gives back what a [`spend`](Self::spend) of the same charges took, and returns what all refunds come to.
    pub async fn refund<'a>(
        &self,
        policy: &'a Policy,
        requests: &'a [ChargeRequest<'_>],
    ) -> Result<(Charges<'a>, Refund), LimiterError> {
        let charges = Charges::new(requests, |request| policy.charge_request(request)?.refundable())?;
        // The same bucket twice would be given back twice.
        let refund = self.refund_charges(Bill::new(&charges)?.charges()).await?;
        Ok((charges, refund))
    }

    /// Forgets the buckets of the charges.
    pub async fn reset<'a>(
        &self,
        policy: &'a Policy,
        requests: &'a [ChargeRequest<'_>],
    ) -> Result<Charges<'a>, LimiterError> {
        let charges = Charges::new(requests, |request| policy.bucket_request(request))?;
        self.reset_charges(Bill::new(&charges)?.charges()).await?;
        Ok(charges)
    }
}

impl<'a> Charges<'a> {
    #[inline]
    fn new(
        requests: &'a [ChargeRequest<'_>],
        charge: impl Fn(&'a ChargeRequest<'_>) -> Result<Charge<'a>, ChargeError>,
    ) -> Result<Self, ChargeError> {
        match requests {
            [request] => charge(request).map(Self::One),
            requests => {
                let mut charges = Vec::with_capacity(requests.len());
                for request in requests {
                    charges.push(charge(request)?);
                }
                Ok(Self::Many(charges))
            }
        }
    }
}

impl<'a> Deref for Charges<'a> {
    type Target = [Charge<'a>];

    fn deref(&self) -> &[Charge<'a>] {
        match self {
            Self::One(charge) => std::slice::from_ref(charge),
            Self::Many(charges) => charges,
        }
    }
}
