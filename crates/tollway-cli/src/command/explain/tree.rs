//! Draws a rule as a tree, with the state of each part.
//!
//! ```text
//! Or                                   reached, free in 0.8s
//! ├─ 10/s            :upload           reached, free in 0.8s
//! └─ And                               not reached
//!    ├─ user:100/h   :upload:user:vova reached, free in 2041s
//!    └─ apikey:60/h  no value          not reached
//! ```

use std::time::Duration;

use tollway::core::Nanos;
use tollway_client::http::{RulePart, RulePartKind};

/// Longer names stand out rather than push everything to the right.
const COLUMN_MAX: usize = 60;

/// One part a line: what it is, the log that it reads, and whether it is reached.
pub(super) fn draw(tree: &RulePart) -> String {
    let mut rows = Vec::new();
    grow(tree, "", "", &mut rows);
    let width = |column: usize| {
        let widths = rows.iter().map(|row: &[String; 3]| row[column].chars().count());
        widths.filter(|width| *width <= COLUMN_MAX).max().unwrap_or_default()
    };
    let (part, log) = (width(0), width(1));
    let lines = rows.iter().map(|[a, b, c]| format!("{a:part$}  {b:log$}  {c}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Adds a row for the part, and below it one for each of its parts. `first` stands before its own, `rest` before
/// theirs.
fn grow(part: &RulePart, first: &str, rest: &str, rows: &mut Vec<[String; 3]>) {
    let (label, log, parts): (&str, &str, &[RulePart]) = match &part.kind {
        RulePartKind::Rate { rate, log } => (rate, log.as_deref().unwrap_or("no value"), &[]),
        RulePartKind::Or(parts) => (if parts.is_empty() { "Or()" } else { "Or" }, "", parts),
        RulePartKind::And(parts) => (if parts.is_empty() { "And()" } else { "And" }, "", parts),
    };
    rows.push([format!("{first}{label}"), log.to_owned(), reached(part.frees_after)]);
    for (index, part) in parts.iter().enumerate() {
        let (branch, below) = if index + 1 < parts.len() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
        grow(part, &format!("{rest}{branch}"), &format!("{rest}{below}"), rows);
    }
}

fn reached(frees_after: Option<Duration>) -> String {
    match frees_after {
        None => "unknown".to_owned(),
        Some(Duration::ZERO) => "not reached".to_owned(),
        Some(Duration::MAX) => "reached, never free".to_owned(),
        Some(span) => format!("reached, free in {}", Nanos::from(span)),
    }
}

#[cfg(test)]
mod tests {
    use tollway::core::{KeyedRule, RuleLimit};

    use super::*;

    fn drawn(rule: &str, reached_for: &[Option<u64>]) -> String {
        let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", "upload");
        let bill = rule.bill(|name| Ok::<_, ()>((name != "nobody").then_some("vova"))).unwrap();
        draw(&RulePart::from_bill(&bill, |rate| reached_for[rate].map(Nanos::new)))
    }

    #[test]
    fn a_tree_has_a_line_for_each_part() {
        let rule = "Or('10/s', And('user:100/h', Or('nobody:60/h'), And()), '0/s')";
        assert_eq!(
            drawn(rule, &[Some(800_000_000), Some(2_041_000_000_000), Some(0), Some(u64::MAX)]),
            "\
Or                                       reached, never free
├─ 10/s               :upload            reached, free in 0.8s
├─ And                                   not reached
│  ├─ user:100/h      :upload:user:vova  reached, free in 2041s
│  ├─ Or                                 not reached
│  │  └─ nobody:60/h  no value           not reached
│  └─ And()                              reached, never free
└─ 0/s                :upload            reached, never free"
        );
        assert_eq!(drawn("10/s", &[None]), "10/s  :upload  unknown");
    }
}
