//! TLS to Redis, with the trusted certificates of the system or of a file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::dial::{DialError, ErrorAt};

/// Opens TLS connections with one set of trusted certificates.
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// Trusts the certificates of the system, or only those in the file `authorities`.
    pub(super) fn new(authorities: Option<&Path>) -> io::Result<Self> {
        let roots = match authorities {
            None => system_roots()?,
            Some(file) => file_roots(file)?,
        };
        // Named, so that nothing depends on the default provider of the process.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Makes the TLS handshake with a server whose certificate is for `host`.
    pub(super) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let name = ServerName::try_from(host.to_owned())?;
        let secured = self.0.connect(name, stream).await;
        secured.map_err(|error| ErrorAt { at: "TLS".to_owned(), source: error.into() }.into())
    }
}

fn system_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Some certificates of a system may be too old to be parsed.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(io::Error::other("the system has no trusted certificates; name a file with tls_ca"));
    }
    Ok(roots)
}

fn file_roots(file: &Path) -> io::Result<RootCertStore> {
    let unreadable = |source: DialError| io::Error::other(ErrorAt { at: file.display().to_string(), source });
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.into()))? {
        let certificate = certificate.map_err(|error| unreadable(error.into()))?;
        roots.add(certificate).map_err(|error| unreadable(error.into()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("the file has no certificate".into()));
    }
    Ok(roots)
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}
