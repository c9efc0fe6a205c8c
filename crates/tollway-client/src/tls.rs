//! TLS to a server: who is trusted, and the certificate that is shown to the server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use thiserror::Error;

use crate::ClientError;

/// The certificates that a client uses over TLS.
///
/// ```no_run
/// use tollway_client::http::Client;
/// use tollway_client::tls::Tls;
///
/// let tls = Tls::trusting_file("ca.pem")?.with_identity("alice.pem", "alice.key")?;
/// let client = Client::new("https://limiter:8443")?.with_tls(tls);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The files are read once. A client that runs for longer than its certificate is valid must be created again.
#[derive(Clone)]
pub struct Tls {
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
}

/// The reasons why certificates cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientTlsError {
    /// The system has no certificates that can be read.
    #[error("the system has no trusted certificates; name a file of them")]
    NoSystemRoots,
    /// The file cannot be read, or is not PEM.
    #[error("cannot read {}", .file.display())]
    File {
        /// The file that was given.
        file: PathBuf,
        /// The error of the parser, or of the system.
        source: pem::Error,
    },
    /// The file has no certificate.
    #[error("{} has no certificate; it must have a part that begins with \"-----BEGIN CERTIFICATE-----\"", .file.display())]
    NoCertificate {
        /// The file that was given.
        file: PathBuf,
    },
    /// A certificate or a key cannot be used, or they do not belong together.
    #[error("{} cannot be used", .file.display())]
    Unusable {
        /// The file that was given.
        file: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Setup(#[from] rustls::Error),
}

/// The kinds of failed handshakes that a client can do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The authority that signed the certificate of the server is not trusted.
    UntrustedServer,
    /// The server does not accept the certificate of the client, or asks for one.
    RefusedClient,
    /// The server does not speak TLS.
    NotTls,
    /// The handshake failed for another reason.
    Other,
}

impl ClientTlsError {
    /// Returns the kind of the failure.
    pub const fn failure(&self) -> TlsFailure {
        use rustls::AlertDescription as Alert;
        match self {
            Self::Setup(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                TlsFailure::UntrustedServer
            }
            Self::Setup(rustls::Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::DecryptError
                | Alert::UnknownCA,
            )) => TlsFailure::RefusedClient,
            Self::Setup(rustls::Error::InvalidMessage(_)) => TlsFailure::NotTls,
            _ => TlsFailure::Other,
        }
    }
}

impl Tls {
    /// Trusts the certificate authorities of the system.
    pub fn trusting_system() -> Result<Self, ClientTlsError> {
        let mut roots = RootCertStore::empty();
        // Some of a system's certificates may be too old to be read; what matters is that others can be.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() { Err(ClientTlsError::NoSystemRoots) } else { Self::trusting(roots) }
    }

    /// Trusts only the certificate authorities in a PEM file.
    pub fn trusting_file(file: impl AsRef<Path>) -> Result<Self, ClientTlsError> {
        let file = file.as_ref();
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file)? {
            roots
                .add(certificate)
                .map_err(|source| ClientTlsError::Unusable { file: file.to_owned(), source })?;
        }
        Self::trusting(roots)
    }

    fn trusting(roots: RootCertStore) -> Result<Self, ClientTlsError> {
        let roots = Arc::new(roots);
        let config = builder(&roots)?.with_no_client_auth();
        Ok(Self { roots, config: Arc::new(config) })
    }

    /// Shows the certificate in the PEM file `cert` to servers that ask for one. `key` is the file of its private key.
    pub fn with_identity(
        self,
        cert: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, ClientTlsError> {
        let key = key.as_ref();
        let chain = certificates(cert.as_ref())?;
        let private_key = PrivateKeyDer::from_pem_file(key)
            .map_err(|source| ClientTlsError::File { file: key.to_owned(), source })?;
        let config = builder(&self.roots)?
            .with_client_auth_cert(chain, private_key)
            .map_err(|source| ClientTlsError::Unusable { file: key.to_owned(), source })?;
        Ok(Self { config: Arc::new(config), ..self })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// The TLS of one client: the one that it was given, or else that of the system, which is read when it is first needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTls(OnceLock<Tls>);

impl ClientTls {
    pub(crate) fn given(tls: Tls) -> Self {
        Self(OnceLock::from(tls))
    }

    /// Returns what a handshake with the server at this address needs.
    pub(crate) fn handshake(
        &self,
        address: &str,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), ClientError> {
        let failed = |source| ClientError::Tls { address: address.to_owned(), source };
        let name = server_name(address).map_err(failed)?;
        let tls = match self.0.get() {
            Some(tls) => tls,
            None => {
                let system = Tls::trusting_system().map_err(failed)?;
                self.0.get_or_init(|| system)
            }
        };
        Ok((Arc::clone(&tls.config), name))
    }
}

/// Returns the name that the certificate of a server must have, from an address with a port.
fn server_name(address: &str) -> Result<ServerName<'static>, ClientTlsError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|_| {
        ClientTlsError::Setup(rustls::Error::General(format!("\"{host}\" is not a name for TLS")))
    })
}

fn builder(
    roots: &Arc<RootCertStore>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, ClientTlsError> {
    // Named, so that nothing depends on the default provider of the process.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(Arc::clone(roots)))
}

/// Returns the certificates of a file, of which there is at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let unreadable = |source| ClientTlsError::File { file: file.to_owned(), source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(unreadable)?.collect();
    let found = found.map_err(unreadable)?;
    if found.is_empty() { Err(ClientTlsError::NoCertificate { file: file.to_owned() }) } else { Ok(found) }
}
