//! The verbs that a request can have: spend, check, refund and reset.

/// The verb of a request: it says what to do with the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Take the charges, all or none.
    Spend,
    /// Return the answer that spending would get, and take nothing.
    Check,
    /// Give them back.
    Refund,
    /// Forget their buckets.
    Reset,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 4] = [Self::Spend, Self::Check, Self::Refund, Self::Reset];

    /// Returns the word for it that paths, commands, traces and metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Check => "check",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }

    /// Returns the cost of a charge that does not give one.
    pub const fn default_cost(self) -> u64 {
        match self {
            Self::Spend | Self::Check | Self::Refund => 1,
            Self::Reset => 0,
        }
    }

    /// Returns true if its charges can have a cost.
    pub const fn has_cost(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Returns true if its bill can have rules. What a rule has logged is neither given back nor forgotten.
    pub const fn has_rules(self) -> bool {
        matches!(self, Self::Spend | Self::Check)
    }

    /// Returns true if its charges can have a [`ChargeKind`](crate::ChargeKind).
    pub const fn has_kind(self) -> bool {
        !matches!(self, Self::Reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_has_the_parts_that_mean_something_to_it() {
        for (verb, name, default_cost, has_cost_and_kind, has_rules) in [
            (Verb::Spend, "spend", 1, true, true),
            (Verb::Check, "check", 1, true, true),
            (Verb::Refund, "refund", 1, true, false),
            (Verb::Reset, "reset", 0, false, false),
        ] {
            assert_eq!((verb.name(), verb.default_cost(), verb.has_rules()), (name, default_cost, has_rules));
            assert_eq!((verb.has_cost(), verb.has_kind()), (has_cost_and_kind, has_cost_and_kind), "{name}");
        }
    }
}
