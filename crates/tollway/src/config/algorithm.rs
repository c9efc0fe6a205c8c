//! An algorithm and the numbers it takes.

use tollway_core::algorithm::{
    FORGET_AFTER_PERIODS, NumbersError, Quota, SlidingLog, SmoothedRate, TokenBucket,
};
use tollway_core::{Algorithm, Nanos};

use super::errors::Errors;
use super::fields::{Fields, choice, duration, flag, listed, whole_number};
use super::yaml::{YamlEntry, YamlKey};

/// Whole numbers above this are not all doubles, and a smoothed rate is a double.
pub(super) const RATE_MAX: u64 = 1 << 53;

/// Which of the four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AlgorithmKind {
    #[default]
    TokenBucket,
    SlidingLog,
    SmoothedRate,
    Quota,
}

impl AlgorithmKind {
    const ALL: [(&'static str, Self); 4] = [
        ("token_bucket", Self::TokenBucket),
        ("sliding_log", Self::SlidingLog),
        ("smoothed_rate", Self::SmoothedRate),
        ("quota", Self::Quota),
    ];

    pub(super) fn read(entry: &YamlEntry, errors: &mut Errors) -> Option<Self> {
        choice(entry, &Self::ALL, errors)
    }

    const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The numbers it cannot do without.
    const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::TokenBucket => &["burst", "count", "period"],
            Self::SlidingLog | Self::SmoothedRate | Self::Quota => &["count", "period"],
        }
    }

    /// Everything that may be said about it.
    const fn takes(self) -> &'static [&'static str] {
        match self {
            Self::SmoothedRate => &["count", "period", "strict"],
            _ => self.needs(),
        }
    }
}

/// The fields of a limit or an override that are its algorithm's.
#[derive(Clone, Copy)]
pub(super) struct AlgorithmFields<'a> {
    burst: Option<&'a YamlEntry>,
    count: Option<&'a YamlEntry>,
    period: Option<&'a YamlEntry>,
    pub(super) strict: Option<&'a YamlEntry>,
}

impl<'a> AlgorithmFields<'a> {
    pub(super) fn of(fields: &Fields<'a>) -> Self {
        let [burst, count, period, strict] =
            ["burst", "count", "period", "strict"].map(|name| fields.get(name));
        Self { burst, count, period, strict }
    }

    /// Does it say how much? `strict` alone does not.
    pub(super) fn given(&self) -> bool {
        self.burst.is_some() || self.count.is_some() || self.period.is_some()
    }

    fn all(&self) -> [(&'static str, Option<&'a YamlEntry>); 4] {
        [("burst", self.burst), ("count", self.count), ("period", self.period), ("strict", self.strict)]
    }

    /// Reports what `kind` does not take.
    pub(super) fn refuse_others(&self, kind: AlgorithmKind, errors: &mut Errors) {
        for (name, entry) in self.all() {
            if let Some(entry) = entry
                && !kind.takes().contains(&name)
            {
                let (kind, takes) = (kind.name(), listed(kind.takes(), "and"));
                errors.add(entry.key.at, format!("{kind} takes no `{name}`: it takes {takes}"));
            }
        }
    }

    /// The algorithm, if all that `kind` needs is there and right. `owner` is whose numbers these are.
    pub(super) fn algorithm(
        &self,
        owner: &YamlKey,
        kind: AlgorithmKind,
        strict: bool,
        errors: &mut Errors,
    ) -> Option<Algorithm> {
        self.refuse_others(kind, errors);
        self.report_missing(owner, kind, errors);
        let burst = self.burst.filter(|_| kind == AlgorithmKind::TokenBucket);
        // Each is read before any is missed, so that one bad number hides no other.
        let burst = burst.and_then(|entry| whole_number(entry, 1..=u64::MAX, errors));
        let count_max = if kind == AlgorithmKind::SmoothedRate { RATE_MAX } else { u64::MAX };
        let count = self.count.and_then(|entry| whole_number(entry, 1..=count_max, errors));
        let period = self.period.and_then(|entry| duration(entry, errors));
        let strict = self.strict.map_or(Some(strict), |entry| flag(entry, errors));
        let made = match kind {
            AlgorithmKind::TokenBucket => {
                TokenBucket::new(burst?, count?, period?).map(Algorithm::TokenBucket)
            }
            AlgorithmKind::SlidingLog => SlidingLog::new(count?, period?).map(Algorithm::SlidingLog),
            AlgorithmKind::SmoothedRate => {
                SmoothedRate::new(count? as f64, period?, strict?).map(Algorithm::SmoothedRate)
            }
            AlgorithmKind::Quota => Quota::new(count?, period?).map(Algorithm::Quota),
        };
        made.map_err(|error| self.blame(&error, owner, kind, errors)).ok()
    }

    fn report_missing(&self, owner: &YamlKey, kind: AlgorithmKind, errors: &mut Errors) {
        let absent = |name: &&str| self.all().iter().any(|(field, entry)| field == name && entry.is_none());
        let missing: Vec<_> = kind.needs().iter().copied().filter(absent).collect();
        if !missing.is_empty() {
            let (owner_name, missing) = (owner.quoted(), listed(&missing, "and"));
            let (kind, needs) = (kind.name(), listed(kind.needs(), "and"));
            let message = format!("`{owner_name}` has no {missing}: {kind} needs {needs}");
            errors.add(owner.at, message);
        }
    }

    /// Reports numbers that do not go together at the one to change.
    fn blame(&self, error: &NumbersError, owner: &YamlKey, kind: AlgorithmKind, errors: &mut Errors) {
        let (field, message) = match error {
            NumbersError::Zero { field: "burst" } | NumbersError::TooSlow { .. } => {
                (self.burst, error.to_string())
            }
            NumbersError::Zero { field: "period" } => (self.period, error.to_string()),
            NumbersError::PeriodTooLong if kind == AlgorithmKind::SmoothedRate => {
                (self.period, smoothed_period_too_long())
            }
            NumbersError::PeriodTooLong => (self.period, error.to_string()),
            _ => (self.count, error.to_string()),
        };
        errors.add(field.map_or(owner.at, |entry| entry.value.at), message);
    }
}

/// What is wrong with a period that a smoothed rate cannot have.
pub(super) fn smoothed_period_too_long() -> String {
    let longest = Nanos::MAX.get() / FORGET_AFTER_PERIODS / 86_400_000_000_000;
    format!("period must be at most {longest}d for {}", AlgorithmKind::SmoothedRate.name())
}
