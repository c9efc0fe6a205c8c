//! A server with certificates, and the commands that ask it by TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollway_testbed::{CertificateFiles, Certificates, eventually};

use crate::run::{file, run};
use crate::serving::Serving;

/// Creates an authority, in a directory of its own.
fn authority(name: &str) -> (Certificates, PathBuf) {
    let directory = Path::new(&file("certificates", "")).with_file_name(name);
    fs::create_dir_all(&directory).unwrap();
    (Certificates::create(&directory), directory)
}

/// Writes a configuration beside the certificates, whose paths are relative.
fn configuration(directory: &Path, client_ca: &str) -> String {
    let tls = format!("tls: {{ cert: server.pem, key: server.key{client_ca} }}");
    let gates = ["http", "admin"].map(|gate| format!("  {gate}: {{ listen: '127.0.0.1:0', {tls} }}\n"));
    let path = directory.join("tollway.yaml");
    let limits = "limits: { Login: { burst: 5, count: 5, period: 1h } }";
    fs::write(&path, format!("{limits}\ngates:\n{}", gates.concat())).unwrap();
    path.to_str().unwrap().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn commands_ask_a_server_by_tls_with_a_certificate() {
    let (certificates, directory) = authority("cli-mtls");
    let config = configuration(&directory, ", client_ca: ca.pem");
    let serving = Serving::start(&["--config", &config], &[]);
    assert!(serving.printed.contains("  http     https://127.0.0.1:"), "{}", serving.printed);
    assert!(serving.printed.contains("  admin    https://127.0.0.1:"), "{}", serving.printed);
    assert!(!serving.printed.contains("curl"), "no command that fails: {}", serving.printed);
    let CertificateFiles { cert, key } = certificates.sign_client("alice");
    let ca = text(certificates.authority());
    let flags = ["--tls-ca", ca, "--tls-cert", text(&cert), "--tls-key", text(&key)];
    for verb in ["spend", "check", "inspect", "reset"] {
        let (code, said) = serving.ask(&[&[verb, "Login:a"][..], &flags].concat());
        assert_eq!(code, 0, "{verb}: {said}");
    }
    let (code, said) = serving.ask(&["spend", "Login:a", "--tls-ca", ca]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("check the certificates") && said.contains("CertificateRequired"), "{said}");
    assert!(said.contains("\nhint: the server asks for a certificate"), "{said}");
    let (code, said) = serving.ask(&["spend", "Login:a"]);
    assert!(code == 2 && said.contains("\nhint: name the authority"), "{said}");
    let plain = serving.addr.replace("https://", "http://");
    let ran = run(&["spend", "Login:a", "--addr", &plain]);
    assert!(ran.code == 2 && ran.stderr.contains("\nhint: if the gate uses TLS, write"), "{}", ran.stderr);
    let open = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let ran = run(&["spend", "demo:a", "--addr", &format!("https://{}", open.addr), "--tls-ca", ca]);
    assert!(ran.code == 2 && ran.stderr.contains("\nhint: if the gate uses no TLS"), "{}", ran.stderr);
    let (code, said) = serving.ask(&["spend", "Login:a", "--tls-ca", ca, "--tls-cert", text(&cert)]);
    assert!(code == 2 && said.contains("--tls-key"), "{said}");
    serving.signal("TERM");
    let (_, log) = serving.wait();
    assert!(log.contains("client certificate refused"), "{log}");
    assert!(log.contains("no TLS connection: the handshake failed"), "{log}");
}

#[test]
fn a_new_certificate_takes_effect_and_a_bad_one_is_an_error_in_the_log() {
    let (certificates, directory) = authority("cli-reload");
    let serving = Serving::start(&["--config", &configuration(&directory, "")], &[]);
    let asks = |trusted: &Certificates| {
        serving.ask(&["check", "Login:a", "--tls-ca", text(trusted.authority())]).0 == 0
    };
    assert!(asks(&certificates));
    // Whoever trusts only another authority is served when its certificate is in force.
    let (others, other_directory) = authority("cli-reload-others");
    for name in ["server.pem", "server.key"] {
        fs::copy(other_directory.join(name), directory.join("next")).unwrap();
        fs::rename(directory.join("next"), directory.join(name)).unwrap();
    }
    eventually("the new certificate", || asks(&others));
    assert!(!asks(&certificates));

    let failed = || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--cacert", text(others.authority()), &format!("{}/metrics", serving.admin)]);
        let page = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let failed =
            page.lines().find_map(|line| line.strip_prefix("tollway_reloads_total{outcome=\"failed\"} "));
        failed.unwrap().parse::<u64>().unwrap()
    };
    let before = failed();
    fs::write(directory.join("server.key"), "-----BEGIN NOTHING-----").unwrap();
    serving.signal("HUP");
    eventually("a failure", || failed() > before);
    assert!(asks(&others), "the certificate from before stays");
    serving.signal("TERM");
    let (code, log) = serving.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("certificate reloaded"), "{log}");
    assert!(log.contains("certificate not reloaded; the old one stays in force"), "{log}");
    assert!(log.contains("server.key") && !log.contains("BEGIN NOTHING"), "{log}");
}

#[test]
fn validate_names_the_files_and_what_is_wrong_with_them() {
    let (_, directory) = authority("cli-validate");
    let config = configuration(&directory, "");
    let ran = run(&["validate", &config]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("server.pem"), "{}", ran.stdout);
    fs::remove_file(directory.join("server.key")).unwrap();
    let ran = run(&["validate", &config]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    let named = format!("{config}:3:64: cannot read ");
    assert!(ran.stderr.starts_with(&named) && ran.stderr.contains("server.key"), "{}", ran.stderr);
    let ran = run(&["serve", "--config", &config]);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    let expected = format!(
        "tollway: cannot start the server: {config}:3:64: the http gate cannot use TLS: cannot read "
    );
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
}
