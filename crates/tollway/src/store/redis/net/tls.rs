//! TLS to Redis, with the trusted certificates of the system or of a file, and a certificate of our own if Redis asks
//! for one.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::dial::{DialError, ErrorAt};
use crate::store::redis::RedisUrl;

/// Opens TLS connections.
pub(super) struct Tls {
    roots: Arc<RootCertStore>,
    identity: Option<Identity>,
}

/// The files of our own certificate.
struct Identity {
    cert: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Trusts the certificates of the system, or only those in the file that the URL names.
    pub(super) fn new(url: &RedisUrl) -> io::Result<Self> {
        let roots = match &url.tls_ca {
            None => system_roots()?,
            Some(file) => file_roots(file)?,
        };
        let identity = url.tls_cert.clone().zip(url.tls_key.clone());
        let identity = identity.map(|(cert, key)| Identity { cert, key });
        let tls = Self { roots: Arc::new(roots), identity };
        // What is wrong with the files is said when the store is opened.
        tls.connector().map_err(io::Error::other)?;
        Ok(tls)
    }

    /// Makes the TLS handshake with a server whose certificate is for `host`.
    pub(super) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<(SecuredStream, Alert), DialError> {
        let name = ServerName::try_from(host.to_owned())?;
        let stream = self.connector()?.connect(name, stream).await.map_err(|error| in_tls(error.into()))?;
        let alert = Alert::default();
        Ok((SecuredStream { stream, alert: alert.clone() }, alert))
    }

    /// Reads our own certificate for each connection, because it may be replaced before it expires.
    fn connector(&self) -> Result<TlsConnector, DialError> {
        // Named, so that nothing depends on the default provider of the process.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots));
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                let chain = certificates(cert).map_err(|error| at(cert, error))?;
                let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| at(key, error.into()))?;
                builder.with_client_auth_cert(chain, private_key).map_err(|error| at(key, error.into()))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// The alert by which the server ended a connection. A server that refuses our certificate says so after our part of
/// the handshake, when the connection belongs to the crate `redis`, which does not pass it on.
#[derive(Clone, Debug, Default)]
pub(super) struct Alert(Arc<OnceLock<rustls::Error>>);

impl Alert {
    /// Returns the error that the alert means, if there was one.
    pub(super) fn error(&self) -> Option<DialError> {
        let error = self.0.get()?.clone();
        Some(in_tls(io::Error::new(io::ErrorKind::InvalidData, error).into()))
    }
}

/// A TLS stream that keeps the alert of its server.
pub(super) struct SecuredStream {
    stream: TlsStream<TcpStream>,
    alert: Alert,
}

impl AsyncRead for SecuredStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, alert } = self.get_mut();
        let read = Pin::new(stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read
            && let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            let _ = alert.0.set(error.clone());
        }
        read
    }
}

impl AsyncWrite for SecuredStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Returns an error as one of TLS.
fn in_tls(source: DialError) -> DialError {
    ErrorAt { at: "TLS".to_owned(), source }.into()
}

/// Returns an error with the file that it is about.
fn at(file: &Path, source: DialError) -> DialError {
    ErrorAt { at: file.display().to_string(), source }.into()
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
    let mut roots = RootCertStore::empty();
    let added = certificates(file).and_then(|certificates| {
        certificates.into_iter().try_for_each(|certificate| roots.add(certificate))?;
        Ok(())
    });
    added.map_err(|error| io::Error::other(at(file, error)))?;
    Ok(roots)
}

/// Returns the certificates of a file, of which there is at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, DialError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err("the file has no certificate".into()) } else { Ok(certificates) }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}
