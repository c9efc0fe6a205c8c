//! Says which flag helps against an error of a server's address, tokens or certificates.

use tollway::config::Gates;
use tollway_client::tls::TlsFailure;
use tollway_client::{ClientError, InvalidResponse};

/// Returns what to try next, if a flag of the command line may help.
pub(crate) fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let error = error.chain().find_map(|error| error.downcast_ref::<ClientError>())?;
    Some(match error {
        ClientError::Refused { address, .. } if *address == Gates::ADMIN.to_string() => {
            "the server may have no admin gate; then its HTTP gate on loopback has these paths: --addr 127.0.0.1:8080"
        }
        ClientError::Problem { status: 401, .. } => {
            "name the file with a token by --token-file FILE, or set TOLLWAY_TOKEN"
        }
        ClientError::Problem { status: 403, title, .. } if title.contains("token") => {
            "name a file with another token by --token-file FILE; \"tollway token\" makes one"
        }
        ClientError::InvalidResponse { source: InvalidResponse::HttpHead, .. }
        | ClientError::Disconnected { .. } => {
            "if the gate uses TLS, write its address as https://HOST:PORT, and name the authority of its certificate by \
             --tls-ca FILE"
        }
        ClientError::Tls { source, .. } => match source.failure() {
            TlsFailure::UntrustedServer => "name the authority of the server's certificate by --tls-ca FILE",
            TlsFailure::RefusedClient => {
                "the server asks for a certificate of its own authority: --tls-cert FILE and --tls-key FILE"
            }
            TlsFailure::NotTls => "if the gate uses no TLS, write its address as http://HOST:PORT",
            // The name that the library has for it, which is a part of no type.
            _ if format!("{source:?}").contains("CaUsedAsEndEntity") => {
                "the certificate of the server is an authority itself; make another one for the server, signed by it \
                 (docs/tls.md)"
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn who_finds_no_admin_gate_is_told_of_the_http_gate() {
        let refused = |address: &str| {
            let (address, source) = (address.to_owned(), io::ErrorKind::ConnectionRefused.into());
            hint(&ClientError::Refused { address, source }.into())
        };
        assert!(refused("127.0.0.1:8082").is_some_and(|hint| hint.ends_with("--addr 127.0.0.1:8080")));
        assert_eq!(refused("127.0.0.1:8080"), None);
        assert_eq!(Gates::HTTP.to_string(), "127.0.0.1:8080");
    }
}
