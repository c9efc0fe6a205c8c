//! Reads the algorithm of a limit and its numbers: `burst`, `count`, `period`, `offset` and `strict`.

use tollway_core::algorithm::{
    FixedWindow, NumbersError, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket,
};
use tollway_core::{Algorithm, Nanos, RateSpec};

use super::errors::ErrorCollector;
use super::fields::{self, YamlFields, choice, duration, duration_or_zero, flag, join_words, whole_number};
use super::yaml::{YamlEntry, YamlKey};

/// The largest count of a smoothed rate, which is a double: above this, not every whole number is one.
pub(super) const RATE_MAX: u64 = 1 << 53;

/// The algorithm that a limit names in its field `algorithm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AlgorithmKind {
    #[default]
    TokenBucket,
    SlidingLog,
    SmoothedRate,
    Quota,
    FixedWindow,
    SlidingWindow,
}

impl AlgorithmKind {
    const ALL: [(&'static str, Self); 6] = [
        ("token_bucket", Self::TokenBucket),
        ("sliding_log", Self::SlidingLog),
        ("smoothed_rate", Self::SmoothedRate),
        ("quota", Self::Quota),
        ("fixed_window", Self::FixedWindow),
        ("sliding_window", Self::SlidingWindow),
    ];

    pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Self> {
        choice(entry, &Self::ALL, errors)
    }

    const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Makes the algorithm. Only a token bucket has a burst.
    pub(super) fn with_numbers(
        self,
        burst: u64,
        count: u64,
        period: Nanos,
        others: InheritedFields,
    ) -> Result<Algorithm, NumbersError> {
        let period = period.into();
        match self {
            Self::TokenBucket => TokenBucket::new(burst, count, period).map(Algorithm::TokenBucket),
            Self::SlidingLog => SlidingLog::new(count, period).map(Algorithm::SlidingLog),
            Self::SmoothedRate => {
                SmoothedRate::new(count as f64, period, others.strict).map(Algorithm::SmoothedRate)
            }
            Self::Quota => Quota::new(count, period).map(Algorithm::Quota),
            Self::FixedWindow => {
                FixedWindow::new(count, period, others.offset.into()).map(Algorithm::FixedWindow)
            }
            Self::SlidingWindow => SlidingWindow::new(count, period).map(Algorithm::SlidingWindow),
        }
    }

    /// Returns the fields that the algorithm requires.
    const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::TokenBucket => &["burst", "count", "period"],
            _ => &["count", "period"],
        }
    }

    /// Returns the fields that the algorithm accepts.
    const fn takes(self) -> &'static [&'static str] {
        match self {
            Self::SmoothedRate => &["count", "period", "strict"],
            Self::FixedWindow => &["count", "period", "offset"],
            _ => self.needs(),
        }
    }
}

/// The fields of a limit or an override that belong to its algorithm.
#[derive(Clone, Copy)]
pub(super) struct AlgorithmFields<'a> {
    rate: Option<&'a YamlEntry>,
    burst: Option<&'a YamlEntry>,
    count: Option<&'a YamlEntry>,
    period: Option<&'a YamlEntry>,
    offset: Option<&'a YamlEntry>,
    strict: Option<&'a YamlEntry>,
}

/// The fields that an override takes over from its limit, unless it has them itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InheritedFields {
    strict: bool,
    offset: Nanos,
}

impl InheritedFields {
    pub(super) const fn of(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::SmoothedRate(limit) => Self { strict: limit.strict(), offset: Nanos::ZERO },
            Algorithm::FixedWindow(limit) => Self { strict: false, offset: limit.offset() },
            _ => Self { strict: false, offset: Nanos::ZERO },
        }
    }
}

impl<'a> AlgorithmFields<'a> {
    pub(super) fn of(fields: &YamlFields<'a>) -> Self {
        let [rate, burst, count, period, offset, strict] =
            ["rate", "burst", "count", "period", "offset", "strict"].map(|name| fields.get(name));
        Self { rate, burst, count, period, offset, strict }
    }

    /// Returns whether any number is given that makes a limit. `strict` and `offset` alone do not.
    pub(super) fn any_given(&self) -> bool {
        self.rate.is_some() || self.burst.is_some() || self.count.is_some() || self.period.is_some()
    }

    fn all(&self) -> [(&'static str, Option<&'a YamlEntry>); 5] {
        let Self { rate: _, burst, count, period, offset, strict } = *self;
        [("burst", burst), ("count", count), ("period", period), ("offset", offset), ("strict", strict)]
    }

    /// Reports every field that `kind` does not accept.
    pub(super) fn report_unsupported(&self, kind: AlgorithmKind, errors: &mut ErrorCollector) {
        for (name, entry) in self.all() {
            if let Some(entry) = entry
                && !kind.takes().contains(&name)
            {
                let (kind, takes) = (kind.name(), join_words(kind.takes(), "and"));
                errors.add(entry.key.at, format!("{kind} does not take \"{name}\", only {takes}"));
            }
        }
    }

    /// Returns the algorithm, or `None` if a field is missing or wrong. `owner` is the limit or override that has the
    /// fields.
    pub(super) fn algorithm(
        &self,
        owner: &YamlKey,
        kind: AlgorithmKind,
        inherited: InheritedFields,
        errors: &mut ErrorCollector,
    ) -> Option<Algorithm> {
        self.report_unsupported(kind, errors);
        self.report_missing(owner, kind, errors);
        let rate = self.rate.map(|entry| self.read_rate(entry, errors));
        let burst = self.burst.filter(|_| kind == AlgorithmKind::TokenBucket);
        // All fields are read before the first `?`, so that one bad number does not hide the next.
        let burst = burst.and_then(|entry| whole_number(entry, 1..=u64::MAX, errors));
        let count_max = if kind == AlgorithmKind::SmoothedRate { RATE_MAX } else { u64::MAX };
        let count = self.count.and_then(|entry| whole_number(entry, 1..=count_max, errors));
        let period = self.period.and_then(|entry| duration(entry, errors));
        let others = self.inherited(inherited, errors);
        let (burst, count, period) = match rate {
            Some(rate) => {
                let rate = rate?;
                let burst = if self.burst.is_some() { burst } else { Some(rate.count()) };
                (burst, Some(rate.count()), Some(rate.period()))
            }
            None => (burst, count, period),
        };
        let burst = if kind == AlgorithmKind::TokenBucket { burst? } else { 0 };
        if let (Some(count), None) = (count, period)
            && let Err(error @ (NumbersError::LogTooLong | NumbersError::WindowTooLarge)) =
                kind.with_numbers(1, count, Nanos::from_secs(1), InheritedFields::default())
        {
            self.report_bad_numbers(&error, owner, errors);
        }
        let (count, period, others) = (count?, period?, others?);
        let made = kind.with_numbers(burst, count, period, others);
        made.map_err(|error| {
            self.report_bad_numbers(&error, owner, errors);
            // The numbers are checked one after the other, and the period last.
            if let Err(next @ NumbersError::PeriodTooLong { .. }) = kind.with_numbers(1, 1, period, others)
                && next != error
            {
                self.report_bad_numbers(&next, owner, errors);
            }
        })
        .ok()
    }

    /// Reads `strict` and `offset`. A field that is not given is that of `from`; `None` if one is wrong.
    pub(super) fn inherited(
        &self,
        from: InheritedFields,
        errors: &mut ErrorCollector,
    ) -> Option<InheritedFields> {
        let strict = self.strict.map_or(Some(from.strict), |entry| flag(entry, errors));
        let offset = self.offset.map_or(Some(from.offset), |entry| duration_or_zero(entry, errors));
        Some(InheritedFields { strict: strict?, offset: offset? })
    }

    /// Reads a rate, which replaces a count and a period.
    fn read_rate(&self, entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<RateSpec> {
        for other in [self.count, self.period].into_iter().flatten() {
            let name = other.key.quoted();
            errors
                .add(other.key.at, format!("\"{name}\" is part of \"rate\"; remove \"{name}\" or \"rate\""));
        }
        fields::rate(entry, "", errors)
    }

    fn report_missing(&self, owner: &YamlKey, kind: AlgorithmKind, errors: &mut ErrorCollector) {
        if self.rate.is_some() {
            return;
        }
        let absent = |name: &&str| self.all().iter().any(|(field, entry)| field == name && entry.is_none());
        let missing: Vec<_> = kind.needs().iter().copied().filter(absent).collect();
        if !missing.is_empty() {
            let (owner_name, missing) = (owner.quoted(), join_words(&missing, "and"));
            let (kind, needs) = (kind.name(), join_words(kind.needs(), "and"));
            let message =
                format!("\"{owner_name}\" has no {missing}; {kind} needs {needs}, or a rate such as 100/h");
            errors.add(owner.at, message);
        }
    }

    /// Reports numbers that contradict each other, at the field that should change.
    fn report_bad_numbers(&self, error: &NumbersError, owner: &YamlKey, errors: &mut ErrorCollector) {
        let field = match error {
            NumbersError::Zero { field: "burst" } | NumbersError::TooSlow { .. } => self.burst,
            NumbersError::Zero { field: "period" } | NumbersError::PeriodTooLong { .. } => self.period,
            NumbersError::OffsetTooLong => self.offset,
            _ => self.count,
        };
        let field = field.or(self.rate);
        errors.add(field.map_or(owner.at, |entry| entry.value.at), error.to_string());
    }
}
