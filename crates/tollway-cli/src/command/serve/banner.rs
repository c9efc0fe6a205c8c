//! The lines that the server prints when it has started: what listens where, and commands to try.

use std::env;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use tollway::config::{GateAccess, Gates, StoreUrl};
use tollway::core::{IdFormat, Limit, Policy};
use tollway::engine::Engine;
use tollway_server::Server;

/// Returns the banner. `from` is where the policy was read.
pub(super) fn banner(
    limiter: &Engine,
    from: &str,
    store: &StoreUrl,
    journal: Option<&Path>,
    gates: &Gates,
    server: &Server,
) -> String {
    let policy = limiter.policy();
    let buckets = match store {
        StoreUrl::Memory => {
            let journal = journal.map(|dir| format!(", kept in {}", dir.display())).unwrap_or_default();
            format!("at most {} buckets in memory{journal}", limiter.stats().max_buckets)
        }
        store => format!("buckets in {store}"),
    };
    let mut text =
        format!("tollway {}\n  {} from {from}\n  {buckets}\n", env!("CARGO_PKG_VERSION"), counts(&policy));
    let mut line = |line: String| text.push_str(&format!("  {line}\n"));
    if let Some(address) = server.http_addr() {
        line(format!("http     {}://{address}", scheme("http", &gates.http_access)));
    }
    line(format!("admin    {}", admin(gates, server)));
    if let Some(address) = server.text_addr() {
        line(format!("text     udp {address}"));
    }
    if let Some(address) = server.throttr_addr() {
        line(format!("throttr  tcp {address}{}", tls(&gates.throttr_access)));
    }
    if let Some(address) = server.resp_addr() {
        line(format!("resp     {}://{address}", scheme("redis", &gates.resp_access)));
    }
    if let (Some(accounting), Some(control)) = (server.smockron_addr(), server.smockron_control_addr()) {
        line(format!("smockron zmq tcp://{accounting}, control tcp://{control}"));
    }
    if let Some(address) = server.rls_addr() {
        line(format!("rls      grpc {address}{}", tls(&gates.rls_access)));
    }
    let examples = examples(&policy, gates, server);
    if !examples.is_empty() {
        let _ = write!(text, "Try:\n  {}\n", examples.join("\n  "));
    }
    text
}

/// Returns where operators find their paths: at a gate of their own, at the HTTP gate on loopback, or nowhere.
fn admin(gates: &Gates, server: &Server) -> String {
    match (server.admin_addr(), server.http_addr()) {
        (Some(address), _) => format!("{}://{address}", scheme("http", &gates.admin_access)),
        (None, Some(address)) if address.ip().is_loopback() => {
            let scheme = scheme("http", &gates.http_access);
            format!("no gate of its own; its paths and the console are at {scheme}://{address}")
        }
        (None, _) => {
            format!(
                "off; its paths and the console are nowhere, unless started with --admin {}",
                Gates::ADMIN
            )
        }
    }
}

/// Returns the scheme of the URLs of a gate, which has an `s` at its end for TLS.
fn scheme(plain: &str, access: &GateAccess) -> String {
    format!("{plain}{}", if access.tls.is_some() { "s" } else { "" })
}

/// Returns what the line of a gate without URLs has for TLS.
fn tls(access: &GateAccess) -> &'static str {
    if access.tls.is_some() { ", TLS" } else { "" }
}

/// Returns what the policy has: `3 limits, 1 rule and 2 keys`. Only limits are mentioned if there are none.
fn counts(policy: &Policy) -> String {
    let counted = |(n, noun): (usize, &str)| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let others = [
        (policy.rules().len(), "rule"),
        (policy.domains().len(), "domain"),
        (policy.keys().rules().len(), "key"),
        (policy.descriptors().domains().len(), "Envoy domain"),
    ];
    let others = others.into_iter().filter(|(n, _)| *n > 0);
    let mut parts: Vec<_> =
        std::iter::once((policy.limits().len(), "limit")).chain(others).map(counted).collect();
    match parts.pop() {
        Some(last) if !parts.is_empty() => format!("{} and {last}", parts.join(", ")),
        only => only.unwrap_or_default(),
    }
}

/// Returns commands that work with what is configured and listens. A gate with TLS has none, because they would need
/// the files of the client.
fn examples(policy: &Policy, gates: &Gates, server: &Server) -> Vec<String> {
    let (program, mut examples) = (program(), Vec::new());
    let asks_for_token = gates.http_access.tokens.is_some();
    // By its standard input: everybody on a machine can see the arguments of a program.
    let (send, config) = if asks_for_token {
        (r#"printf 'header = "Authorization: Bearer %s"' "$TOLLWAY_TOKEN" | "#, "--config - ")
    } else {
        ("", "")
    };
    // The limits of descriptors come last, and are asked by descriptors.
    let limit = policy.limits().iter().find(|limit| !limit.name().contains('/'));
    let plain = |address: Option<SocketAddr>, access: &GateAccess| address.filter(|_| access.tls.is_none());
    let http = plain(server.http_addr(), &gates.http_access);
    if let (Some(address), Some(limit)) = (http, limit) {
        let body = format!(r#"{{"limit":"{}","id":"{}"}}"#, limit.name(), example_id(limit));
        examples.push(format!("{send}curl {config}--json '{body}' http://{address}/v1/spend"));
    }
    if let (Some(address), Some(rule)) = (http, policy.rules().first()) {
        let logs = rule.keyed().limit().rule().logs().iter();
        let selectors: Vec<_> =
            logs.filter_map(|log| Some(format!(r#""{}":"alice""#, log.selector()?))).collect();
        let body = format!(r#"{{"selectors":{{{}}}}}"#, selectors.join(","));
        examples
            .push(format!("{send}curl {config}--json '{body}' http://{address}/v1/rules/{}", rule.name()));
    }
    if let (Some(address), false) = (server.text_addr(), policy.keys().rules().is_empty()) {
        examples.push(format!("{program} text --addr {address} 'over_limit ws global'"));
    }
    if let Some(address) = plain(server.resp_addr(), &gates.resp_access) {
        let command = match limit {
            _ if gates.resp_inline.is_allowed_at(address) => Some("CL.THROTTLE alice 15 30 60".to_owned()),
            Some(limit) => Some(format!("TOLL SPEND {} {}", limit.name(), example_id(limit))),
            None => None,
        };
        let (ip, port) = (address.ip(), address.port());
        let host = if ip.is_loopback() || ip.is_unspecified() { String::new() } else { format!("-h {ip} ") };
        let password = if gates.resp_access.tokens.is_some() { "REDISCLI_AUTH=$TOLLWAY_TOKEN " } else { "" };
        examples.extend(command.map(|command| format!("{password}redis-cli {host}-p {port} {command}")));
    }
    if let Some(address) = plain(server.throttr_addr(), &gates.throttr_access) {
        examples.push(format!("{program} throttr insert alice api --quota 5 --ttl 10s --addr {address}"));
    }
    examples
}

/// Returns how this program was started, for commands that can be copied.
fn program() -> String {
    // Cargo sets this for what it runs, and for nothing else.
    if env::var_os("CARGO_PKG_NAME").is_some_and(|name| name == env!("CARGO_PKG_NAME")) {
        let profile = if cfg!(debug_assertions) { "" } else { " --release" };
        return format!("cargo run{profile} --");
    }
    env::args().next().unwrap_or_else(|| "tollway".to_owned())
}

/// Returns an id that the limit accepts.
fn example_id(limit: &Limit) -> &'static str {
    match limit.ids() {
        IdFormat::Any => "alice",
        IdFormat::Ip(_) | IdFormat::IpAddress => "192.0.2.1",
        IdFormat::Ipv6Range => "2001:db8:1::/48",
        IdFormat::RegId => "12345678",
        IdFormat::Domain => "example.com",
        IdFormat::FqdnSet => "example.com,example.org",
        IdFormat::RegIdDomain => "12345678:example.com",
        IdFormat::RegIdFqdnSet => "12345678:example.com,example.org",
    }
}
