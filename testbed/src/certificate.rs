//! Creates the certificates of test servers that use TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The files of a certificate authority, and of a server certificate that it signed for `localhost` and `127.0.0.1`.
#[derive(Debug)]
pub struct Certificates {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// Creates new keys and certificates, in files of `directory`.
    pub fn create(directory: &Path) -> Self {
        let [authority, certificate, key] =
            ["ca.pem", "server.pem", "server.key"].map(|name| directory.join(name));
        let mut params = CertificateParams::new([]).expect("no names to be wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Tollway tests");
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server_key = KeyPair::generate().expect("a key");
        let server = CertificateParams::new(names).expect("these are names").signed_by(&server_key, &issuer);
        for (path, contents) in [
            (&authority, issuer.pem()),
            (&certificate, server.expect("a certificate").pem()),
            (&key, server_key.serialize_pem()),
        ] {
            fs::write(path, contents).expect("a file in a directory of our own");
        }
        Self { authority, certificate, key }
    }

    /// Returns the file that clients must trust.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Returns the file with the certificate of the server.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Returns the file with the private key of the server.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Returns the arguments for a Redis server that listens with TLS at `port`, and nowhere without.
    pub(crate) fn arguments(&self, port: u16) -> Vec<String> {
        let file = |path: &Path| path.to_str().expect("temporary names are text").to_owned();
        let arguments = [
            ["--port".to_owned(), "0".to_owned()],
            ["--tls-port".to_owned(), port.to_string()],
            ["--tls-auth-clients".to_owned(), "no".to_owned()],
            ["--tls-ca-cert-file".to_owned(), file(&self.authority)],
            ["--tls-cert-file".to_owned(), file(&self.certificate)],
            ["--tls-key-file".to_owned(), file(&self.key)],
        ];
        arguments.concat()
    }
}
