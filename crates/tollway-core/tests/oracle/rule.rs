//! Rules against one that keeps every timestamp and tries every moment.

use std::collections::HashMap;

use tollway_core::algorithm::SlidingLogState;
use tollway_core::{Nanos, RateSpec, Rule, Timestamp};
use tollway_testbed::{Random, compare, seed};

#[derive(Clone, Debug)]
enum Naive {
    Rate { selector: &'static str, count: usize, span: u64 },
    And(Vec<Naive>),
    Or(Vec<Naive>),
}

/// A rule, and who comes when: milliseconds since the last, and the values of the selectors `user` and `apikey`.
#[derive(Clone, Debug)]
enum Step {
    Rule(Naive),
    Request { after: u64, user: &'static str, apikey: &'static str },
}

const SELECTORS: [&str; 3] = ["", "user", "apikey"];
const VALUES: [&str; 4] = ["", "vova", "0", "x:y"];

type Logs = HashMap<(&'static str, &'static str), Vec<u64>>;

#[test]
fn a_rule_limits_when_the_naive_one_does_and_frees_at_the_first_moment_that_it_would() {
    compare(history, run);
}

fn history(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![Step::Rule(expression(random, 0))];
    for _ in 0..random.between(1, 40) {
        let after = if random.one_in(3) { 0 } else { random.magnitude(4_000) };
        steps.push(Step::Request { after, user: random.pick(&VALUES), apikey: random.pick(&VALUES) });
    }
    steps
}

fn expression(random: &mut Random, depth: u64) -> Naive {
    if random.between(0, 3) < depth + 1 {
        let (selector, count) = (random.pick(&SELECTORS), random.between(0, 4));
        let span = random.pick(&[1, 500, 1_000, 2_000, 60_000]);
        return Naive::Rate { selector, count: usize::try_from(count).unwrap(), span };
    }
    let parts = (0..random.between(0, 3)).map(|_| expression(random, depth + 1)).collect();
    if random.one_in(2) { Naive::And(parts) } else { Naive::Or(parts) }
}

fn run(steps: &[Step]) -> Result<u64, String> {
    let Some((Step::Rule(naive), requests)) = steps.split_first() else { return Ok(0) };
    let text = naive.text();
    let rule: Rule = text.parse().map_err(|error| format!("{error}"))?;
    if rule.to_string().parse().as_ref() != Ok(&rule) {
        return Err(format!("{rule} is not what it was"));
    }
    let (mut kept, mut logs) = (Logs::new(), HashMap::<_, SlidingLogState>::new());
    let mut now = 0;
    for step in requests {
        let Step::Request { after, user, apikey } = step else { continue };
        now += after;
        let value = |selector: &str| match selector {
            "user" => *user,
            "apikey" => *apikey,
            _ => "everybody",
        };
        let at = Timestamp::EPOCH + Nanos::from_millis(now);
        let empty = SlidingLogState::default();
        let until = rule.limits_until(|index| {
            let selector = rule.logs()[index].selector().unwrap_or_default().to_owned();
            let value = value(&selector);
            (!value.is_empty()).then(|| logs.get(&(selector, value)).unwrap_or(&empty))
        });
        let expected = naive.first_allowed(&kept, &value, now);
        let found = (until.as_nanos() < u64::MAX).then(|| until.as_nanos().div_ceil(1_000_000).max(now));
        if found != expected {
            return Err(format!("{text} at {now} ms: free at {found:?}, not {expected:?}"));
        }
        if expected == Some(now) {
            naive.log(&mut kept, &value, now);
            for log in rule.logs() {
                let selector = log.selector().unwrap_or_default().to_owned();
                let value = value(&selector);
                if !value.is_empty() {
                    logs.entry((selector, value)).or_default().record(
                        at,
                        log.retention().keep(),
                        log.retention().span(),
                    );
                }
            }
        }
    }
    Ok(requests.len() as u64)
}

impl Naive {
    /// As somebody might write it.
    fn text(&self) -> String {
        match self {
            Self::Rate { .. } => self.part().trim_matches('\'').to_owned(),
            expression => expression.part(),
        }
    }

    fn part(&self) -> String {
        let all = |parts: &[Self]| parts.iter().map(Self::part).collect::<Vec<_>>().join(" ,");
        match self {
            Self::Rate { selector: "", count, span } => format!("'{count}/{span}ms'"),
            Self::Rate { selector, count, span } => format!("'{selector}:{count}/{span}ms'"),
            Self::And(parts) => format!("And( {})", all(parts)),
            Self::Or(parts) => format!("Or({})", all(parts)),
        }
    }

    fn limits<'v>(&self, kept: &Logs, value: &impl Fn(&str) -> &'v str, now: u64) -> bool
    where
        'v: 'static,
    {
        match self {
            Self::And(parts) => parts.iter().all(|part| part.limits(kept, value, now)),
            Self::Or(parts) => parts.iter().any(|part| part.limits(kept, value, now)),
            Self::Rate { selector, .. } if value(selector).is_empty() => false,
            Self::Rate { count: 0, .. } => true,
            Self::Rate { selector, count, span } => {
                let entries = kept.get(&(*selector, value(selector))).map_or(&[][..], Vec::as_slice);
                entries.len() >= *count && now - entries[entries.len() - count] < *span
            }
        }
    }

    /// The first moment at which it allows, found by trying every moment at which anything changes.
    fn first_allowed<'v>(&self, kept: &Logs, value: &impl Fn(&str) -> &'v str, now: u64) -> Option<u64>
    where
        'v: 'static,
    {
        let mut moments = vec![now];
        for entry in kept.values().flatten() {
            moments.extend(
                [1, 500, 1_000, 2_000, 60_000].map(|span| entry + span).iter().filter(|at| **at > now),
            );
        }
        moments.sort_unstable();
        moments.into_iter().find(|at| !self.limits(kept, value, *at))
    }

    fn log<'v>(&self, kept: &mut Logs, value: &impl Fn(&str) -> &'v str, now: u64)
    where
        'v: 'static,
    {
        for selector in SELECTORS {
            if self.names(selector) && !value(selector).is_empty() {
                kept.entry((selector, value(selector))).or_default().push(now);
            }
        }
    }

    fn names(&self, wanted: &str) -> bool {
        match self {
            Self::Rate { selector, .. } => *selector == wanted,
            Self::And(parts) | Self::Or(parts) => parts.iter().any(|part| part.names(wanted)),
        }
    }
}

/// A rate is the same rule however it is spelled, and a limit that is given as a rate has the same numbers.
#[test]
fn every_spelling_of_a_rate_is_the_same_rule() {
    const UNITS: [(&str, &[&str]); 5] = [
        ("ms", &["msec", "millisecond", "milliseconds"]),
        ("s", &["sec", "secs", "second", "seconds", "Second"]),
        ("m", &["min", "mins", "minute", "minutes", "MIN"]),
        ("h", &["hr", "hrs", "hour", "hours"]),
        ("d", &["day", "days"]),
    ];
    let mut random = Random::new(seed());
    for _ in 0..20_000 {
        let (short, long) = random.pick(&UNITS);
        let (count, number, long) =
            (random.between(1, 10_000_000), random.between(1, 400), random.pick(long));
        let divider = random.pick(&["/", " / ", " per ", "  per  "]);
        let number = if random.one_in(3) { String::new() } else { number.to_string() };
        let space = random.pick(&["", " "]);
        let (terse, wordy) =
            (format!("{count}/{number}{short}"), format!("{count}{divider}{number}{space}{long}"));
        let rule: Rule = terse.parse().unwrap();
        assert_eq!(wordy.parse().as_ref(), Ok(&rule), "{wordy}");
        let selected = |rate: &str| format!("Or('user:{rate}')").parse::<Rule>().unwrap();
        assert_eq!(selected(&wordy), selected(&terse), "{wordy}");
        let rate: RateSpec = wordy.parse().unwrap();
        assert_eq!(rate.to_string(), rule.to_string(), "{wordy}");
        assert_eq!((rate.count(), rate.period()), (count, rule.rates()[0].span()), "{wordy}");
    }
}

/// Every text is a rule whose canonical form parses to itself, or an error that points into the text.
#[test]
fn almost_a_rule_is_a_rule_or_an_error() {
    const PIECES: [&str; 23] = [
        " per ", "per", "minutes", "Hour", "ns", "And(", "Or(", ")", "'", "\"", ",", " ", "\n", "10", "/",
        "s", "5m", ":", "10/s", "s:0.1", "ü", "And", "x",
    ];
    let mut random = Random::new(seed());
    for _ in 0..200_000 {
        let text: String = (0..random.between(0, 12)).map(|_| random.pick(&PIECES)).collect();
        match text.parse::<Rule>() {
            Ok(rule) => {
                let canonical = rule.to_string();
                assert_eq!(canonical.parse().map(|rule: Rule| rule.to_string()), Ok(canonical), "{text}");
            }
            Err(error) => {
                assert!(text.get(error.at.clone()).is_some(), "{text}: {:?}", error.at);
                assert!(error.to_string().ends_with('^'), "{error}");
            }
        }
    }
}
