//! Runs what docs/envoy.md has for Istio and for Envoy Gateway in a real Envoy. These two put the values of the patches
//! into the configuration of Envoys; here a test does.

use std::net::SocketAddr;
use std::path::Path;

use super::{Envoy, application};
use crate::support::start_with;

const LIMITS: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: remote_address, rate_limit: { unit: hour, requests_per_unit: 4 } }
";

#[test]
fn the_patches_for_istio_limit_users_and_addresses() {
    let gate = start_with(LIMITS, |_| {});
    let [filter, host] = patch_values("Istio").try_into().expect("a filter, and a part of the virtual host");
    // Istio makes this cluster from the service.
    let cluster =
        cluster("outbound|8081||tollway.rate-limit.svc.cluster.local", gate.server.rls_addr().unwrap());
    let envoy = Envoy::run(|port| configuration(port, &filter, &host, &cluster));
    assert_eq!([(); 3].map(|()| envoy.status("/", "alice")), [200, 200, 429], "alice may ask twice");
    assert_eq!(
        [(); 3].map(|()| envoy.status("/", "bob")),
        [200, 200, 429],
        "her denied request took nothing"
    );
    assert_eq!(envoy.status("/", "carol"), 429, "the address has asked four times");
}

#[test]
fn the_patches_for_envoy_gateway_limit_addresses() {
    let gate = start_with(LIMITS, |_| {});
    let address = gate.server.rls_addr().unwrap();
    let [filter, limits, cluster] = patch_values("Envoy Gateway").try_into().expect("three patches");
    let host = format!("rate_limits:\n{}", indented(&limits, 2));
    let service = "address: tollway.rate-limit.svc, port_value: 8081";
    assert!(cluster.contains(service), "{cluster}");
    let local = format!("address: {}, port_value: {}", address.ip(), address.port());
    let cluster = cluster.replace(service, &local);
    let envoy = Envoy::run(|port| configuration(port, &filter, &host, &cluster));
    assert_eq!([(); 5].map(|()| envoy.status("/", "alice")), [200, 200, 200, 200, 429]);
}

/// Returns the values of the patches below a heading of the page, without their indentation.
fn patch_values(heading: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/envoy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with(&format!("{heading}\n"))).unwrap();
    let lines: Vec<&str> = section.lines().collect();
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let values = lines.iter().enumerate().filter(|(_, line)| line.trim() == "value:");
    values
        .map(|(at, line)| {
            let value = lines[at + 1..].iter().take_while(|next| indentation(next) > indentation(line));
            let outer = indentation(lines[at + 1]);
            value.map(|line| format!("{}\n", &line[outer..])).collect()
        })
        .collect()
}

/// Returns a configuration of Envoy with one filter before the router, one more cluster, and a virtual host that has
/// some fields besides its own.
fn configuration(port: u16, filter: &str, host: &str, cluster: &str) -> String {
    let (filter, host, cluster) = (item(filter, 18), indented(host, 22), item(cluster, 4));
    let filter = filter.replace("timeout: 0.25s", "timeout: 30s");
    let application = application().port();
    format!(
        r#"
static_resources:
  listeners:
    - name: web
      address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: web
                use_remote_address: true
                route_config:
                  virtual_hosts:
                    - name: web
                      domains: ["*"]
                      routes: [{{ match: {{ prefix: / }}, route: {{ cluster: application }} }}]
{host}
                http_filters:
{filter}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: application
      load_assignment:
        cluster_name: application
        endpoints:
          - lb_endpoints:
              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {application} }} }} }}
{cluster}
"#
    )
}

/// Returns a cluster for a service that speaks HTTP/2 at this address.
fn cluster(name: &str, address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        r#"name: {name}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: {{ http2_protocol_options: {{}} }}
load_assignment:
  cluster_name: {name}
  endpoints:
    - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }}
"#
    )
}

/// Returns lines of YAML as an item of a list.
fn item(yaml: &str, spaces: usize) -> String {
    let mut item = indented(yaml, spaces + 2);
    item.replace_range(spaces..=spaces, "-");
    item
}

fn indented(yaml: &str, spaces: usize) -> String {
    yaml.lines().map(|line| format!("{:spaces$}{line}\n", "")).collect()
}
