//! Writes the counters in the text format of Prometheus.
//!
//! ```text
//! # HELP tollway_refunds_total Charges refunded.
//! # TYPE tollway_refunds_total counter
//! tollway_refunds_total{limit="Login"} 5
//! ```
//!
//! It is written by hand: the format is one line each. A series appears when it has counted something: with hundreds of
//! limits, most of the page would be zeros. `# HELP` and `# TYPE` are always there, so that a page shows what there is.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tollway::engine::Engine;
use tollway::journal::JournalStats;
use tollway::store::{Health, NodeState};
use tollway_core::{Algorithm, Nanos, Policy, Timestamp, Verdict};

use super::descriptors::DESCRIPTOR_SERIES_MAX;
use super::histogram::{BUCKETS, Histogram};
use super::process;
use super::smockron::{DomainCounters, Malformed};
use super::{
    AccessCounters, Counter, LimitCounters, Metrics, OUTCOMES, RespCounters, RlsCounters, RuleCounters,
    SmockronCounters, TextCounters, ThrottrCounters, WorkerMetrics,
};
use crate::audit::AuditLog;
use crate::gate::{ConnectionLimit, Gate, Rejected};
use crate::spans::SpanCounters;

/// Returns the page of all metrics.
pub(crate) fn encode(
    metrics: &Metrics,
    limiter: &Engine,
    gates: &[Arc<dyn Gate>],
    audit: &AuditLog,
) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    page.family("tollway_build_info", "gauge", "The version of the server, as a label; always 1.");
    page.sample("tollway_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let limits_of = by_name(metrics, |worker| &worker.limits);
    let rules_of = by_name(metrics, |worker| &worker.rules);
    requests(&mut page, metrics, &limits_of, &rules_of);
    decisions(&mut page, &limits_of);
    rule_decisions(&mut page, &rules_of);
    limits(&mut page, &limiter.policy());
    process::write(&mut page);
    store(&mut page, limiter);
    reloads(&mut page, metrics);
    access(&mut page, metrics, audit);
    spans(&mut page, metrics);
    http(&mut page, metrics);
    connections(&mut page, metrics, gates);
    tls(&mut page, gates);
    latency(&mut page, metrics);
    text(&mut page, metrics);
    throttr(&mut page, metrics);
    resp(&mut page, metrics);
    rls(&mut page, metrics);
    smockron(&mut page, metrics);
    gates.iter().for_each(|gate| gate.write_metrics(&mut page));
    page.0
}

/// Builds a page in the format of Prometheus.
pub(crate) struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            push_escaped(&mut self.0, value);
            self.0.push('"');
        }
        self.0.push_str(if labels.is_empty() { "" } else { "}" });
        self.line(format_args!(" {value}"));
    }

    /// Appends a sample of a counter, if it has counted something.
    fn count(&mut self, name: &str, labels: &[(&str, &str)], count: u64) {
        if count > 0 {
            self.sample(name, labels, count);
        }
    }

    /// Appends a family of one sample.
    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("writing to memory cannot fail");
    }
}

/// Appends the value of a label. Names of limits need no escapes, but domains, addresses of nodes and descriptors may.
fn push_escaped(page: &mut String, value: &str) {
    for char in value.chars() {
        match char {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            char => page.push(char),
        }
    }
}

/// The counters of all workers, by the names they belong to.
type ByName<T> = BTreeMap<Box<str>, Vec<Arc<T>>>;

fn by_name<T>(
    metrics: &Metrics,
    of: impl Fn(&WorkerMetrics) -> &Mutex<BTreeMap<Box<str>, Arc<T>>>,
) -> ByName<T> {
    let mut names = ByName::new();
    for worker in &metrics.workers {
        for (name, counters) in of(worker).lock().expect("nobody panics while counting").iter() {
            names.entry(name.clone()).or_insert_with(Vec::new).push(Arc::clone(counters));
        }
    }
    names
}

fn total<T>(counters: &[Arc<T>], of: impl Fn(&T) -> &Counter) -> u64 {
    counters.iter().map(|counters| of(counters).get()).sum()
}

/// Writes the requests, each once: the counters of limits and rules have a bill once for each of its parts.
fn requests(
    page: &mut Page,
    metrics: &Metrics,
    limits: &ByName<LimitCounters>,
    rules: &ByName<RuleCounters>,
) {
    let name = "tollway_requests_total";
    page.family(name, "counter", "Requests that limits and rules decided, each once, by outcome.");
    let of_limits = |of: &dyn Fn(&LimitCounters) -> u64| {
        limits.values().flatten().map(|counters| of(counters)).sum::<u64>()
    };
    let of_rules = |of: &dyn Fn(&RuleCounters) -> u64| {
        rules.values().flatten().map(|counters| of(counters)).sum::<u64>()
    };
    for (index, (_, outcome)) in OUTCOMES.into_iter().enumerate() {
        let alone = of_limits(&|limit| limit.spends[index].get())
            + of_rules(&|rule| rule.alone.verdicts[index].get());
        let bills = sum(metrics, |worker| &worker.bills.verdicts[index]);
        page.count(name, &[("outcome", outcome)], alone + bills);
    }
    let alone = of_limits(&|limit| limit.degraded.get()) + of_rules(&|rule| rule.alone.degraded.get());
    let help = "Requests decided without the store, each once, because it did not answer.";
    let degraded = alone + sum(metrics, |worker| &worker.bills.degraded);
    page.single("tollway_requests_degraded_total", "counter", help, degraded);
}

fn decisions(page: &mut Page, limits: &ByName<LimitCounters>) {
    let name = "tollway_decisions_total";
    let help = "Requests by limit, verb and outcome. An allowed bill counts for each limit that could have denied it, \
                a denied one for the limit that decided.";
    page.family(name, "counter", help);
    for (limit, counters) in limits {
        for (index, (_, outcome)) in OUTCOMES.into_iter().enumerate() {
            let spends = total(counters, |counters| &counters.spends[index])
                + total(counters, |counters| &counters.in_bills.verdicts[index]);
            let checks = total(counters, |counters| &counters.checks[index]);
            page.count(name, &[("limit", limit), ("verb", "spend"), ("outcome", outcome)], spends);
            page.count(name, &[("limit", limit), ("verb", "check"), ("outcome", outcome)], checks);
        }
    }
    page.family(
        "tollway_degraded_total",
        "counter",
        "Decisions made without the store, because it did not answer.",
    );
    for (limit, counters) in limits {
        let spends = total(counters, |counters| &counters.degraded)
            + total(counters, |counters| &counters.in_bills.degraded);
        let checks = total(counters, |counters| &counters.degraded_checks);
        page.count("tollway_degraded_total", &[("limit", limit)], spends + checks);
    }
    page.family("tollway_refunds_total", "counter", "Charges refunded.");
    for (limit, counters) in limits {
        page.count(
            "tollway_refunds_total",
            &[("limit", limit)],
            total(counters, |counters| &counters.refunds),
        );
    }
    page.family("tollway_resets_total", "counter", "Buckets reset on request.");
    for (limit, counters) in limits {
        page.count("tollway_resets_total", &[("limit", limit)], total(counters, |counters| &counters.resets));
    }
}

fn rule_decisions(page: &mut Page, rules: &ByName<RuleCounters>) {
    let name = "tollway_rulings_total";
    let help = "Requests by rule and outcome. An allowed bill counts for each of its rules, a denied one for the rule \
                that decided.";
    page.family(name, "counter", help);
    for (rule, counters) in rules {
        // A rule always limits something, so nothing is unlimited.
        for (index, (_, outcome)) in
            OUTCOMES.into_iter().enumerate().filter(|(_, (of, _))| *of != Verdict::Unlimited)
        {
            let count = total(counters, |counters| &counters.alone.verdicts[index])
                + total(counters, |counters| &counters.in_bills.verdicts[index]);
            page.count(name, &[("rule", rule), ("outcome", outcome)], count);
        }
    }
    let name = "tollway_rulings_degraded_total";
    page.family(name, "counter", "Decisions of rules made without the store, because it did not answer.");
    for (rule, counters) in rules {
        let degraded = total(counters, |counters| &counters.alone.degraded)
            + total(counters, |counters| &counters.in_bills.degraded);
        page.count(name, &[("rule", rule)], degraded);
    }
}

/// Writes the numbers of the limits, so that a graph can show usage against what is allowed.
fn limits(page: &mut Page, policy: &Policy) {
    let (units, window) = ("tollway_limit_units", "tollway_limit_window_seconds");
    let numbers =
        policy.limits().iter().filter_map(|limit| limit.default_algorithm().map(|of| (limit.name(), of)));
    page.family(units, "gauge", "Units that a limit grants at once or within its window.");
    for (name, algorithm) in numbers.clone() {
        page.sample(units, &[("limit", name), ("algorithm", algorithm.name())], algorithm.cost_max());
    }
    page.family(window, "gauge", "Seconds in which a limit grants its units again.");
    for (name, algorithm) in numbers {
        let seconds = algorithm.window().as_secs_f64();
        page.sample(window, &[("limit", name), ("algorithm", algorithm.name())], seconds);
    }
    limit_info(page, policy);
    page.family("tollway_limit_overrides", "gauge", "Ids with an override.");
    for limit in policy.limits() {
        page.sample("tollway_limit_overrides", &[("limit", limit.name())], limit.overrides().len());
    }
}

/// Writes the numbers of the limits as labels, so that a dashboard can show them in a table.
fn limit_info(page: &mut Page, policy: &Policy) {
    let name = "tollway_limit_info";
    page.family(name, "gauge", "The numbers of a limit as labels, the period in seconds; always 1.");
    for limit in policy.limits() {
        let Some(algorithm) = limit.default_algorithm() else { continue };
        let (count, period) = count_and_period(algorithm);
        let (burst, period) = (algorithm.cost_max().to_string(), period.as_secs_f64().to_string());
        let labels = [
            ("limit", limit.name()),
            ("algorithm", algorithm.name()),
            ("burst", &*burst),
            ("count", &*count),
            ("period", &*period),
        ];
        page.sample(name, &labels, 1);
    }
}

fn count_and_period(algorithm: &Algorithm) -> (String, Nanos) {
    match algorithm {
        Algorithm::TokenBucket(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::SlidingLog(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::SmoothedRate(limit) => (limit.limit().to_string(), limit.period()),
        Algorithm::Quota(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::FixedWindow(limit) => (limit.count().to_string(), limit.period()),
        Algorithm::SlidingWindow(limit) => (limit.count().to_string(), limit.period()),
    }
}

fn store(page: &mut Page, limiter: &Engine) {
    if let Some(health) = limiter.health() {
        shared_store(page, &health);
    }
    let stats = limiter.stats();
    page.single("tollway_buckets", "gauge", "Buckets in memory.", stats.buckets);
    page.single("tollway_buckets_max", "gauge", "Maximum number of buckets in memory.", stats.max_buckets);
    let help = "Buckets in memory that clients made without a configured limit.";
    page.single("tollway_client_buckets", "gauge", help, stats.client_buckets);
    let help = "Maximum number of buckets in memory that clients can make.";
    page.single("tollway_client_buckets_max", "gauge", help, stats.max_client_buckets);
    page.single("tollway_sweeps_total", "counter", "Sweeps of a part of the store.", stats.sweeps);
    let help = "Expired buckets removed by sweeps.";
    page.single("tollway_buckets_swept_total", "counter", help, stats.swept);
    let help = "Requests of new ids that found the store full.";
    page.single("tollway_refused_full_total", "counter", help, stats.refused_full);
    if let Some(stats) = limiter.journal_stats() {
        journal(page, &stats);
    }
}

fn journal(page: &mut Page, stats: &JournalStats) {
    let help = "1 if all changes of buckets are kept on the disk, 0 if not.";
    page.single("tollway_journal_up", "gauge", help, u8::from(stats.failing_since.is_none()));
    let kept = stats.kept_until.since(Timestamp::EPOCH).as_secs_f64();
    let help = "Time up to which all changes are kept, in seconds since 1970.";
    page.single("tollway_journal_kept_until_seconds", "gauge", help, kept);
    let since = stats.failing_since.map_or(0.0, |since| since.since(Timestamp::EPOCH).as_secs_f64());
    let help = "Time since when changes are not kept, in seconds since 1970; 0 if they are.";
    page.single("tollway_journal_failing_since_seconds", "gauge", help, since);
    for (name, help, count) in [
        ("tollway_journal_failures_total", "Times that the disk of the journal failed.", stats.failures),
        ("tollway_journal_buckets_total", "States of buckets appended to logs.", stats.buckets_written),
        ("tollway_journal_bytes_total", "Bytes appended to logs.", stats.bytes_written),
        ("tollway_journal_syncs_total", "Times that a log was synced to the disk.", stats.syncs),
        ("tollway_journal_snapshots_total", "Snapshots completed.", stats.snapshots),
    ] {
        page.single(name, "counter", help, count);
    }
    let help = "Time that the last sync of a log took.";
    page.single("tollway_journal_last_sync_seconds", "gauge", help, stats.last_sync.as_secs_f64());
    let help = "Length of the logs since the last snapshot.";
    page.single("tollway_journal_log_bytes", "gauge", help, stats.log_bytes);
    page.single(
        "tollway_journal_snapshot_bytes",
        "gauge",
        "Length of the last snapshot.",
        stats.snapshot_bytes,
    );
}

fn shared_store(page: &mut Page, health: &Health) {
    page.family("tollway_store_up", "gauge", "1 if the node of the store is connected, 0 if not.");
    for node in &health.nodes {
        let up = u8::from(matches!(node.state, NodeState::Up));
        page.sample("tollway_store_up", &[("node", &node.address)], up);
    }
    for (name, help, count) in [
        ("tollway_store_calls_total", "Commands sent to the store.", health.calls),
        ("tollway_store_timeouts_total", "Commands without an answer within the deadline.", health.timeouts),
        ("tollway_store_shed_total", "Commands shed because too many were pending.", health.shed),
        ("tollway_store_refusals_total", "Commands that a node refused.", health.refusals),
        ("tollway_store_redirects_total", "Commands redirected to another node.", health.redirects),
        ("tollway_store_reconnects_total", "Connections to the store reopened.", health.reconnects),
        (
            "tollway_store_breaker_openings_total",
            "Times that the circuit breaker of a node opened.",
            health.breaker_openings,
        ),
        (
            "tollway_store_rejected_connections_total",
            "Connections that failed because of the password, the user or the certificate.",
            health.rejected_connections,
        ),
    ] {
        page.single(name, "counter", help, count);
    }
}

fn reloads(page: &mut Page, metrics: &Metrics) {
    page.family(
        "tollway_reloads_total",
        "counter",
        "Reloads of the configuration and of other files by outcome.",
    );
    page.sample("tollway_reloads_total", &[("outcome", "ok")], metrics.reloads_ok.get());
    page.sample("tollway_reloads_total", &[("outcome", "failed")], metrics.reloads_failed.get());
}

fn access(page: &mut Page, metrics: &Metrics, audit: &AuditLog) {
    let name = "tollway_access_denied_total";
    page.family(name, "counter", "Requests of clients without a token that allows them, by reason.");
    let of = |counter: fn(&AccessCounters) -> &Counter| sum(metrics, |worker| counter(&worker.access));
    page.count(name, &[("reason", "no_token")], of(|access| &access.no_token));
    page.count(name, &[("reason", "unknown_token")], of(|access| &access.unknown_token));
    page.count(name, &[("reason", "missing_scope")], of(|access| &access.missing_scope));
    page.count(name, &[("reason", "other_limits")], of(|access| &access.other_limits));
    let help = "Lines of the audit log that were lost, because they could not be written in time.";
    page.single("tollway_audit_lost_total", "counter", help, audit.lost());
}

fn spans(page: &mut Page, metrics: &Metrics) {
    let SpanCounters { sent, dropped, failed } = &metrics.spans;
    page.family("tollway_spans_total", "counter", "Spans of decisions by outcome.");
    for (outcome, count) in [("sent", sent), ("dropped", dropped), ("failed", failed)] {
        page.sample("tollway_spans_total", &[("outcome", outcome)], count.get());
    }
}

/// Returns the sum of a counter over all workers.
fn sum(metrics: &Metrics, of: impl Fn(&WorkerMetrics) -> &Counter) -> u64 {
    metrics.workers.iter().map(|worker| of(worker).get()).sum()
}

fn http(page: &mut Page, metrics: &Metrics) {
    page.family("tollway_http_responses_total", "counter", "HTTP responses by class of status.");
    for class in 2..=5 {
        let count = sum(metrics, |worker| &worker.responses[class]);
        let of_admin = sum(metrics, |worker| &worker.admin_responses[class]);
        page.sample("tollway_http_responses_total", &[("status", &format!("{class}xx"))], count + of_admin);
    }
}

fn connections(page: &mut Page, metrics: &Metrics, gates: &[Arc<dyn Gate>]) {
    let limits = || gates.iter().filter_map(|gate| Some((gate.name(), gate.connection_limit()?)));
    let mut family = |name, kind, help, of: fn(&ConnectionLimit) -> u64| {
        page.family(name, kind, help);
        limits().for_each(|(gate, limit)| page.sample(name, &[("gate", gate)], of(limit)));
    };
    family("tollway_connections", "gauge", "Open connections.", |limit| limit.open() as u64);
    let help = "Maximum number of open connections.";
    family("tollway_connections_max", "gauge", help, |limit| limit.max() as u64);
    family("tollway_connections_total", "counter", "Connections accepted.", |limit| limit.accepted.get());
    let help = "Idle connections closed to make room for others.";
    family("tollway_connections_evicted_total", "counter", help, |limit| limit.evicted.get());
    let name = "tollway_connections_refused_total";
    page.family(
        name,
        "counter",
        "Connections refused at the limit of the gate or of the address, or by its network.",
    );
    for (gate, limit) in limits() {
        for (reason, count) in [
            ("gate", &limit.refused_gate),
            ("address", &limit.refused_address),
            ("network", &limit.refused_network),
        ] {
            page.sample(name, &[("gate", gate), ("reason", reason)], count.get());
        }
    }
    page.family("tollway_connections_cut_total", "counter", "Connections closed by a timeout, by phase.");
    for (when, count) in [
        ("idle", sum(metrics, |worker| &worker.cut_idle)),
        ("head", sum(metrics, |worker| &worker.cut_head)),
        ("body", sum(metrics, |worker| &worker.cut_body)),
        ("frame", sum(metrics, |worker| &worker.cut_frame)),
        ("write", sum(metrics, |worker| &worker.cut_write)),
    ] {
        page.sample("tollway_connections_cut_total", &[("when", when)], count);
    }
}

fn tls(page: &mut Page, gates: &[Arc<dyn Gate>]) {
    let with_tls = || gates.iter().filter_map(|gate| Some((gate.name(), gate.tls()?)));
    if with_tls().next().is_none() {
        return;
    }
    let name = "tollway_tls_handshakes_total";
    page.family(name, "counter", "TLS handshakes by how they ended.");
    for (gate, tls) in with_tls() {
        for (outcome, count) in tls.handshakes() {
            page.sample(name, &[("gate", gate), ("outcome", outcome)], count);
        }
    }
    let name = "tollway_tls_certificate_expiry_timestamp_seconds";
    page.family(name, "gauge", "Unix time at which the certificate of the gate expires.");
    for (gate, expires_at) in with_tls().filter_map(|(gate, tls)| Some((gate, tls.expires_at()?))) {
        let seconds = expires_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        page.sample(name, &[("gate", gate)], seconds);
    }
}

fn latency(page: &mut Page, metrics: &Metrics) {
    let name = "tollway_request_seconds";
    page.family(name, "histogram", "Seconds from a complete request to its written response.");
    histogram(page, name, metrics, |worker| &worker.latency);
}

/// Writes a histogram of all workers together.
fn histogram<const UNIT: u64>(
    page: &mut Page,
    name: &str,
    metrics: &Metrics,
    of: impl Fn(&WorkerMetrics) -> &Histogram<UNIT>,
) {
    let mut counts = [0; BUCKETS];
    let mut nanos = 0_u64;
    for histogram in metrics.workers.iter().map(|worker| of(worker)) {
        counts.iter_mut().zip(histogram.counts()).for_each(|(sum, count)| *sum += count);
        nanos = nanos.wrapping_add(histogram.nanos());
    }
    let (bucket, mut at_most) = (format!("{name}_bucket"), 0);
    let bounds = Histogram::<UNIT>::bounds().map(|bound| Nanos::new(bound).as_secs_f64().to_string());
    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
        at_most += count;
        page.sample(&bucket, &[("le", &bound)], at_most);
    }
    page.sample(&format!("{name}_sum"), &[], Nanos::new(nanos).as_secs_f64());
    page.sample(&format!("{name}_count"), &[], at_most);
}

fn text(page: &mut Page, metrics: &Metrics) {
    let of = |counter: fn(&TextCounters) -> &Counter| sum(metrics, |worker| counter(&worker.text));
    let datagrams = of(|text| &text.datagrams);
    page.single("tollway_text_datagrams_total", "counter", "Datagrams received.", datagrams);
    let help = "Malformed datagrams, which get no reply.";
    page.single("tollway_text_silent_total", "counter", help, of(|text| &text.silent));
    let help = "Datagrams from outside trusted_networks or from port 0, which get no reply.";
    page.single("tollway_text_untrusted_total", "counter", help, of(|text| &text.untrusted));
    let name = "tollway_text_rejected_total";
    page.family(name, "counter", "Datagrams without a good signature, which get no reply, by reason.");
    for (index, rejected) in Rejected::ALL.into_iter().enumerate() {
        let count = sum(metrics, |worker| &worker.text.rejected[index]);
        page.sample(name, &[("reason", rejected.name())], count);
    }
    page.family("tollway_text_answers_total", "counter", "Answers by whether the key was over its limit.");
    for (answer, count) in [("Y", of(|text| &text.over)), ("N", of(|text| &text.not_over))] {
        page.sample("tollway_text_answers_total", &[("over", answer)], count);
    }
    let help = "Keys that matched no rule, which are never over a limit.";
    page.single("tollway_text_unmatched_total", "counter", help, of(|text| &text.unmatched));
    page.family("tollway_text_errors_total", "counter", "Failed receive and send calls.");
    for (what, count) in
        [("receive", of(|text| &text.receive_errors)), ("send", of(|text| &text.send_errors))]
    {
        page.sample("tollway_text_errors_total", &[("what", what)], count);
    }
}

fn rls(page: &mut Page, metrics: &Metrics) {
    let of = |counter: fn(&RlsCounters) -> &Counter| sum(metrics, |worker| counter(&worker.rls));
    page.family("tollway_rls_requests_total", "counter", "Requests to Envoy's rate limit service by answer.");
    for (answer, count) in [
        ("ok", of(|rls| &rls.ok)),
        ("over_limit", of(|rls| &rls.over_limit)),
        ("invalid", of(|rls| &rls.invalid)),
        ("unavailable", of(|rls| &rls.unavailable)),
    ] {
        page.sample("tollway_rls_requests_total", &[("answer", answer)], count);
    }
    let name = "tollway_rls_descriptor_decisions_total";
    let help = "Decisions by the limit, the values of the request's descriptor and the outcome.";
    page.family(name, "counter", help);
    metrics.descriptors.for_each(|limit, descriptor, outcome, count| {
        page.sample(name, &[("limit", limit), ("descriptor", descriptor), ("outcome", outcome)], count);
    });
    let help = "Descriptors whose decisions are counted by their values.";
    page.single("tollway_rls_descriptors", "gauge", help, metrics.descriptors.names());
    let help = "Maximum number of descriptors whose decisions are counted by their values.";
    page.single("tollway_rls_descriptors_max", "gauge", help, DESCRIPTOR_SERIES_MAX);
    let help = "Decisions about descriptors beyond that maximum, which are counted as other.";
    page.single(
        "tollway_rls_descriptors_overflow_total",
        "counter",
        help,
        metrics.descriptors.overflow.get(),
    );
}

fn throttr(page: &mut Page, metrics: &Metrics) {
    let of = |counter: fn(&ThrottrCounters) -> &Counter| sum(metrics, |worker| counter(&worker.throttr));
    page.family("tollway_throttr_requests_total", "counter", "Requests by status of the reply.");
    for (status, count) in [("1", of(|throttr| &throttr.done)), ("0", of(|throttr| &throttr.failed))] {
        page.sample("tollway_throttr_requests_total", &[("status", status)], count);
    }
    let help = "Connections closed because of an unknown request type.";
    page.single("tollway_throttr_unknown_type_total", "counter", help, of(|throttr| &throttr.unknown_type));
}

fn resp(page: &mut Page, metrics: &Metrics) {
    let of = |counter: fn(&RespCounters) -> &Counter| sum(metrics, |worker| counter(&worker.resp));
    page.single(
        "tollway_resp_commands_total",
        "counter",
        "Commands of Redis clients.",
        of(|resp| &resp.commands),
    );
    let help = "Commands of Redis clients whose reply was an error.";
    page.single("tollway_resp_errors_total", "counter", help, of(|resp| &resp.errors));
    let help = "Connections closed because of a RESP protocol error.";
    page.single("tollway_resp_broken_total", "counter", help, of(|resp| &resp.broken));
}

fn smockron(page: &mut Page, metrics: &Metrics) {
    let of = |counter: fn(&SmockronCounters) -> &Counter| sum(metrics, |worker| counter(&worker.smockron));
    let name = "tollway_smockron_requests_total";
    page.family(name, "counter", "Requests reported by gatekeepers, by domain and status.");
    for (domain, counters) in by_name(metrics, |worker| &worker.smockron.domains) {
        let count = |of: fn(&DomainCounters) -> &Counter| -> u64 {
            counters.iter().map(|counters| of(counters).get()).sum()
        };
        page.count(name, &[("domain", &domain), ("status", "ACCEPTED")], count(|domain| &domain.accepted));
        page.count(name, &[("domain", &domain), ("status", "DELAYED")], count(|domain| &domain.delayed));
        page.count(name, &[("domain", &domain), ("status", "REJECTED")], count(|domain| &domain.rejected));
    }
    let name = "tollway_smockron_malformed_total";
    page.family(name, "counter", "Malformed accounting messages by reason.");
    for (index, reason) in Malformed::ALL.into_iter().enumerate() {
        let count = sum(metrics, |worker| &worker.smockron.malformed[index]);
        page.sample(name, &[("reason", reason.name())], count);
    }
    let name = "tollway_smockron_delay_seconds";
    page.family(name, "histogram", "Seconds by which gatekeepers delayed requests.");
    histogram(page, name, metrics, |worker| &worker.smockron.delays);
    let published = of(|smockron| &smockron.published);
    page.single("tollway_smockron_published_total", "counter", "Control messages published.", published);
    let name = "tollway_smockron_dropped_total";
    page.family(name, "counter", "Items dropped because of a full queue or lack of time, by kind.");
    for (what, count) in [
        ("accounting", of(|smockron| &smockron.overload)),
        ("control", of(|smockron| &smockron.lost)),
        ("delay", of(|smockron| &smockron.delays_forgotten)),
        ("topic", of(|smockron| &smockron.topics_refused)),
        ("statsd", of(|smockron| &smockron.statsd_lost)),
    ] {
        page.sample(name, &[("what", what)], count);
    }
    let help = "Connections closed because of a ZeroMQ protocol error.";
    page.single("tollway_smockron_broken_total", "counter", help, of(|smockron| &smockron.broken));
}

#[cfg(test)]
mod tests {
    use tollway::{Clock, Config};
    use tollway_core::{Decision, Timestamp};

    use super::*;

    fn page(policy: &str, count: impl FnOnce(&WorkerMetrics)) -> String {
        let config = Config::parse(policy, "policy.yaml").unwrap();
        let engine = Engine::open(config, Clock::manual(Timestamp::EPOCH)).unwrap();
        let metrics = Metrics::new(1);
        count(&metrics.workers[0]);
        encode(&metrics, &engine, &[], &AuditLog::default())
    }

    #[test]
    fn only_series_that_have_counted_something_are_written() {
        let policy = "limits: { Login: { burst: 5, count: 10, period: 1h }, Idle: { rate: 5/10s } }";
        let page = page(policy, |worker| {
            let _ = worker.limit("Idle");
            worker.limit("Login").spent(&Decision::new(Verdict::Deny, 0, Nanos::ZERO, Nanos::ZERO));
        });
        let decisions: Vec<_> =
            page.lines().filter(|line| line.starts_with("tollway_decisions_total")).collect();
        assert_eq!(decisions, [r#"tollway_decisions_total{limit="Login",verb="spend",outcome="deny"} 1"#]);
        assert!(page.contains("# TYPE tollway_refunds_total counter\n"));
        let info = r#"tollway_limit_info{limit="Login",algorithm="token_bucket",burst="5",count="10",period="3600"} 1"#;
        assert!(page.lines().any(|line| line == info), "{page}");
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let mut page = Page(String::new());
        page.sample("a", &[("b", "\\ \" \n é"), ("c", "")], 1);
        page.sample("d", &[], 2);
        assert_eq!(page.0, "a{b=\"\\\\ \\\" \\n é\",c=\"\"} 1\nd 2\n");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_described_on_linux() {
        let page = page("limits: {}", |_| {});
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_start_time_seconds",
        ] {
            let sample = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
            let value: f64 = sample.split(' ').nth(1).unwrap().parse().unwrap();
            // A short test may not have used a hundredth of a second.
            assert!(value > 0.0 || name.contains("cpu"), "{sample}");
        }
    }
}
