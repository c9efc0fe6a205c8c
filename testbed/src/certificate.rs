//! Creates the certificates of test servers that use TLS, and of their clients.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};

/// A certificate authority, with a server certificate that it signed for `localhost` and `127.0.0.1`, in files.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
    authority: PathBuf,
    server: CertificateFiles,
}

/// The files of a certificate and of its private key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The file with the certificate.
    pub cert: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
}

impl Certificates {
    /// Creates new keys and certificates, in files of `directory`.
    pub fn create(directory: &Path) -> Self {
        let mut params = CertificateParams::new([]).expect("no names to be wrong");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Tollway tests");
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let authority = directory.join("ca.pem");
        fs::write(&authority, issuer.pem()).expect("a file in a directory of our own");
        let server = sign(&issuer, directory, "server", server_params());
        Self { directory: directory.to_owned(), issuer, authority, server }
    }

    /// Signs another server certificate, in files of this name.
    pub fn sign_server(&self, name: &str) -> CertificateFiles {
        sign(&self.issuer, &self.directory, name, server_params())
    }

    /// Signs a server certificate that expired on 1 January 2021.
    pub fn sign_expired_server(&self, name: &str) -> CertificateFiles {
        sign(&self.issuer, &self.directory, name, expired(server_params()))
    }

    /// Signs the certificate of a client.
    pub fn sign_client(&self, name: &str) -> CertificateFiles {
        sign(&self.issuer, &self.directory, name, client_params(name))
    }

    /// Signs the certificate of a client that expired on 1 January 2021.
    pub fn sign_expired_client(&self, name: &str) -> CertificateFiles {
        sign(&self.issuer, &self.directory, name, expired(client_params(name)))
    }

    /// Returns the file that clients must trust.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// Returns the file with the certificate of the server.
    pub fn certificate(&self) -> &Path {
        &self.server.cert
    }

    /// Returns the file with the private key of the server.
    pub fn key(&self) -> &Path {
        &self.server.key
    }

    /// Returns the arguments for a Redis server that listens with TLS at `port`, and nowhere without. It serves clients
    /// without a certificate if `auth_clients` is `no`, and not if it is `yes`.
    pub(crate) fn arguments(&self, port: u16, auth_clients: &str) -> Vec<String> {
        let file = |path: &Path| path.to_str().expect("temporary names are text").to_owned();
        let arguments = [
            ["--port".to_owned(), "0".to_owned()],
            ["--tls-port".to_owned(), port.to_string()],
            ["--tls-auth-clients".to_owned(), auth_clients.to_owned()],
            ["--tls-ca-cert-file".to_owned(), file(&self.authority)],
            ["--tls-cert-file".to_owned(), file(&self.server.cert)],
            ["--tls-key-file".to_owned(), file(&self.server.key)],
        ];
        arguments.concat()
    }
}

fn server_params() -> CertificateParams {
    CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("these are names")
}

fn client_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([]).expect("no names to be wrong");
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    params
}

fn sign(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    directory: &Path,
    name: &str,
    params: CertificateParams,
) -> CertificateFiles {
    let [cert, key] = ["pem", "key"].map(|kind| directory.join(format!("{name}.{kind}")));
    let pair = KeyPair::generate().expect("a key");
    let signed = params.signed_by(&pair, issuer).expect("a certificate");
    for (path, contents) in [(&cert, signed.pem()), (&key, pair.serialize_pem())] {
        fs::write(path, contents).expect("a file in a directory of our own");
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a file of our own");
    CertificateFiles { cert, key }
}
