//! Reads who may use a gate: the certificate that it shows, and the file with the tokens that it takes.
//!
//! ```yaml
//! tokens: tokens.txt
//! gates:
//!   http: { listen: 0.0.0.0:8443, tls: { cert: server.pem, key: server.key, client_ca: clients.pem } }
//!   resp: { listen: 127.0.0.1:6380, tokens: off }
//! ```
//!
//! The files are not read here: the server reads them, and reads them again when they change.

use std::path::{Path, PathBuf};

use crate::config::errors::ErrorCollector;
use crate::config::fields::{YamlFields, mapping, refuse, scalar_text};
use crate::config::yaml::YamlEntry;

/// The names of the settings.
pub(super) const TLS: &str = "tls";
pub(super) const TOKENS: &str = "tokens";

/// The longest path of a file, in bytes. Linux has the same bound.
const PATH_MAX: usize = 4096;

/// The settings of who may use a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateAccess {
    /// The certificate that the gate shows, or `None` for plain text.
    pub tls: Option<TlsSettings>,
    /// The file with the tokens that the gate takes, or `None` if it asks for none.
    pub tokens: Option<PathBuf>,
}

/// The files of a gate's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate of the gate, and those between it and one that clients trust.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificates of the authorities that sign those of clients. Without it, clients need none.
    pub client_ca: Option<PathBuf>,
}

impl GateAccess {
    /// Everybody who can reach the gate may use it, in plain text.
    pub const OPEN: Self = Self { tls: None, tokens: None };

    /// Returns whether only clients with a certificate or a token are served.
    pub fn requires_authentication(&self) -> bool {
        self.tokens.is_some() || self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}

/// Reads the settings of who may use a gate.
pub(in crate::config) struct AccessReader<'a> {
    /// The directory that paths are relative to; `None` for a text that is not in a file.
    directory: Option<&'a Path>,
    /// The file with the tokens of every gate that names no other.
    tokens: Option<PathBuf>,
}

impl<'a> AccessReader<'a> {
    /// Reads `tokens`, the setting at the top of a file. If it is wrong, gates are read as if it was not there, so that
    /// their mistakes are reported as well.
    pub(in crate::config) fn new(
        tokens: Option<&YamlEntry>,
        directory: Option<&'a Path>,
        errors: &mut ErrorCollector,
    ) -> Self {
        let reader = Self { directory, tokens: None };
        let tokens = tokens.and_then(|entry| reader.file_or_off(entry, errors)).flatten();
        Self { tokens, ..reader }
    }

    /// Returns the access to a gate that has no settings of its own.
    pub(super) fn default(&self) -> GateAccess {
        GateAccess { tls: None, tokens: self.tokens.clone() }
    }

    /// Reads both settings of a gate whose clients can send a token.
    pub(super) fn read(&self, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<GateAccess> {
        let tls = self.tls(fields, errors);
        let tokens = fields.get(TOKENS);
        let tokens = tokens.map_or(Some(self.tokens.clone()), |entry| self.file_or_off(entry, errors));
        Some(GateAccess { tls: tls?, tokens: tokens? })
    }

    /// Reads the settings of the Throttr gate, whose protocol has no place for a token.
    pub(super) fn read_throttr(
        &self,
        fields: &YamlFields<'_>,
        errors: &mut ErrorCollector,
    ) -> Option<GateAccess> {
        let tls = self.tls(fields, errors);
        if let Some(entry) = fields.get(TOKENS).filter(|entry| scalar_text(&entry.value) != Some("off")) {
            let instead = "throttr cannot take tokens, because its protocol has no place for one; use tls with client_ca";
            errors.add(entry.key.at, instead);
            return None;
        }
        Some(GateAccess { tls: tls?, tokens: None })
    }

    /// Reads `tls`. Returns `None` after an error, and `Some(None)` for a gate in plain text.
    fn tls(&self, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<Option<TlsSettings>> {
        let Some(entry) = fields.get(TLS) else { return Some(None) };
        let entries = mapping(entry, "{cert: server.pem, key: server.key}", errors)?;
        let fields = YamlFields::read(entries, "tls", &["cert", "key", "client_ca"], errors);
        let [cert, key] = ["cert", "key"].map(|name| {
            let Some(file) = fields.get(name) else {
                errors.add(entry.key.at, format!("tls has no \"{name}\", such as {name}: server.{name}"));
                return None;
            };
            self.file(file, errors)
        });
        let client_ca =
            fields.get("client_ca").map_or(Some(None), |entry| self.file(entry, errors).map(Some));
        Some(Some(TlsSettings { cert: cert?, key: key?, client_ca: client_ca? }))
    }

    /// Reads a path, or `off`. Returns `None` after an error.
    pub(in crate::config) fn file_or_off(
        &self,
        entry: &YamlEntry,
        errors: &mut ErrorCollector,
    ) -> Option<Option<PathBuf>> {
        if scalar_text(&entry.value) == Some("off") {
            return Some(None);
        }
        self.file(entry, errors).map(Some)
    }

    /// Reads a path, which is relative to the directory of the configuration file.
    pub(in crate::config) fn file(&self, entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<PathBuf> {
        let path = scalar_text(&entry.value).filter(|_| !entry.value.is_null());
        let Some(path) = path.filter(|path| !path.is_empty() && !path.contains('\0')) else {
            return refuse(entry, "must be the path of a file", errors);
        };
        if path.len() > PATH_MAX {
            let message = format!("{} must be a path of at most {PATH_MAX} bytes", entry.key.quoted());
            errors.add(entry.value.at, message);
            return None;
        }
        let path = self.directory.map_or_else(|| path.into(), |directory| directory.join(path));
        errors.name_file(&path, entry.value.at);
        Some(path)
    }
}
