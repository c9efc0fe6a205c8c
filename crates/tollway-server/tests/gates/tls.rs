//! TLS and client certificates, with real clients, and with clients that mean no good.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rustls::{HandshakeKind, ProtocolVersion};
use tollway::config::{GateAccess, TlsSettings};
use tollway_client::ClientError;
use tollway_client::http::{Client, blocking};
use tollway_client::tls::Tls;
use tollway_core::ErrorChain;
use tollway_server::check_tls_files;
use tollway_testbed::{CertificateFiles, TEST_TIMEOUT, eventually};
use tollway_wire::throttr::{ThrottrCommand, encode_request};

use crate::support::rls::{RlsClient, request};
use crate::support::tls::{Secured, TlsClient, TlsFiles, TlsHarness, start_mtls, start_tls, start_tls_with};
use crate::support::{POLICY, start_with};

/// A deadline that a test can wait for.
const SHORT: Duration = Duration::from_millis(100);
const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Runs curl with a request that spends, twice over one connection.
fn curl(server: &TlsHarness, arguments: &[&str]) -> Output {
    let url = format!("https://localhost:{}/v1/spend", server.http().port());
    let authority = text(server.files.certificates.authority());
    let fixed =
        ["--silent", "--show-error", "--cacert", authority, "--json", r#"{"limit":"Login","id":"curl"}"#];
    let told = "\n%{http_code} %{http_version} %{num_connects}\n";
    let mut command = Command::new("curl");
    command.args(fixed).args(arguments).args(["--write-out", told, &url, &url]);
    command.output().expect("curl is installed")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asks for the health of the server, and returns the answer.
fn ask_health(stream: &mut Secured) -> String {
    stream.write_all(HEALTH.as_bytes()).unwrap();
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[test]
fn curl_asks_over_each_version_and_keeps_its_connection() {
    let server = start_tls(|_| {});
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let Output { status, stdout, stderr } = curl(&server, version);
        let printed = String::from_utf8_lossy(&stdout);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        assert!(printed.contains("\n200 1.1 1\n") && printed.contains("\n200 1.1 0\n"), "{printed}");
    }
    assert_eq!(server.handshakes("ok"), 2);
}

#[test]
fn every_gate_over_tcp_speaks_tls() {
    let server = start_tls(|_| {});
    let (gates, client) = (&server.gate.server, server.files.client());
    for address in [gates.http_addr(), gates.admin_addr()] {
        let answer = client.get(address.unwrap(), "/healthz").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let port = gates.resp_addr().unwrap().port().to_string();
    let replied = Command::new("redis-cli")
        .args(["-h", "localhost", "-p", &port, "--tls"])
        .args(["--cacert", text(server.files.certificates.authority())])
        .args(["CL.THROTTLE", "user", "15", "30", "60"])
        .output()
        .expect("redis-cli is installed");
    assert_eq!(String::from_utf8_lossy(&replied.stdout), "0\n16\n15\n-1\n2\n", "{replied:?}");
    let mut throttr = client.connect(gates.throttr_addr().unwrap()).unwrap();
    let (mut query, mut reply) = (Vec::new(), [0; 5]);
    encode_request(7, &ThrottrCommand::Query, b"nobody", b"r", &mut query).unwrap();
    throttr.write_all(&query).unwrap();
    throttr.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [7, 0, 0, 0, 0], "there is no such pair");
}

#[test]
fn our_clients_ask_over_tls() {
    let server = start_mtls(|_| {});
    let certificates = &server.files.certificates;
    let alice = certificates.sign_client("alice");
    let trusting = || Tls::trusting_file(certificates.authority()).unwrap();
    let url = format!("https://localhost:{}", server.http().port());
    let client = Client::with_timeout(&url, TEST_TIMEOUT).unwrap();
    let blocking = blocking::Client::with_timeout(&url, TEST_TIMEOUT).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let tls = trusting().with_identity(&alice.cert, &alice.key).unwrap();
    let with_identity = (client.clone().with_tls(tls.clone()), blocking.clone().with_tls(tls));
    for remaining in [(4, 3), (2, 1)] {
        let asked = runtime.block_on(with_identity.0.spend("Login", "alice", 1)).unwrap();
        let blocked = with_identity.1.spend("Login", "alice", 1).unwrap();
        assert_eq!((asked.remaining, blocked.remaining), remaining);
    }
    assert_eq!(server.handshakes("ok"), 2, "connections are kept");

    let bare = format!("localhost:{}", server.http().port());
    let tls = trusting().with_identity(&alice.cert, &alice.key).unwrap();
    let bare_client = Client::with_timeout(&bare, TEST_TIMEOUT).unwrap().with_tls(tls.clone());
    let bare_blocking = blocking::Client::with_timeout(&bare, TEST_TIMEOUT).unwrap().with_tls(tls);
    assert!(runtime.block_on(bare_client.spend("Login", "carol", 1)).unwrap().allowed());
    assert!(
        bare_blocking.spend("Login", "carol", 1).unwrap().allowed(),
        "no plain text without https:// either"
    );

    let (client, blocking) = (client.with_tls(trusting()), blocking.with_tls(trusting()));
    for error in [
        runtime.block_on(client.spend("Login", "bob", 1)).unwrap_err(),
        blocking.spend("Login", "bob", 1).unwrap_err(),
    ] {
        let said = ErrorChain(&error).to_string();
        assert!(matches!(error, ClientError::Tls { .. }), "{error:?}");
        assert!(said.contains("check the certificates") && said.contains("CertificateRequired"), "{said}");
    }
    let others = TlsFiles::new();
    let stranger = Tls::trusting_file(others.certificates.authority()).unwrap();
    let error = blocking.with_tls(stranger).spend("Login", "bob", 1).unwrap_err();
    assert!(matches!(error, ClientError::Tls { .. }), "{error:?}");
}

#[test]
fn a_proxy_asks_over_tls() {
    let policy = "
domain: shop
descriptors:
- {key: account, rate_limit: {unit: minute, requests_per_unit: 3}}
";
    let server = start_tls_with(policy, false, |_| {});
    let client = RlsClient::tls(server.gate.server.rls_addr().unwrap(), &server.files.certificates, None);
    let codes = [(); 4].map(|()| client.ask(request("shop", &[("account", "alice")])).unwrap().overall_code);
    assert_eq!(codes, [1, 1, 1, 2]);
}

#[test]
fn plain_text_gets_no_answer() {
    let server = start_tls(|_| {});
    let answer = server.gate.exchange(HEALTH.as_bytes());
    assert!(!answer.contains("HTTP"), "{answer}");
    eventually("a failed handshake", || server.handshakes("failed") == 1);
}

#[test]
fn clients_need_a_certificate_that_is_valid_and_of_a_known_authority() {
    let server = start_mtls(|_| {});
    let (certificates, others) = (&server.files.certificates, TlsFiles::new());
    let good = certificates.sign_client("alice");
    let expired = certificates.sign_expired_client("bob");
    let foreign = others.certificates.sign_client("mallory");
    let asked = |identity: Option<&CertificateFiles>| {
        TlsClient::new(certificates.authority(), identity).get(server.http(), "/healthz")
    };
    assert!(asked(Some(&good)).unwrap().starts_with("HTTP/1.1 200 "));
    for (failed, (who, identity, alert)) in (1..).zip([
        ("nobody", None, "CertificateRequired"),
        ("an expired certificate", Some(&expired), "CertificateExpired"),
        // The authority has the same name, and another key.
        ("a stranger", Some(&foreign), "DecryptError"),
    ]) {
        let error = asked(identity).unwrap_err().to_string();
        assert!(error.contains(alert), "{who}: {error}");
        eventually("a failed handshake", || server.handshakes("failed") == failed);
    }
    let gates = &server.gate.server;
    for address in [gates.admin_addr(), gates.resp_addr(), gates.throttr_addr(), gates.rls_addr()] {
        let bob = TlsClient::new(certificates.authority(), Some(&expired));
        let error = bob.get(address.unwrap(), "/healthz").unwrap_err().to_string();
        assert!(error.contains("CertificateExpired"), "{error}");
    }
    let [cert, key] = [&good.cert, &good.key].map(|path| text(path).to_owned());
    assert!(curl(&server, &["--cert", &cert, "--key", &key]).status.success());
    assert!(!curl(&server, &[]).status.success());
}

#[test]
fn the_audit_log_names_the_certificate_of_a_client() {
    let policy = format!(
        "{POLICY}domain: shop\ndescriptors: [{{key: account, rate_limit: {{unit: hour, requests_per_unit: 3}}}}]\n"
    );
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let server = start_tls_with(&policy, true, |settings| settings.audit = Some(audit.clone()));
    let certificates = &server.files.certificates;
    let identities = ["alice", "bob", "envoy"].map(|name| certificates.sign_client(name));
    let [alice, bob, envoy] = &identities;
    let send = |identity: &CertificateFiles, address: Option<SocketAddr>, request: &str| {
        let client = TlsClient::new(certificates.authority(), Some(identity));
        let mut stream = client.connect(address.unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let gates = &server.gate.server;
    let body = r#"{"limit":"Login","id":"a"}"#;
    let head =
        "POST /v1/refund HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
    let answer =
        send(alice, gates.http_addr(), &format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // RESET ends everything that a connection has, but not who it is.
    let answer = send(bob, gates.resp_addr(), "RESET\r\nTOLL REFUND Login a\r\nQUIT\r\n");
    assert!(answer.starts_with("+RESET\r\n*8\r\n"), "{answer}");
    let mut give_back = request("shop", &[("account", "a")]);
    give_back.descriptors[0].is_negative_hits = true;
    RlsClient::tls(gates.rls_addr().unwrap(), certificates, Some(envoy)).ask(give_back).unwrap();
    drop(server.gate);
    let lines = fs::read_to_string(&audit).unwrap();
    let who = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["who"].clone();
    let found: Vec<_> = lines.lines().map(who).collect();
    let fingerprint = |files: &CertificateFiles| {
        let arguments = ["x509", "-noout", "-fingerprint", "-sha256", "-in"];
        let printed = Command::new("openssl").args(arguments).arg(&files.cert).output().unwrap().stdout;
        let digits = String::from_utf8(printed).unwrap().split('=').nth(1).unwrap().trim().replace(':', "");
        format!("certificate sha256:{}", digits.to_lowercase())
    };
    assert_eq!(found, identities.each_ref().map(fingerprint));
}

#[test]
fn a_session_is_resumed_unless_clients_need_a_certificate() {
    let server = start_tls(|_| {});
    let client = server.files.client();
    let kind = |client: &TlsClient, address: SocketAddr| {
        let mut stream = client.connect(address).unwrap();
        // The ticket comes with the first answer.
        assert!(ask_health(&mut stream).starts_with("HTTP/1.1 200 "));
        assert_eq!(stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        stream.conn.handshake_kind()
    };
    assert_eq!(kind(&client, server.http()), Some(HandshakeKind::Full));
    assert_eq!(kind(&client, server.http()), Some(HandshakeKind::Resumed));
    let server = start_mtls(|_| {});
    let alice = server.files.certificates.sign_client("alice");
    let client = TlsClient::new(server.files.certificates.authority(), Some(&alice));
    assert_eq!([(); 2].map(|()| kind(&client, server.http())), [Some(HandshakeKind::Full); 2]);
}

#[test]
fn new_files_take_effect_and_bad_ones_do_not() {
    let server = start_tls(|_| {});
    let TlsFiles { certificates, directory } = &server.files;
    let shown = || {
        let stream = server.files.client().connect(server.http()).unwrap();
        stream.conn.peer_certificates().unwrap()[0].clone()
    };
    let install = |files: &CertificateFiles| {
        for (from, to) in [(&files.cert, certificates.certificate()), (&files.key, certificates.key())] {
            let next = directory.path().join("next");
            fs::copy(from, &next).unwrap();
            fs::rename(&next, to).unwrap();
        }
    };
    let before = shown();
    let mut open = server.files.client().connect(server.http()).unwrap();
    install(&certificates.sign_server("second"));
    eventually("the second certificate", || shown() != before);
    let second = shown();
    assert!(ask_health(&mut open).starts_with("HTTP/1.1 200 "), "connections from before go on");

    let failures = || server.metric("tollway_reloads_total{outcome=\"failed\"} ");
    let failed = failures();
    fs::write(certificates.key(), "no key").unwrap();
    server.gate.server.reload();
    eventually("a failure", || failures() > failed);
    assert_eq!(shown(), second);
    install(&certificates.sign_server("third"));
    eventually("the third certificate", || shown() != second);
}

#[test]
fn clients_of_an_authority_that_is_removed_are_refused() {
    let server = start_mtls(|_| {});
    let (certificates, others) = (&server.files.certificates, TlsFiles::new());
    let alice = TlsClient::new(certificates.authority(), Some(&certificates.sign_client("alice")));
    let mallory = TlsClient::new(certificates.authority(), Some(&others.certificates.sign_client("mallory")));
    let is_served = |client: &TlsClient| client.get(server.http(), "/healthz").is_ok();
    assert!(is_served(&alice) && !is_served(&mallory));
    fs::copy(others.certificates.authority(), certificates.authority()).unwrap();
    eventually("the other authority", || is_served(&mallory));
    assert!(!is_served(&alice));
}

#[test]
fn a_handshake_that_takes_too_long_is_cut() {
    let server = start_tls(|settings| settings.bounds.tls_handshake_time = SHORT);
    // One says nothing, and the other stops in the middle of its first message.
    for begun in [&[][..], &[22, 3, 1, 2, 0, 1, 0, 1, 252]] {
        let mut slow = server.gate.connect();
        slow.write_all(begun).unwrap();
        assert_eq!(slow.read(&mut [0; 64]).unwrap_or(0), 0, "nothing but the end");
    }
    eventually("two cuts", || server.handshakes("timeout") == 2);
    assert!(server.files.client().get(server.http(), "/healthz").unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_newest_handshake_replaces_the_one_that_has_waited_for_longest() {
    let server = start_tls(|settings| {
        settings.bounds.tls_handshakes = 2;
        settings.bounds.tls_handshake_time = TEST_TIMEOUT;
        settings.workers = 1;
    });
    let mut silent = [(); 2].map(|()| server.gate.connect());
    // The server has accepted both, because it accepts in order.
    assert!(server.files.client().get(server.http(), "/healthz").unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(silent[0].read(&mut [0; 64]).unwrap_or(0), 0, "the first was closed");
    assert_eq!((server.handshakes("evicted"), server.handshakes("ok")), (1, 1));
    assert_still_open(&mut silent[1]);
}

/// Checks that a handshake which has sent nothing is still waited for.
fn assert_still_open(silent: &mut TcpStream) {
    silent.set_nonblocking(true).unwrap();
    let error = silent.read(&mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it still has its time");
}

/// Bytes that trickle in do not make a handshake younger.
#[test]
fn a_handshake_that_sends_a_byte_now_and_then_is_still_the_oldest() {
    let server = start_tls(|settings| {
        settings.bounds.tls_handshakes = 3;
        settings.bounds.tls_handshake_time = TEST_TIMEOUT;
        settings.workers = 1;
    });
    let healthz = || server.files.client().get(server.http(), "/healthz").unwrap();
    let [mut trickling, mut silent] = [(); 2].map(|()| server.gate.connect());
    // The server accepts in order, so it knows both when it has answered.
    assert!(healthz().starts_with("HTTP/1.1 200 "));
    trickling.write_all(&[22]).unwrap();
    assert!(healthz().starts_with("HTTP/1.1 200 "));
    let _third = server.gate.connect();
    assert!(healthz().starts_with("HTTP/1.1 200 "));
    assert_eq!(trickling.read(&mut [0; 64]).unwrap_or(0), 0, "the oldest was closed");
    assert_still_open(&mut silent);
}

#[test]
fn a_drain_does_not_wait_for_handshakes() {
    let server = start_tls(|settings| {
        settings.bounds.tls_handshake_time = TEST_TIMEOUT * 10;
        settings.bounds.drain = TEST_TIMEOUT * 10;
    });
    let mut silent = server.gate.connect();
    // The server has accepted the silent one, because this one came later, or is on the other worker.
    assert!(server.files.client().get(server.http(), "/healthz").unwrap().starts_with("HTTP/1.1 200 "));
    server.gate.server.stop();
    assert_eq!(silent.read(&mut [0; 64]).unwrap_or(0), 0);
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let server = start_tls(|settings| settings.bounds.write_time = SHORT);
    let mut client = server.files.client().connect(server.http()).unwrap();
    let requests = HEALTH.replace("/healthz", "/metrics").repeat(100);
    // Until neither side takes any more, and the server gives up.
    while client.write_all(requests.as_bytes()).is_ok() {}
    eventually("a cut", || server.metric("tollway_connections_cut_total{when=\"write\"} ") >= 1);
}

#[test]
fn a_client_that_is_idle_for_too_long_gets_a_close_notify() {
    let server = start_tls(|settings| settings.bounds.idle = SHORT);
    let mut client = server.files.client().connect(server.http()).unwrap();
    assert!(ask_health(&mut client).starts_with("HTTP/1.1 200 "));
    // Without a close_notify, the end would be an error.
    assert_eq!(client.read(&mut [0; 64]).unwrap(), 0);
}

#[test]
fn answers_of_any_length_arrive_whole() {
    let server = start_tls(|_| {});
    let mut client = server.files.client().connect(server.http()).unwrap();
    let requests = 300;
    let pipelined =
        HEALTH.repeat(requests - 1) + &HEALTH.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.write_all(pipelined.as_bytes()).unwrap();
    let mut answers = String::new();
    // The end is not an error: the server sends a close_notify.
    client.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), requests);
}

#[test]
fn a_page_of_the_gate_itself_is_of_the_same_site() {
    let server = start_tls(|_| {});
    let address = server.gate.server.admin_addr().unwrap();
    for (scheme, expected) in [("https", "HTTP/1.1 200 "), ("http", "HTTP/1.1 403 ")] {
        let mut stream = server.files.client().connect(address).unwrap();
        let body = r#"{"limit":"Login","id":"a"}"#;
        let request = format!(
            "POST /v1/reset HTTP/1.1\r\nHost: {address}\r\nOrigin: {scheme}://{address}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(expected), "{scheme}: {answer}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named_and_their_content_is_not() {
    let files = TlsFiles::new();
    let directory = files.directory.path();
    let (good, other) = (files.settings(true), files.certificates.sign_server("other"));
    let file = |name: &str, content: &str| {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let broken = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n";
    let not_key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    for (settings, expected) in [
        (TlsSettings { cert: directory.join("none"), ..good.clone() }, "cannot read DIR/none"),
        (TlsSettings { key: directory.join("none"), ..good.clone() }, "cannot read DIR/none"),
        (TlsSettings { cert: file("empty", ""), ..good.clone() }, "DIR/empty has no certificate"),
        (TlsSettings { client_ca: Some(file("no-ca", "")), ..good.clone() }, "DIR/no-ca has no certificate"),
        (
            TlsSettings { cert: file("broken", broken), ..good.clone() },
            "DIR/broken has a certificate that is not valid",
        ),
        (
            TlsSettings { client_ca: Some(file("broken-ca", broken)), ..good.clone() },
            "DIR/broken-ca has a certificate that is not valid",
        ),
        (TlsSettings { key: good.cert.clone(), ..good.clone() }, "DIR/server.pem has no private key"),
        (
            TlsSettings { key: file("not.key", not_key), ..good.clone() },
            "DIR/not.key has a private key that cannot be used",
        ),
        (
            TlsSettings { key: other.key, ..good.clone() },
            "the key in DIR/other.key is not the key of the certificate in DIR/server.pem",
        ),
    ] {
        let error = check_tls_files(&settings).unwrap_err();
        let said = format!("{error} {error:?}").replace(text(directory), "DIR");
        assert!(said.starts_with(expected), "{said}");
        assert!(!said.contains("c2VjcmV0") && !said.contains("secret"), "{said}");
    }
    assert!(check_tls_files(&good).unwrap().is_empty());
}

#[test]
fn a_gate_whose_files_cannot_be_used_does_not_start() {
    let missing = TlsSettings { cert: "none.pem".into(), key: "none.key".into(), client_ca: None };
    let started = std::panic::catch_unwind(|| {
        start_with(crate::support::POLICY, |settings| {
            settings.gates.http_access = GateAccess { tls: Some(missing), tokens: None };
        })
    });
    let panic = started.err().expect("no server");
    let said = panic.downcast_ref::<String>().unwrap();
    assert!(said.contains("GateTlsError { gate: \"http\"") && said.contains("none.pem"), "{said}");
}

#[test]
fn an_expired_certificate_and_a_key_for_everybody_are_warnings() {
    let files = TlsFiles::new();
    let expired = files.certificates.sign_expired_server("old");
    fs::set_permissions(&expired.key, fs::Permissions::from_mode(0o644)).unwrap();
    let settings = TlsSettings { cert: expired.cert, key: expired.key, client_ca: None };
    let warnings: Vec<_> = check_tls_files(&settings).unwrap().iter().map(ToString::to_string).collect();
    let [expired, readable] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        expired.ends_with("old.pem expired on Fri, 01 Jan 2021 00:00:00 GMT; clients will refuse it"),
        "{expired}"
    );
    assert!(readable.starts_with("every user of this system can read the private key in "), "{readable}");
}

#[test]
fn the_page_of_metrics_tells_when_a_certificate_expires() {
    let server = start_tls(|_| {});
    let name = "tollway_tls_certificate_expiry_timestamp_seconds{gate=\"http\"} ";
    // The authority of the tests signs until the year 4096.
    assert_eq!(server.metric(name), 67_090_118_400);
}

#[test]
fn a_storm_of_handshakes_is_answered() {
    let server = start_tls(|_| {});
    let sockets: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server.http()).unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let answer = server.files.client().get(server.http(), "/healthz").unwrap();
                    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                }
            });
        }
    });
    drop(sockets);
    assert_eq!(server.handshakes("ok"), 100);
}
