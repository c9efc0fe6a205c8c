//! Reads the files of a gate's TLS: its certificate, its key, and the authorities of its clients.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use httpdate::fmt_http_date;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore, ServerConfig};
use thiserror::Error;
use tollway::config::{ContentWatch, TlsSettings};

use super::Protocols;
use crate::secret_file::can_be_read_by_everybody;

/// The time before a certificate's end from which on its use is a warning.
const EXPIRES_SOON: Duration = Duration::from_secs(7 * 86_400);

/// The reasons why the files of a gate's TLS cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// The file cannot be read.
    #[error("cannot read {}", .file.display())]
    Unreadable {
        /// The file that was configured.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not PEM.
    #[error("{} is not in PEM format", .file.display())]
    NotPem {
        /// The file that was configured.
        file: PathBuf,
        /// The error of the parser.
        source: pem::Error,
    },
    /// The file has no certificate.
    #[error("{} has no certificate; it must have a part that begins with \"-----BEGIN CERTIFICATE-----\"", .file.display())]
    NoCertificate {
        /// The file that was configured.
        file: PathBuf,
    },
    /// A certificate is not valid.
    #[error("{} has a certificate that is not valid", .file.display())]
    InvalidCertificate {
        /// The file that was configured.
        file: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The file has no private key.
    #[error(
        "{} has no private key; it must have a part that begins with \"-----BEGIN PRIVATE KEY-----\", without a \
         passphrase", .file.display()
    )]
    NoKey {
        /// The file that was configured.
        file: PathBuf,
    },
    /// The private key cannot be used.
    #[error("{} has a private key that cannot be used; use ECDSA (P-256 or P-384), Ed25519 or RSA", .file.display())]
    InvalidKey {
        /// The file that was configured.
        file: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} is not the key of the certificate in {}", .key.display(), .cert.display())]
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        cert: PathBuf,
    },
    /// TLS cannot be set up, for a reason that is in no file.
    #[error(transparent)]
    Setup(#[from] rustls::Error),
}

impl TlsFileError {
    /// Returns the path of the file that is wrong; `None` if the error is in no file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unreadable { file, .. }
            | Self::NotPem { file, .. }
            | Self::NoCertificate { file }
            | Self::InvalidCertificate { file, .. }
            | Self::NoKey { file }
            | Self::InvalidKey { file, .. }
            | Self::KeyMismatch { key: file, .. } => Some(file),
            Self::Setup(_) => None,
        }
    }
}

/// The faults of files that can be used all the same.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsFileWarning {
    /// The certificate has expired.
    #[error("the certificate in {} expired on {}; clients will refuse it", .file.display(), fmt_http_date(*.at))]
    Expired {
        /// The file of the certificate.
        file: PathBuf,
        /// The time from which on it is not valid.
        at: SystemTime,
    },
    /// The certificate expires within a week.
    #[error("the certificate in {} expires on {}", .file.display(), fmt_http_date(*.at))]
    ExpiresSoon {
        /// The file of the certificate.
        file: PathBuf,
        /// The time from which on it is not valid.
        at: SystemTime,
    },
    /// The key can be read by everybody.
    #[error("every user of this system can read the private key in {0}; run \"chmod o-rwx {0}\"", .file.display())]
    PublicKeyFile {
        /// The file of the key.
        file: PathBuf,
    },
}

/// Checks that the files of a gate's TLS can be used, as a server does when it starts.
pub fn check_tls_files(settings: &TlsSettings) -> Result<Vec<TlsFileWarning>, TlsFileError> {
    TlsFiles::read(settings, &[], &mut ContentWatch::default()).map(|files| files.warnings)
}

/// The files of a gate's TLS, read and checked.
pub(super) struct TlsFiles {
    pub(super) config: ServerConfig,
    pub(super) expires_at: Option<SystemTime>,
    pub(super) warnings: Vec<TlsFileWarning>,
}

impl TlsFiles {
    /// Reads the files. From then on the watch watches them, also after an error.
    pub(super) fn read(
        settings: &TlsSettings,
        protocols: Protocols,
        watch: &mut ContentWatch,
    ) -> Result<Self, TlsFileError> {
        let TlsSettings { cert, key, client_ca } = settings;
        // All files are read before the first `?`, so that a repaired one is noticed.
        let (cert_pem, key_pem) = (read(cert, watch), read(key, watch));
        let client_ca_pem = client_ca.as_deref().map(|file| (file, read(file, watch)));
        let chain = certificates(cert, &cert_pem?)?;
        let private_key = private_key(key, &key_pem?)?;
        let roots = client_ca_pem.map(|(file, pem)| roots(file, &pem?)).transpose()?;

        // Named, so that nothing depends on the default provider of the process.
        let provider = Arc::new(ring::default_provider());
        let expires_at = expiry(&chain[0], &provider)
            .map_err(|source| TlsFileError::InvalidCertificate { file: cert.clone(), source })?;
        let has_client_ca = roots.is_some();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, private_key).map_err(|source| match source {
            rustls::Error::InconsistentKeys(_) => {
                TlsFileError::KeyMismatch { key: key.clone(), cert: cert.clone() }
            }
            source => TlsFileError::InvalidKey { file: key.clone(), source },
        })?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        if has_client_ca {
            // A client that resumes a session does not show its certificate again: one that has expired, or whose
            // authority was removed, would be valid for hours.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        } else {
            config.ticketer = ring::Ticketer::new()?;
        }
        Ok(Self { config, expires_at, warnings: warnings(cert, expires_at, key) })
    }
}

fn read(file: &Path, watch: &mut ContentWatch) -> Result<Vec<u8>, TlsFileError> {
    watch.read(file).map_err(|source| TlsFileError::Unreadable { file: file.to_owned(), source })
}

/// Returns the certificates of a file, of which there is at least one.
fn certificates(file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(none) if none.is_empty() => Err(TlsFileError::NoCertificate { file: file.to_owned() }),
        Ok(certificates) => Ok(certificates),
        Err(source) => Err(TlsFileError::NotPem { file: file.to_owned(), source }),
    }
}

fn private_key(file: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsFileError::NoKey { file: file.to_owned() },
        source => TlsFileError::NotPem { file: file.to_owned(), source },
    })
}

fn roots(file: &Path, pem: &[u8]) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, pem)? {
        roots
            .add(certificate)
            .map_err(|source| TlsFileError::InvalidCertificate { file: file.to_owned(), source })?;
    }
    Ok(roots)
}

/// Returns when a certificate expires: verified as of the end of time, it has expired, and the error says since when.
fn expiry(
    certificate: &CertificateDer<'_>,
    provider: &CryptoProvider,
) -> Result<Option<SystemTime>, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let algorithms = provider.signature_verification_algorithms.all;
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let verified = verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &RootCertStore::empty(),
        &[],
        end_of_time,
        algorithms,
    );
    Ok(match verified {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    })
}

fn warnings(cert: &Path, expires_at: Option<SystemTime>, key: &Path) -> Vec<TlsFileWarning> {
    let (now, file) = (SystemTime::now(), cert.to_owned());
    let mut warnings = Vec::new();
    match expires_at {
        Some(at) if at <= now => warnings.push(TlsFileWarning::Expired { file, at }),
        Some(at) if at <= now + EXPIRES_SOON => warnings.push(TlsFileWarning::ExpiresSoon { file, at }),
        _ => {}
    }
    if can_be_read_by_everybody(key) {
        warnings.push(TlsFileWarning::PublicKeyFile { file: key.to_owned() });
    }
    warnings
}
