//! Summarizes a replay: the replies that were as expected, and the decisions of each limit.
//!
//! ```text
//! # limit  requests  denied  share  busiest ids
//! # A             4       1  25.0%  alice 3, bob 1
//! #
//! # rule: 3 requests, 1 denied
//! # text: 7 requests, 2 without a reply
//! # reload: 2 configurations, 1 with errors
//! # 1 request could not be decided
//! # 5 events: 3 as expected, 1 differed, 1 without an expected reply
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use tollway::core::Policy;
use tollway::core::Verb;
use tollway::trace::{LimitRequest, TraceReply, TraceRequest, escaped};

use super::busiest::{Busiest, Busy};

/// The number of ids that are named for each limit.
const NAMED: usize = 5;
/// The number of characters of an id that are shown.
const ID_SHOWN: usize = 48;

/// Counts replies. It remembers the limits of the policy and their busiest ids, however many events there are.
#[derive(Debug, Default)]
pub(super) struct Summary {
    limits: HashMap<String, Tally>,
    rules: Resolved,
    gates: BTreeMap<&'static str, Asked>,
    reloads: Reloads,
    as_expected: u64,
    differed: u64,
    unexpecting: u64,
    errors: u64,
}

/// The requests that one limit decided.
#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    denied: u64,
    busiest: Busiest,
}

/// The requests that rules decided.
#[derive(Debug, Default)]
struct Resolved {
    requests: u64,
    denied: u64,
}

/// The requests of a gate that answers in bytes.
#[derive(Debug, Default)]
struct Asked {
    requests: u64,
    silences: u64,
}

/// The configurations that replaced the policy, or could not.
#[derive(Debug, Default)]
struct Reloads {
    configurations: u64,
    with_errors: u64,
}

impl Summary {
    /// Counts one event. `differs` is `None` where no reply was expected.
    pub(super) fn count(
        &mut self,
        policy: &Policy,
        request: &TraceRequest,
        reply: &TraceReply,
        differs: Option<bool>,
    ) {
        *match differs {
            Some(true) => &mut self.differed,
            Some(false) => &mut self.as_expected,
            None => &mut self.unexpecting,
        } += 1;
        match (request, reply) {
            (TraceRequest::Reload(_), reply) => {
                self.reloads.configurations += 1;
                self.reloads.with_errors += u64::from(matches!(reply, TraceReply::Error(_)));
            }
            (_, TraceReply::Error(_)) => self.errors += 1,
            (TraceRequest::Limit(request), TraceReply::Decision { decision, .. })
                if request.verb == Verb::Spend =>
            {
                self.spend(policy, request, (!decision.allowed()).then_some(decision.charge));
            }
            (
                TraceRequest::Limit(request),
                TraceReply::RuleDecision(ruling) | TraceReply::DecidedByRule { decision: ruling, .. },
            ) if request.verb == Verb::Spend => {
                self.spend(policy, request, None);
                self.rules.denied += u64::from(!ruling.allowed());
            }
            (TraceRequest::Rule(_), TraceReply::RuleDecision(ruling)) => {
                self.rules.requests += 1;
                self.rules.denied += u64::from(!ruling.allowed());
            }
            (_, TraceReply::Text(text)) => self.asked(request, text.is_none()),
            (_, TraceReply::Throttr(bytes)) => self.asked(request, bytes.is_empty()),
            (_, TraceReply::Resp(text)) => self.asked(request, text.is_empty()),
            (_, TraceReply::Smockron(messages)) => self.asked(request, messages.is_empty()),
            (_, TraceReply::Rls(_)) => self.asked(request, false),
            _ => {}
        }
    }

    /// Returns whether any reply differed.
    pub(super) const fn differed(&self) -> bool {
        self.differed > 0
    }

    /// A request counts for every limit and rule it was held against, a denial for the one that decided.
    fn spend(&mut self, policy: &Policy, request: &LimitRequest, denied_by: Option<usize>) {
        self.rules.requests += request.rules.len() as u64;
        for (index, charge) in request.charges.iter().enumerate() {
            let Some(limit) = policy.limit(&charge.limit) else { continue };
            let Ok(id) = limit.ids().canonical(&charge.id) else { continue };
            let tally = match self.limits.get_mut(&*charge.limit) {
                Some(tally) => tally,
                None => self.limits.entry(charge.limit.clone().into_owned()).or_default(),
            };
            tally.requests += 1;
            tally.denied += u64::from(denied_by == Some(index));
            tally.busiest.count(&id);
        }
    }

    fn asked(&mut self, request: &TraceRequest, silence: bool) {
        let asked = self.gates.entry(request.gate()).or_default();
        asked.requests += 1;
        asked.silences += u64::from(silence);
    }

    fn events(&self) -> u64 {
        self.as_expected + self.differed + self.unexpecting
    }

    fn table(&self) -> Vec<[String; 5]> {
        let mut limits: Vec<_> = self.limits.iter().collect();
        limits.sort_by(|(a, of_a), (b, of_b)| (of_b.requests, a).cmp(&(of_a.requests, b)));
        let header = ["limit", "requests", "denied", "share", "busiest ids"].map(str::to_owned);
        let rows = limits.into_iter().map(|(name, tally)| tally.row(name));
        std::iter::once(header).chain(rows).collect()
    }
}

/// Comment lines of a trace.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.limits.is_empty() {
            write_table(f, &self.table())?;
            writeln!(f, "#")?;
        }
        let Resolved { requests, denied } = self.rules;
        if requests > 0 {
            writeln!(f, "# rule: {}, {denied} denied", counted(requests, "request"))?;
        }
        for (gate, Asked { requests, silences }) in &self.gates {
            write!(f, "# {gate}: {}", counted(*requests, "request"))?;
            if *silences > 0 {
                write!(f, ", {silences} without a reply")?;
            }
            writeln!(f)?;
        }
        let Reloads { configurations, with_errors } = self.reloads;
        if configurations > 0 {
            let configurations = counted(configurations, "configuration");
            writeln!(f, "# reload: {configurations}, {with_errors} with errors")?;
        }
        if self.errors > 0 {
            writeln!(f, "# {} could not be decided", counted(self.errors, "request"))?;
        }
        let Self { as_expected, differed, unexpecting, .. } = self;
        writeln!(
            f,
            "# {}: {as_expected} as expected, {differed} differed, {unexpecting} without an expected reply",
            counted(self.events(), "event")
        )
    }
}

/// The name to the left, the numbers to the right, the ids as long as they are.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[[String; 5]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (w0, w1, w2, w3) = (width(0), width(1), width(2), width(3));
    for [limit, requests, denied, share, ids] in rows {
        writeln!(f, "# {limit:w0$}  {requests:>w1$}  {denied:>w2$}  {share:>w3$}  {ids}")?;
    }
    Ok(())
}

impl Tally {
    fn row(&self, name: &str) -> [String; 5] {
        let share = self.denied as f64 * 100.0 / self.requests as f64;
        let ids = match &*self.busiest.top(NAMED).iter().filter(known).map(named).collect::<Vec<_>>() {
            [] => "(no id stands out)".to_owned(),
            ids => ids.join(", "),
        };
        let (requests, denied) = (self.requests.to_string(), self.denied.to_string());
        [name.to_owned(), requests, denied, format!("{share:.1}%"), ids]
    }
}

/// Formats a number of things: `1 event`, `2 events`.
fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Returns whether most of the count belongs to this id. What was taken over says little about an id.
const fn known(busy: &&Busy<'_>) -> bool {
    busy.at_least > busy.at_most / 2
}

/// `alice 12`, or `alice 10..12` where only the bounds are known.
fn named(busy: &Busy<'_>) -> String {
    let cut = &busy.id[..busy.id.len().min(ID_SHOWN)];
    let dots = if cut.len() < busy.id.len() { "..." } else { "" };
    let count = if busy.at_least == busy.at_most {
        busy.at_most.to_string()
    } else {
        format!("{}..{}", busy.at_least, busy.at_most)
    };
    format!("{}{dots} {count}", escaped(cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_that_answer_in_bytes_have_a_line_of_their_own() {
        let mut summary = Summary::default();
        let policy = Policy::default();
        for (request, reply) in [
            (TraceRequest::Throttr(vec![2]), TraceReply::Throttr(vec![])),
            (TraceRequest::Resp(vec![b"PING".into()]), TraceReply::Resp("+PONG".into())),
            (TraceRequest::Smockron(vec![vec![]]), TraceReply::Smockron(vec![])),
            (TraceRequest::Text(b"ping".into()), TraceReply::Text(Some(b"pong".into()))),
            (TraceRequest::Text(b"PING".into()), TraceReply::Text(None)),
            (TraceRequest::Text(b"ping".into()), TraceReply::Error("not spoken here".into())),
            (TraceRequest::Reload("limits: {}".into()), TraceReply::Reloaded),
            (TraceRequest::Reload("limits".into()), TraceReply::Error("not a mapping".into())),
        ] {
            summary.count(&policy, &request, &reply, None);
        }
        assert_eq!(
            summary.to_string(),
            "# resp: 1 request\n\
             # smockron: 1 request, 1 without a reply\n\
             # text: 2 requests, 1 without a reply\n\
             # throttr: 1 request, 1 without a reply\n\
             # reload: 2 configurations, 1 with errors\n\
             # 1 request could not be decided\n\
             # 8 events: 0 as expected, 0 differed, 8 without an expected reply\n"
        );
    }
}
