//! Bugs that are planted on purpose, to show that the simulator finds such bugs.
//!
//! None of them is in the product: each changes how the simulated world around it behaves, or what reaches it.

/// A bug that the world around the product has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A full memory store forgets another id's bucket to make room.
    EvictsWhenFull,
    /// A refund is given twice.
    RefundsTwice,
    /// A sweep drops buckets that expired under former numbers of their limit, and that its new numbers still count.
    DropsFormer,
    /// A bill that was denied pays its first charge.
    DenialsCost,
    /// Redis expires keys a second too early.
    ExpiresEarly,
    /// The script of a spend does not cut a moment that is too far ahead.
    NeverClamps,
    /// A pipeline is delivered twice to Redis.
    RepeatsCalls,
    /// A failover loses a minute of writes, and says that it lost those of the last moment.
    LosesMore,
    /// A master tells no gatekeeper to delay anybody.
    ForgetsDelays,
    /// A disk says that it has synced a journal, and has not.
    SkipsSyncs,
    /// A journal forgets what changed in one of twenty rounds.
    LosesRounds,
    /// A journal that is read after a crash lacks the last block that was written.
    DropsLastBlock,
    /// Limits that are strict about crashes are not.
    ForgetsStrict,
}

impl Plant {
    /// Every planted bug.
    pub const ALL: [Self; 13] = [
        Self::EvictsWhenFull,
        Self::RefundsTwice,
        Self::DropsFormer,
        Self::DenialsCost,
        Self::ExpiresEarly,
        Self::NeverClamps,
        Self::RepeatsCalls,
        Self::LosesMore,
        Self::ForgetsDelays,
        Self::SkipsSyncs,
        Self::LosesRounds,
        Self::DropsLastBlock,
        Self::ForgetsStrict,
    ];

    /// Returns the name of the bug on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EvictsWhenFull => "evicts-when-full",
            Self::RefundsTwice => "refunds-twice",
            Self::DropsFormer => "drops-former",
            Self::DenialsCost => "denials-cost",
            Self::ExpiresEarly => "expires-early",
            Self::NeverClamps => "never-clamps",
            Self::RepeatsCalls => "repeats-calls",
            Self::LosesMore => "loses-more",
            Self::ForgetsDelays => "forgets-delays",
            Self::SkipsSyncs => "skips-syncs",
            Self::LosesRounds => "loses-rounds",
            Self::DropsLastBlock => "drops-last-block",
            Self::ForgetsStrict => "forgets-strict",
        }
    }
}
