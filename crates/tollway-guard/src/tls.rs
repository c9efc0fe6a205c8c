//! Sets up TLS to the upstream, with the certificate authorities of the system or of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// The reasons why TLS cannot be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The system has no certificate authorities that can be read.
    #[error("the system has no trusted certificates; name a file of them")]
    NoSystemRoots,
    /// The file cannot be read, or is not PEM.
    #[error("{} has no certificates in PEM format", .file.display())]
    File {
        /// The file that was given.
        file: PathBuf,
        /// The error of the parser; `None` if the file has no certificate.
        source: Option<pem::Error>,
    },
    /// A certificate or the protocol versions are not usable.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// Makes a connector that trusts the authorities in `file`, or those of the system. It offers HTTP/1.1.
pub(crate) fn connector(file: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let roots = file.map_or_else(system_roots, file_roots)?;
    // Named, so that nothing depends on the default that the rest of the process has chosen.
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // Some of a system's certificates may be too old to be read; what matters is that others can be.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoSystemRoots) } else { Ok(roots) }
}

fn file_roots(file: &Path) -> Result<RootCertStore, TlsError> {
    let unreadable = |source| TlsError::File { file: file.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(Some(error)))? {
        roots.add(certificate.map_err(|error| unreadable(Some(error)))?)?;
    }
    if roots.is_empty() { Err(unreadable(None)) } else { Ok(roots) }
}
