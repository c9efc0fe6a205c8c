//! Prints a configuration as it was understood, for `tollway validate`.
//!
//! ```text
//! store   memory, at most 10000000 buckets
//! gates   http 127.0.0.1:8080, admin 127.0.0.1:8082, text 127.0.0.1:2000, throttr off, resp off, smockron off, rls off
//! limits  3, 2 of them from descriptors of Envoy
//! keys    2 rules, 1 rewrite
//! rules   1
//! domains 1
//!
//! NewOrdersPerAccount             token_bucket  burst 300, 300 per 3h  one per 36s, full after 3h
//!   id number, bucket NewOrdersPerAccount:ID, on_full deny, on_store_failure allow
//!   NewOrdersPerAccount:12345678  token_bucket  burst 300, 600 per 3h  one per 18s, full after 1h30m
//!
//! rewrite 1  ip=10\.0\..*$  to cust=office
//! rule 1     ^ws global$    2500 per 10s, stats, on_full deny, on_store_failure allow
//! rule 2     .*             never over
//!
//! upload  Or('10/s', 'user:100/h')
//!   logs :upload, :upload:user:VALUE, on_full deny, on_store_failure allow
//!
//! web  1 per 1s after 10, 100 per 1h after 20
//!   logic window
//!
//! envoy domain shop, 3 descriptors: 2 limits
//!   route=login       no limit
//!     remote_address  5 per minute, shadow_mode
//!   account           30 per minute
//! ```

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::Path;

use tollway_core::descriptor::{ListedDescriptor, RateUnit, is_descriptor_limit};
use tollway_core::{
    AfterCrash, Algorithm, Domain, DomainRule, IdFormat, Ipv6Prefix, KeyLimit, KeyRule, Limit, LocalShare,
    Logic, NamedRule, Nanos, OnFull, OnStoreFailure, Policy,
};

use super::{
    Config, GateAccess, Gates, HostNames, HttpSettings, InlineAccess, OnInsert, SmockronGate, StoreUrl,
    ThrottrSettings, TrustedNetworks, WatchSettings,
};
#[cfg(feature = "journal")]
use crate::journal::{JournalSettings, JournalSync};
use crate::store::memory::MemoryBounds;

/// The widest column. A longer name sticks out of its column instead of widening it for every line.
const COLUMN_MAX: usize = 60;

/// Returns the store, the gates and the policy as text, with what follows from the numbers ("full after 3h").
pub fn describe(config: &Config) -> impl Display {
    fmt::from_fn(move |f| {
        let limits = config.policy.limits();
        writeln!(f, "store   {}", store(config))?;
        writeln!(f, "gates   {}", gates(&config.gates))?;
        if let Some(audit) = &config.audit {
            writeln!(f, "audit   {}", on_one_line(&audit.display().to_string()))?;
        }
        if let Some(otel) = &config.otel {
            writeln!(f, "otel    {}, sample {}", otel.endpoint, otel.sample)?;
        }
        if config.watch != WatchSettings::DEFAULT {
            writeln!(f, "watch   {}", watch(config.watch))?;
        }
        let of_descriptors = limits.iter().filter(|limit| is_descriptor_limit(limit.name())).count();
        let of_them = match of_descriptors {
            0 => String::new(),
            all if all == limits.len() => ", all from descriptors of Envoy".to_owned(),
            some => format!(", {some} of them from descriptors of Envoy"),
        };
        writeln!(f, "limits  {}{of_them}", limits.len())?;
        write!(f, "keys    {}", count_of(config.patterns.rules().len(), "rule"))?;
        match config.patterns.rewrites().len() {
            0 => writeln!(f)?,
            rewrites => writeln!(f, ", {}", count_of(rewrites, "rewrite"))?,
        }
        writeln!(f, "rules   {}", config.policy.rules().len())?;
        writeln!(f, "domains {}", config.policy.domains().len())?;
        let lines: Vec<_> = limits.iter().flat_map(lines_of).collect();
        let widths = [0, 1, 2].map(|column| width(&lines, column));
        lines.iter().try_for_each(|line| line.write(widths, f))?;
        write_keys(config, f)?;
        config.policy.rules().iter().try_for_each(|rule| write_rule(rule, f))?;
        config.policy.domains().iter().try_for_each(|domain| write_domain(domain, f))?;
        write_descriptors(&config.policy, f)
    })
}

/// Returns an algorithm as text, with what follows from its numbers:
/// `token_bucket, burst 5, 5 per 10s: one per 2s, full after 10s`.
pub fn describe_algorithm(algorithm: &Algorithm) -> impl Display {
    let (numbers, consequence) = describe_numbers(algorithm);
    format!("{}, {numbers}: {consequence}", algorithm.name())
}

/// Returns the numbers of an algorithm as text, for a column of a table: `burst 5, 5 per 10s`.
pub fn algorithm_numbers(algorithm: &Algorithm) -> String {
    describe_numbers(algorithm).0
}

/// Returns the numbers of a domain's rules as text: `1 per 1s after 10, 100 per 1h after 20`.
pub fn domain_numbers(domain: &Domain) -> String {
    let rule = |rule: &DomainRule| {
        let limit = rule.limit();
        format!("{} per {} after {}", limit.count(), span(limit.period()), limit.burst())
    };
    let rules: Vec<_> = domain.rules().iter().map(rule).collect();
    if rules.is_empty() { "nobody is delayed".to_owned() } else { rules.join(", ") }
}

fn store(config: &Config) -> String {
    match &config.store {
        StoreUrl::Memory => {
            let MemoryBounds { max_buckets, max_client_buckets } = config.memory_bounds;
            let client_made = max_client_buckets
                .map(|max_client_buckets| format!(", {max_client_buckets} made by clients"));
            let bounds = format!("at most {max_buckets} buckets{}", client_made.unwrap_or_default());
            #[cfg(feature = "journal")]
            if let Some(JournalSettings { dir, sync }) = &config.journal {
                let sync = match sync {
                    JournalSync::Never => "never".to_owned(),
                    JournalSync::Every(time) => span(*time),
                    JournalSync::Always => "always".to_owned(),
                };
                return format!("memory, journal in {}, sync {sync}, {bounds}", dir.display());
            }
            format!("memory, {bounds}")
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => {
            let (place, namespace, deadline) = (url.place(), &url.namespace, url.deadline);
            let files = [
                ("password_file", &url.password_file),
                ("tls_ca", &url.tls_ca),
                ("tls_cert", &url.tls_cert),
                ("tls_key", &url.tls_key),
            ];
            let files: String = files
                .into_iter()
                .filter_map(|(name, path)| Some(format!(", {name} {}", path.as_ref()?.display())))
                .collect();
            format!("{place}, namespace {namespace}, deadline {deadline:?}{}", on_one_line(&files))
        }
    }
}

fn watch(settings: WatchSettings) -> String {
    let WatchSettings { is_on, show_ids } = settings;
    format!("{}, show_ids {}", if is_on { "on" } else { "off" }, show_ids.name())
}

fn gates(gates: &Gates) -> String {
    let listens =
        |address: Option<SocketAddr>| address.map_or("off".to_owned(), |address| address.to_string());
    let tcp = |address: Option<SocketAddr>, of_gate: &GateAccess| {
        address.map_or("off".to_owned(), |address| address.to_string() + &access(of_gate))
    };
    let (http, text) = (tcp(gates.http, &gates.http_access), listens(gates.text));
    let throttr = tcp(gates.throttr, &gates.throttr_access);
    let trusted = trusted_networks(&gates.trusted_networks);
    let hmac = gates.text_hmac.as_ref().map_or_else(String::new, |hmac| {
        on_one_line(&format!(" (hmac {}, window {})", hmac.keys.display(), span(hmac.window)))
    });
    let http_settings = http_settings(&gates.http_settings);
    let settings = gates.throttr_settings;
    let on_insert = match settings.on_insert {
        OnInsert::Fail => "",
        OnInsert::Reset => " (on_insert reset)",
    };
    let max_ttl = match settings.max_ttl {
        default if default == ThrottrSettings::DEFAULT.max_ttl => String::new(),
        ttl => format!(" (max_ttl {})", span(ttl)),
    };
    let resp = tcp(gates.resp, &gates.resp_access);
    let inline = match gates.resp_inline {
        InlineAccess::Loopback => "",
        InlineAccess::Allow => " (inline allow)",
        InlineAccess::Deny => " (inline deny)",
    };
    let (admin, admin_hosts) = (tcp(gates.admin, &gates.admin_access), host_names(&gates.admin_hosts));
    let smockron = smockron(gates.smockron.as_ref());
    format!(
        "http {http}{http_settings}, admin {admin}{admin_hosts}, text {text}{trusted}{hmac}, throttr {throttr}{on_insert}{max_ttl}, resp {resp}{inline}, \
         smockron {smockron}, rls {}",
        tcp(gates.rls, &gates.rls_access)
    )
}

/// Returns the files of a gate's certificate and of its tokens.
fn access(access: &GateAccess) -> String {
    let GateAccess { tls, tokens } = access;
    let mut text = String::new();
    let mut file = |name: &str, path: &Path| text += &on_one_line(&format!(" ({name} {})", path.display()));
    if let Some(tls) = tls {
        file("tls", &tls.cert);
        tls.client_ca.iter().for_each(|path| file("client_ca", path));
    }
    tokens.iter().for_each(|path| file("tokens", path));
    text
}

/// Returns the settings of the HTTP gate that are not the default.
fn http_settings(settings: &HttpSettings) -> String {
    let HttpSettings { trusted_proxies, inline, throttlecrab, gate_off, hosts } = settings;
    let mut text = String::new();
    if !trusted_proxies.is_empty() {
        let networks: Vec<_> = trusted_proxies.iter().map(ToString::to_string).collect();
        text += &format!(" (trusted_proxies {})", networks.join(" "));
    }
    text += match inline {
        InlineAccess::Loopback => "",
        InlineAccess::Allow => " (inline allow)",
        InlineAccess::Deny => " (inline deny)",
    };
    text += if *throttlecrab { " (throttlecrab)" } else { "" };
    text += if *gate_off { " (gate off)" } else { "" };
    text + &host_names(hosts)
}

fn host_names(hosts: &HostNames) -> String {
    if hosts.is_empty() { String::new() } else { format!(" (hosts {hosts})") }
}

fn smockron(gate: Option<&SmockronGate>) -> String {
    let Some(gate) = gate else { return "off".to_owned() };
    let control = gate.control().map(|control| format!(" (control {control})")).unwrap_or_default();
    let statsd =
        gate.statsd.as_ref().map(|statsd| format!(" (statsd {})", on_one_line(statsd))).unwrap_or_default();
    format!("{}{control}{statsd}{}", gate.accounting, trusted_networks(&gate.trusted_networks))
}

fn trusted_networks(networks: &TrustedNetworks) -> String {
    if *networks == TrustedNetworks::LOCAL {
        String::new()
    } else {
        format!(" (trusted_networks {networks})")
    }
}

/// Returns a number and a noun that agrees with it: `1 rule`, `2 rules`.
fn count_of(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Writes the rewrites and the rules for keys, each with its number and its pattern.
fn write_keys(config: &Config, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rows = Vec::new();
    for (index, rewrite) in config.patterns.rewrites().iter().enumerate() {
        let replaces = format!("to {}", on_one_line(rewrite.replacement()));
        rows.push([format!("rewrite {}", index + 1), on_one_line(rewrite.pattern().as_str()), replaces]);
    }
    let rules = config.policy.keys().rules();
    for (index, (rule, pattern)) in rules.iter().zip(config.patterns.rules()).enumerate() {
        rows.push([
            format!("rule {}", index + 1),
            on_one_line(pattern.as_str()),
            describe_key_limit(rule, &config.policy),
        ]);
    }
    if !rows.is_empty() {
        writeln!(f)?;
    }
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.filter(|width| *width <= COLUMN_MAX).max().unwrap_or_default()
    };
    let (number, pattern) = (width(0), width(1));
    rows.iter().try_for_each(|[a, b, c]| writeln!(f, "{a:number$}  {b:pattern$}  {c}"))
}

/// Writes a rule in its canonical form, and the names of its logs.
fn write_rule(rule: &NamedRule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let limit = rule.keyed().limit();
    writeln!(f, "\n{}  {}", rule.name(), limit.rule())?;
    let bill =
        rule.keyed().bill(|_| Ok::<_, Infallible>(Some("VALUE"))).unwrap_or_else(|never| match never {});
    let logs: Vec<_> = bill.identifiers().iter().flatten().map(|name| &**name).collect();
    let logs = if logs.is_empty() { "none".to_owned() } else { logs.join(", ") };
    let (full, failure) = (on_full_name(limit.on_full()), on_store_failure_name(limit.on_store_failure()));
    writeln!(f, "  logs {logs}, on_full {full}, on_store_failure {failure}")
}

/// Writes a domain, with its rules as numbers of requests.
fn write_domain(domain: &Domain, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rules = domain_numbers(domain);
    let logic = match domain.logic() {
        Logic::Window => "window",
        Logic::Gcra => "gcra",
    };
    writeln!(f, "\n{}  {rules}\n  logic {logic}", on_one_line(domain.name()))
}

/// Writes the descriptors of each domain of Envoy as a tree, with their limits.
fn write_descriptors(policy: &Policy, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let tree = policy.descriptors();
    let mut domains: Vec<_> = tree.domains().collect();
    domains.sort_unstable();
    for domain in domains {
        let modes = [(tree.shadow_mode, ", shadow_mode"), (tree.quota_mode, ", quota_mode")];
        let modes: String = modes.into_iter().filter(|(is_set, _)| *is_set).map(|(_, mode)| mode).collect();
        let listed = tree.list(domain);
        let descriptors = count_of(listed.len(), "descriptor");
        let counts = descriptor_counts(&listed);
        writeln!(f, "\nenvoy domain {}, {descriptors}: {counts}{modes}", on_one_line(domain))?;
        let rows: Vec<_> = listed.iter().map(|listed| describe_descriptor(listed, policy)).collect();
        let widths = rows.iter().map(|[path, _]| path.chars().count());
        let width = widths.filter(|width| *width <= COLUMN_MAX).max().unwrap_or_default();
        rows.iter().try_for_each(|[path, limit]| writeln!(f, "{path:width$}  {limit}"))?;
    }
    Ok(())
}

/// Returns how many descriptors have a limit that counts, and how many are always or never allowed, which count
/// nothing: `2 limits, 1 unlimited`.
fn descriptor_counts(listed: &[ListedDescriptor<'_>]) -> String {
    let rates = || listed.iter().filter_map(|listed| listed.shown).map(|shown| shown.rate);
    let limits = rates().filter(|rate| matches!(rate, Some((1.., _)))).count();
    let unlimited = rates().filter(Option::is_none).count();
    let refusing = rates().filter(|rate| matches!(rate, Some((0, _)))).count();
    let mut counts = count_of(limits, "limit");
    if unlimited > 0 {
        counts += &format!(", {unlimited} unlimited");
    }
    match refusing {
        0 => {}
        1 => counts += ", 1 refuses all",
        more => counts += &format!(", {more} refuse all"),
    }
    counts
}

/// Returns a descriptor, indented by its depth, and its limit in words.
fn describe_descriptor(listed: &ListedDescriptor<'_>, policy: &Policy) -> [String; 2] {
    let value = if listed.value.is_empty() { String::new() } else { format!("={}", listed.value) };
    let path = format!("{:indent$}{}{value}", "", listed.key, indent = 2 * (listed.depth + 1));
    let Some(shown) = listed.shown else { return [on_one_line(&path), "no limit".to_owned()] };
    let mut limit = match shown.rate {
        None => "unlimited".to_owned(),
        Some((0, _)) => "refuses all".to_owned(),
        Some((requests, RateUnit::Span(period))) => per(requests, period),
        Some((requests, unit)) => format!("{requests} per {}", unit.name().to_lowercase()),
    };
    match listed.place.and_then(|place| policy.limits()[place].default_algorithm()) {
        None | Some(Algorithm::FixedWindow(_)) => {}
        Some(Algorithm::TokenBucket(bucket)) => limit += &format!(", token_bucket, burst {}", bucket.burst()),
        Some(algorithm) => limit += &format!(", {}", algorithm.name()),
    }
    if !shown.name.is_empty() {
        limit += &format!(", name {}", shown.name);
    }
    if !shown.replaces.is_empty() {
        limit += &format!(", replaces {}", shown.replaces.join(" "));
    }
    for (is_set, mode) in [
        (listed.shares_threshold, "share_threshold"),
        (shown.shadow_mode, "shadow_mode"),
        (shown.quota_mode, "quota_mode"),
        (listed.detailed_metric, "detailed_metric"),
        (listed.value_to_metric, "value_to_metric"),
    ] {
        if is_set {
            limit += &format!(", {mode}");
        }
    }
    [on_one_line(&path), on_one_line(&limit)]
}

/// Escapes control characters, so that the text stays on one line.
fn on_one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

fn describe_key_limit(rule: &KeyRule, policy: &Policy) -> String {
    let stats = if rule.stats { ", stats" } else { "" };
    match rule.limit {
        KeyLimit::Never => format!("never over{stats}"),
        KeyLimit::Use { limit } => format!("uses {}{stats}", policy.limits()[limit].name()),
        KeyLimit::Rate { limit, on_full, on_store_failure } => {
            let strict = if limit.strict() { ", strict" } else { "" };
            let per = per(limit.limit(), limit.period());
            let failure = on_store_failure_name(on_store_failure);
            format!("{per}{strict}{stats}, on_full {}, on_store_failure {failure}", on_full_name(on_full))
        }
    }
}

enum DescribedLine {
    /// A row that has a name, an algorithm, its numbers, and what follows from them.
    Row([String; 4]),
    /// A line that does not take part in the columns.
    Note(String),
}

impl DescribedLine {
    fn write(&self, [name, algorithm, numbers]: [usize; 3], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row([a, b, c, d]) => writeln!(f, "{a:name$}  {b:algorithm$}  {c:numbers$}  {d}"),
            Self::Note(note) => writeln!(f, "{note}"),
        }
    }
}

fn width(lines: &[DescribedLine], column: usize) -> usize {
    let cells = lines.iter().filter_map(|line| match line {
        DescribedLine::Row(cells) => Some(cells[column].chars().count()),
        DescribedLine::Note(_) => None,
    });
    cells.filter(|width| *width <= COLUMN_MAX).max().unwrap_or_default()
}

fn lines_of(limit: &Limit) -> Vec<DescribedLine> {
    let name = limit.name().to_owned();
    let mut lines = vec![DescribedLine::Note(String::new())];
    lines.push(match limit.default_algorithm() {
        Some(algorithm) => row(name, algorithm),
        None => {
            let [algorithm, numbers, except] =
                ["unlimited", "", "except for its overrides"].map(str::to_owned);
            DescribedLine::Row([name, algorithm, numbers, except])
        }
    });
    lines.push(DescribedLine::Note(format!("  {}", settings(limit))));
    let mut overrides: Vec<_> = limit.overrides().collect();
    overrides.sort_unstable_by_key(|(id, _)| *id);
    lines.extend(
        overrides.into_iter().map(|(id, algorithm)| row(format!("  {}", limit.bucket_key(id)), algorithm)),
    );
    lines
}

fn row(name: String, algorithm: &Algorithm) -> DescribedLine {
    let (numbers, consequence) = describe_numbers(algorithm);
    DescribedLine::Row([name, algorithm.name().to_owned(), numbers, consequence])
}

/// Returns the numbers of an algorithm as text, and what follows from them.
fn describe_numbers(algorithm: &Algorithm) -> (String, String) {
    match algorithm {
        Algorithm::TokenBucket(limit) => {
            // Not the fill time, which is made of whole intervals: 10 s of 3 tokens would be 9.999999999 s.
            let exact =
                u128::from(limit.burst()) * u128::from(limit.period().get()) / u128::from(limit.count());
            let exact = Nanos::new(u64::try_from(exact).unwrap_or(u64::MAX));
            let (each, full) = (span(limit.emission_interval()), span(exact));
            let per = per(limit.count(), limit.period());
            (format!("burst {}, {per}", limit.burst()), format!("one per {each}, full after {full}"))
        }
        Algorithm::SlidingLog(limit) => {
            (per(limit.count(), limit.period()), format!("in any {}", span(limit.period())))
        }
        Algorithm::SmoothedRate(limit) => {
            let denied = if limit.strict() {
                "strict: what is denied counts"
            } else {
                "what is denied does not count"
            };
            (per(limit.limit(), limit.period()), denied.to_owned())
        }
        Algorithm::Quota(limit) => {
            (per(limit.count(), limit.period()), format!("in {} from the first", span(limit.period())))
        }
        Algorithm::FixedWindow(limit) => {
            let shift = match limit.offset() {
                Nanos::ZERO => String::new(),
                offset => format!(", shifted by {}", span(offset)),
            };
            let windows = format!("in each {} of the clock{shift}", span(limit.period()));
            (per(limit.count(), limit.period()), windows)
        }
        Algorithm::SlidingWindow(limit) => {
            (per(limit.count(), limit.period()), format!("in the last {}, estimated", span(limit.period())))
        }
    }
}

fn per(count: impl Display, period: Nanos) -> String {
    format!("{count} per {}", span(period))
}

fn settings(limit: &Limit) -> String {
    let on_full = on_full_name(limit.on_full());
    let on_store_failure = on_store_failure_name(limit.on_store_failure());
    let (id, bucket) = (limit.ids().name(), limit.bucket_key(b"ID"));
    let prefix = match limit.ids() {
        IdFormat::Ip(prefix) if prefix != Ipv6Prefix::default() => {
            format!(" (ipv6_prefix {})", prefix.bits())
        }
        _ => String::new(),
    };
    let strict = if limit.after_crash() == AfterCrash::Strict { ", after_crash strict" } else { "" };
    format!(
        "id {id}{prefix}, bucket {bucket}, on_full {on_full}, on_store_failure {on_store_failure}{strict}"
    )
}

const fn on_full_name(on_full: OnFull) -> &'static str {
    match on_full {
        OnFull::Deny => "deny",
        OnFull::Allow => "allow",
    }
}

fn on_store_failure_name(on_store_failure: OnStoreFailure) -> String {
    match on_store_failure {
        OnStoreFailure::Allow => "allow".to_owned(),
        OnStoreFailure::Deny => "deny".to_owned(),
        OnStoreFailure::Local(LocalShare::WHOLE) => "local".to_owned(),
        OnStoreFailure::Local(share) => format!("local (local_share {share})"),
    }
}

/// Writes a duration as a person would, exact to the nanosecond: `1h30m`, `50ms`, `333.333333ms`.
fn span(span: Nanos) -> String {
    const UNITS: [(u64, usize, &str); 4] =
        [(1_000_000_000, 9, "s"), (1_000_000, 6, "ms"), (1_000, 3, "us"), (1, 0, "ns")];
    let (hours, rest) = (span.get() / 3_600_000_000_000, span.get() % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let mut text = String::new();
    for (number, unit) in [(hours, "h"), (minutes, "m")] {
        if number > 0 {
            text += &format!("{number}{unit}");
        }
    }
    if rest > 0 || text.is_empty() {
        let (size, digits, unit) = UNITS.into_iter().find(|(size, ..)| rest >= *size).unwrap_or(UNITS[0]);
        text += &decimal(rest / size, rest % size, digits);
        text += unit;
    }
    text
}

/// Writes `whole.fraction` without zeros at the end.
fn decimal(whole: u64, fraction: u64, digits: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    format!("{whole}.{fraction:0digits$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway_core::algorithm::TokenBucket;

    use super::*;

    #[test]
    fn a_bucket_is_full_after_the_time_of_its_numbers() {
        for (burst, count, secs, expected) in
            [(3, 3, 10, "10s"), (1, 3, 10, "3.333333333s"), (300, 300, 10_800, "3h")]
        {
            let numbers = TokenBucket::new(burst, count, Duration::from_secs(secs)).unwrap();
            let (_, consequence) = describe_numbers(&Algorithm::TokenBucket(numbers));
            assert!(consequence.ends_with(&format!(", full after {expected}")), "{consequence}");
        }
    }

    #[test]
    fn spans_read_well_and_parse_back() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (50_000_000, "50ms"),
            (333_333_333, "333.333333ms"),
            (1_500, "1.5us"),
            (1_500_000_000, "1.5s"),
            (36_000_000_000, "36s"),
            (5_400_000_000_000, "1h30m"),
            (10_800_000_000_000, "3h"),
            (3_600_000_000_001, "1h1ns"),
            (90_000_000_000, "1m30s"),
            (i64::MAX as u64, "2562047h47m16.854775807s"),
        ] {
            let text = span(Nanos::new(nanos));
            assert_eq!(text, expected);
            assert_eq!(text.parse(), Ok(Nanos::new(nanos)));
        }
    }
}
