//! A server whose gates speak TLS, and a client of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;
use tollway::config::{GateAccess, TlsSettings};
use tollway_server::Settings;
use tollway_testbed::{CertificateFiles, Certificates, TEST_TIMEOUT};

use super::{Harness, POLICY, start_with};

/// A server whose gates show a certificate, and the authority that signed it.
pub(crate) struct TlsHarness {
    pub(crate) gate: Harness,
    pub(crate) files: TlsFiles,
}

/// The authority of a server and of its clients, with their files in a directory that is removed at the end.
pub(crate) struct TlsFiles {
    pub(crate) certificates: Certificates,
    pub(crate) directory: TempDir,
}

impl TlsFiles {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { certificates: Certificates::create(directory.path()), directory }
    }

    /// The files of a server. Clients need a certificate of the same authority if `for_clients`.
    pub(crate) fn settings(&self, for_clients: bool) -> TlsSettings {
        let certificates = &self.certificates;
        TlsSettings {
            cert: certificates.certificate().to_owned(),
            key: certificates.key().to_owned(),
            client_ca: for_clients.then(|| certificates.authority().to_owned()),
        }
    }

    pub(crate) fn client(&self) -> TlsClient {
        TlsClient::new(self.certificates.authority(), None)
    }
}

/// Starts a server whose gates all speak TLS.
pub(crate) fn start_tls(change: impl FnOnce(&mut Settings)) -> TlsHarness {
    start_tls_with(POLICY, false, change)
}

/// Starts a server whose gates accept only clients with a certificate.
pub(crate) fn start_mtls(change: impl FnOnce(&mut Settings)) -> TlsHarness {
    start_tls_with(POLICY, true, change)
}

pub(crate) fn start_tls_with(
    policy: &str,
    for_clients: bool,
    change: impl FnOnce(&mut Settings),
) -> TlsHarness {
    let files = TlsFiles::new();
    let access = GateAccess { tls: Some(files.settings(for_clients)), tokens: None };
    let gate = start_with(policy, |settings| {
        let gates = &mut settings.gates;
        gates.admin = gates.http;
        let of_gates = [
            &mut gates.http_access,
            &mut gates.admin_access,
            &mut gates.rls_access,
            &mut gates.resp_access,
            &mut gates.throttr_access,
        ];
        of_gates.into_iter().for_each(|of_gate| *of_gate = access.clone());
        change(settings);
    });
    TlsHarness { gate, files }
}

/// An open connection of a client.
pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Connects by TLS, as `localhost`.
#[derive(Clone)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Trusts one authority, and shows a certificate if it has one.
    pub(crate) fn new(authority: &Path, identity: Option<&CertificateFiles>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(CertificateFiles { cert, key }) => {
                let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
            }
        };
        Self { config: Arc::new(config) }
    }

    /// Connects, and makes the client's part of the handshake.
    pub(crate) fn connect(&self, address: SocketAddr) -> io::Result<Secured> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(TEST_TIMEOUT))?;
        socket.set_write_timeout(Some(TEST_TIMEOUT))?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }

    /// Sends a request over a connection of its own, and returns the whole answer.
    pub(crate) fn get(&self, address: SocketAddr, path: &str) -> io::Result<String> {
        let mut stream = self.connect(address)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl TlsHarness {
    pub(crate) fn http(&self) -> SocketAddr {
        self.gate.server.http_addr().unwrap()
    }

    /// Returns the number of handshakes with the HTTP gate that ended like this. The page comes from the admin gate, so
    /// that asking for it counts nothing.
    pub(crate) fn handshakes(&self, outcome: &str) -> u64 {
        let name = format!("tollway_tls_handshakes_total{{gate=\"http\",outcome=\"{outcome}\"}} ");
        self.metric(&name)
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = self.files.operator().get(self.gate.server.admin_addr().unwrap(), "/metrics").unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
    }
}

impl TlsFiles {
    /// A client with a certificate, which gates that ask for none ignore.
    fn operator(&self) -> TlsClient {
        TlsClient::new(self.certificates.authority(), Some(&self.certificates.sign_client("operator")))
    }
}
