//! The certificates of a command that asks a server by TLS.

use std::path::PathBuf;

use clap::Args;
use tollway_client::tls::{ClientTlsError, Tls};

/// The flags of commands that can ask a server at an `https://` address.
#[derive(Args)]
pub(super) struct TlsFlags {
    /// For an https:// address: the file with the certificates to trust [default: those of the system]
    #[arg(long, value_name = "FILE", env = "TOLLWAY_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// For a server that asks for a certificate: the file with it
    #[arg(long, value_name = "FILE", env = "TOLLWAY_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The file with the private key of --tls-cert
    #[arg(long, value_name = "FILE", env = "TOLLWAY_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsFlags {
    /// Returns the certificates that the flags name, or `None` if they name none.
    pub(super) fn read(&self) -> Result<Option<Tls>, ClientTlsError> {
        let identity = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        let tls = match (&self.tls_ca, identity) {
            (None, None) => return Ok(None),
            (Some(file), _) => Tls::trusting_file(file)?,
            (None, Some(_)) => Tls::trusting_system()?,
        };
        match identity {
            Some((cert, key)) => tls.with_identity(cert, key).map(Some),
            None => Ok(Some(tls)),
        }
    }
}
