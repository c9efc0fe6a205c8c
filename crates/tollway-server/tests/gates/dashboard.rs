//! The dashboard and the alerts name only metrics that the server has, and Prometheus accepts them. Each alert fires,
//! and the figures of the dashboard are right, also if only some of the metrics are there: a counter of the server
//! appears when it has counted something, and each request is counted once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_testbed::RedisServer;

use crate::support::start_limiter;
use crate::support::tls::TlsFiles;

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/tollway.json");
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yaml");

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let redis = RedisServer::start();
    let policy =
        format!("limits: {{ Login: {{ burst: 5, count: 5, period: 1m }} }}\nstore: {}\n", redis.url());
    let limiter = Engine::open(Config::parse(&policy, "policy.yaml").unwrap(), Clock::monotonic()).unwrap();
    let files = TlsFiles::new();
    let server =
        start_limiter(limiter, |settings| settings.gates.resp_access.tls = Some(files.settings(false)));
    let page = server.get("/metrics").body;
    let exposed: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for (file, text) in [("tollway.json", DASHBOARD), ("alerts.yaml", ALERTS)] {
        let named = metrics_in(text);
        assert!(named.len() >= 8, "{file} names {} metrics", named.len());
        let missing: Vec<_> = named.iter().filter(|name| !exposed.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{file} names metrics that /metrics does not have: {missing:?}\n{page}");
    }
}

/// Returns the names of metrics in a text. That of a histogram's buckets is the histogram's.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c: char| !is_name(c))
        .filter(|word| word.starts_with("tollway_") || word.starts_with("process_"))
        .map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned())
        .collect()
}

#[test]
fn prometheus_accepts_the_alerts_and_what_the_dashboard_asks() {
    promtool(&["check", "rules"], &packaging("prometheus/alerts.yaml"));

    // A dashboard has no check of its own: what it asks is checked as rules.
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let questions: Vec<_> =
        panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()).map(question).collect();
    assert!(questions.len() >= panels.len());
    let rules: Vec<_> = questions
        .iter()
        .enumerate()
        .map(|(index, expr)| json!({ "record": format!("dashboard:{index}"), "expr": expr }))
        .collect();
    let groups = json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    promtool(&["check", "rules"], written(&groups).path());
}

/// Returns what a target of the dashboard asks. Grafana fills in the variables.
fn question(target: &Value) -> String {
    target["expr"].as_str().unwrap().replace("$__rate_interval", "5m").replace("$instance", "a")
}

/// Writes a document of Prometheus. JSON is YAML.
fn written(document: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), document.to_string()).unwrap();
    file
}

/// Asserts that an expression has these samples after twenty minutes, if these are all series: each a name with labels,
/// and its values once a minute.
fn tested(series: &[(&str, &str)], expression: &str, samples: &[Value]) -> Value {
    let series: Vec<_> =
        series.iter().map(|(name, values)| json!({ "series": name, "values": values })).collect();
    let expected = json!({ "expr": expression, "eval_time": "20m", "exp_samples": samples });
    json!({ "interval": "1m", "input_series": series, "promql_expr_test": [expected] })
}

fn run_tests(tests: &[Value]) {
    let rules = packaging("prometheus/alerts.yaml").canonicalize().unwrap();
    let document = json!({ "rule_files": [rules], "evaluation_interval": "1m", "tests": tests });
    promtool(&["test", "rules"], written(&document).path());
}

#[test]
fn every_alert_fires_and_none_fires_on_a_calm_day() {
    let degraded = "tollway_degraded_total{instance='a',limit='Login'}";
    let degraded_rule = "tollway_rulings_degraded_total{instance='a',rule='upload'}";
    let decided = |outcome| {
        format!("tollway_decisions_total{{instance='a',limit='Login',verb='spend',outcome='{outcome}'}}")
    };
    let (allowed, denied) = (decided("allow"), decided("deny"));
    let timeouts = "tollway_store_timeouts_total{instance='a'}";
    let shed = "tollway_store_shed_total{instance='a'}";
    let (buckets, most) = ("tollway_buckets{instance='a'}", "tollway_buckets_max{instance='a'}");
    let full = "tollway_refused_full_total{instance='a'}";
    let failed = "tollway_reloads_total{instance='a',outcome='failed'}";
    let refused = "tollway_connections_refused_total{instance='a',gate='http',reason='gate'}";
    let expiry = "tollway_tls_certificate_expiry_timestamp_seconds{instance='a',gate='http'}";
    let up = "tollway_store_up{instance='a',node='r'}";
    let bad: [(&str, &[(&str, &str)]); 12] = [
        ("TollwayStoreUnreachable", &[(up, "0+0x30")]),
        ("TollwayDecidesWithoutStore", &[(degraded, "0+60x30")]),
        ("TollwayDecidesWithoutStore", &[(degraded_rule, "0+60x30")]),
        ("TollwayDecidesWithoutStore", &[(degraded, "0+60x30"), (degraded_rule, "0+60x30")]),
        ("TollwayStoreTimeouts", &[(timeouts, "0+120x30")]),
        ("TollwayShedsStoreCalls", &[(shed, "0+60x30")]),
        ("TollwayMemoryNearlyFull", &[(buckets, "91+0x30"), (most, "100+0x30")]),
        ("TollwayRefusesNewIds", &[(full, "0+60x30")]),
        ("TollwayReloadFailed", &[(failed, "0+1x30")]),
        // Seconds since 1970, as the time of the test: twenty minutes.
        ("TollwayCertificateExpires", &[(expiry, "600000+0x30")]),
        ("TollwayConnectionsRefused", &[(refused, "0+60x30")]),
        ("TollwayDeniesMost", &[(&allowed, "0+100x30"), (&denied, "0+120x30")]),
    ];
    let firing =
        |alert: &str| format!("count(ALERTS{{alertname=~'{alert}',alertstate='firing',instance='a'}})");
    let mut tests: Vec<_> = bad
        .iter()
        .map(|(alert, series)| tested(series, &firing(alert), &[json!({ "labels": "{}", "value": 1 })]))
        .collect();
    let named: BTreeSet<_> = ALERTS.lines().filter_map(|line| line.split("- alert: ").nth(1)).collect();
    assert_eq!(named, bad.iter().map(|(alert, _)| *alert).collect());
    let quiet = [degraded, degraded_rule, timeouts, shed, full, failed, refused].map(|name| (name, "5+0x30"));
    let used = [(&*allowed, "0+300x30"), (&denied, "0+120x30"), (buckets, "80+0x30"), (most, "100+0x30")];
    let calm = [&quiet[..], &used, &[(up, "1+0x30"), (expiry, "700000+0x30")]].concat();
    tests.push(tested(&calm, &firing(".*"), &[]));
    run_tests(&tests);
}

/// A bill is in the counters of several limits and rules, so the sum of those would have it several times.
#[test]
fn the_dashboard_counts_each_request_once() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let expression = |title: &str| {
        let mut panels = dashboard["panels"].as_array().unwrap().iter();
        question(&panels.find(|panel| panel["title"] == title).unwrap()["targets"][0])
    };
    let of_limit = "tollway_decisions_total{instance='a',limit='Login',verb='spend',outcome='allow'}";
    let of_rule = "tollway_rulings_total{instance='a',rule='upload',outcome='allow'}";
    let mut tests = Vec::new();
    for (title, requests) in [
        ("Allowed", "tollway_requests_total{instance='a',outcome='allow'}"),
        ("Denied", "tollway_requests_total{instance='a',outcome='deny'}"),
        ("Without the store", "tollway_requests_degraded_total{instance='a'}"),
    ] {
        let parts = [(of_limit, "0+60x30"), (of_rule, "0+60x30")];
        for (series, value) in [(&parts[..], 0), (&[parts[0], parts[1], (requests, "0+120x30")], 2)] {
            tests.push(tested(series, &expression(title), &[json!({ "labels": "{}", "value": value })]));
        }
    }
    run_tests(&tests);
}

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output();
    let output = output.expect("promtool is installed; on Debian it is in the package prometheus");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
