//! The dashboard and the alerts name only metrics that the server has, and Prometheus accepts them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_testbed::RedisServer;

use crate::support::start_limiter;

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/tollway.json");
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yaml");

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let redis = RedisServer::start();
    let policy =
        format!("limits: {{ Login: {{ burst: 5, count: 5, period: 1m }} }}\nstore: {}\n", redis.url());
    let limiter = Engine::open(Config::parse(&policy, "policy.yaml").unwrap(), Clock::monotonic()).unwrap();
    let server = start_limiter(limiter, |_| {});
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

    // A dashboard has no check of its own: what it asks is checked as rules. Grafana fills in the variables.
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let questions: Vec<_> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "5m"))
        .collect();
    assert!(questions.len() >= panels.len());
    let rules: Vec<_> = questions
        .iter()
        .enumerate()
        .map(|(index, expr)| serde_json::json!({ "record": format!("dashboard:{index}"), "expr": expr }))
        .collect();
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    // JSON is YAML.
    let groups = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(file.path(), groups.to_string()).unwrap();
    promtool(&["check", "rules"], file.path());
}

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn promtool(arguments: &[&str], file: &Path) {
    let output = Command::new("promtool").args(arguments).arg(file).output();
    let output = output.expect("promtool is installed; on Debian it is in the package prometheus");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
