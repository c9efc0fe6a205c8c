//! A rule that keeps every timestamp for ever, and tries every moment at which anything changes.

use std::collections::BTreeMap;

use tollway_testbed::Random;

/// The selectors whose values name the logs; the first stands for all callers together.
pub(crate) const SELECTORS: [&str; 3] = ["", "user", "apikey"];

/// The values that a selector may have in a request. The empty one means that the request has none.
const VALUES: [&str; 4] = ["", "vova", "0", "x:y"];

/// The values that the selectors have in one request.
pub(crate) type Values = [&'static str; 3];

/// Keeps the timestamps of each log in nanoseconds, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(BTreeMap<(usize, &'static str), Vec<u64>>);

#[derive(Clone, Debug)]
pub(crate) enum Naive {
    Rate(NaiveRate),
    And(Vec<Naive>),
    Or(Vec<Naive>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NaiveRate {
    pub(crate) selector: usize,
    pub(crate) count: usize,
    pub(crate) millis: u64,
}

pub(crate) fn any_values(random: &mut Random) -> Values {
    ["everybody", random.pick(&VALUES), random.pick(&VALUES)]
}

impl Logs {
    fn of(&self, selector: usize, values: &Values) -> &[u64] {
        self.0.get(&(selector, values[selector])).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest entry of a log.
    pub(crate) fn newest(&self, selector: usize, values: &Values) -> Option<u64> {
        self.of(selector, values).last().copied()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &[u64]> {
        self.0.values().map(Vec::as_slice)
    }
}

impl NaiveRate {
    pub(crate) const fn span(self) -> u64 {
        self.millis * 1_000_000
    }

    pub(crate) fn is_reached(self, logs: &Logs, values: &Values, now: u64) -> bool {
        let entries = logs.of(self.selector, values);
        let filled =
            || entries.len() >= self.count && now < entries[entries.len() - self.count] + self.span();
        !values[self.selector].is_empty() && (self.count == 0 || filled())
    }
}

impl Naive {
    /// Makes a random expression, which is often a plain rate.
    pub(crate) fn any(random: &mut Random, counts: u64, spans: &[u64], depth: u64) -> Self {
        if random.between(0, 3) <= depth + 1 {
            let count = if random.one_in(12) { 0 } else { random.between(1, counts) };
            return Self::Rate(NaiveRate {
                selector: random.pick(&[0, 1, 2]),
                count: usize::try_from(count).unwrap(),
                millis: random.pick(spans),
            });
        }
        let parts = (0..random.between(0, 4)).map(|_| Self::any(random, counts, spans, depth + 1)).collect();
        if random.one_in(2) { Self::And(parts) } else { Self::Or(parts) }
    }

    /// As somebody might write it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Rate(_) => self.part().trim_matches('\'').to_owned(),
            expression => expression.part(),
        }
    }

    fn part(&self) -> String {
        let all = |parts: &[Self]| parts.iter().map(Self::part).collect::<Vec<_>>().join(", ");
        match self {
            Self::Rate(NaiveRate { selector: 0, count, millis }) => format!("'{count}/{millis}ms'"),
            Self::Rate(NaiveRate { selector, count, millis }) => {
                format!("'{}:{count}/{millis}ms'", SELECTORS[*selector])
            }
            Self::And(parts) => format!("And({})", all(parts)),
            Self::Or(parts) => format!("Or({})", all(parts)),
        }
    }

    pub(crate) fn rates(&self) -> Vec<NaiveRate> {
        match self {
            Self::Rate(rate) => vec![*rate],
            Self::And(parts) | Self::Or(parts) => parts.iter().flat_map(Self::rates).collect(),
        }
    }

    fn limits(&self, logs: &Logs, values: &Values, now: u64) -> bool {
        match self {
            Self::And(parts) => parts.iter().all(|part| part.limits(logs, values, now)),
            Self::Or(parts) => parts.iter().any(|part| part.limits(logs, values, now)),
            Self::Rate(rate) => rate.is_reached(logs, values, now),
        }
    }

    /// The first moment from now on at which it allows.
    pub(crate) fn first_allowed(&self, logs: &Logs, values: &Values, now: u64) -> Option<u64> {
        let mut moments = vec![now];
        for rate in self.rates() {
            let ends = logs.of(rate.selector, values).iter().map(|entry| entry + rate.span());
            moments.extend(ends.filter(|end| *end > now));
        }
        moments.sort_unstable();
        moments.into_iter().find(|moment| !self.limits(logs, values, *moment))
    }

    /// Enters a request that was allowed in every log that has a name.
    pub(crate) fn log(&self, logs: &mut Logs, values: &Values, now: u64) {
        for (selector, value) in values.iter().enumerate() {
            let named = self.rates().iter().any(|rate| rate.selector == selector);
            if named && !value.is_empty() {
                let entries = logs.0.entry((selector, value)).or_default();
                let newest = entries.last().copied().unwrap_or_default();
                entries.push(now.max(newest));
            }
        }
    }
}
