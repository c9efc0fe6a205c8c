//! What can be done with the charges of a request, by whatever door it came.

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Take the charges, all or none.
    Spend,
    /// Say what spending would be answered, and take nothing.
    Check,
    /// Give them back.
    Refund,
    /// Forget their buckets.
    Reset,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 4] = [Self::Spend, Self::Check, Self::Refund, Self::Reset];

    /// The word for it, in paths, commands, traces and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Check => "check",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }

    /// What a charge costs that does not say so.
    pub const fn default_cost(self) -> u64 {
        match self {
            Self::Spend | Self::Refund => 1,
            Self::Check | Self::Reset => 0,
        }
    }

    /// Can its charges say what they cost?
    pub const fn has_cost(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Can its charges have a [`ChargeKind`](crate::ChargeKind)?
    pub const fn has_kind(self) -> bool {
        matches!(self, Self::Spend | Self::Check)
    }
}
