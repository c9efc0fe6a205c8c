//! [`ErrorChain`]: an error and its causes as text, for logs and people.
//!
//! ```
//! use tollway_core::{Charge, ErrorChain, IdFormat, Limit};
//!
//! let limit = Limit::new("login")?.with_ids(IdFormat::IpAddress);
//! let error = Charge::new(&limit, b"alice", 1).unwrap_err();
//! assert_eq!(error.to_string(), "limit \"login\" rejects the id");
//! assert_eq!(
//!     ErrorChain(&error).to_string(),
//!     "limit \"login\" rejects the id: id \"alice\" is not an IP address, such as 10.0.0.2 or 2001:db8::1",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::error::Error;
use std::fmt;

/// Writes an error and all its causes, separated by `: `.
///
/// The text of an error of ours leaves out its [`source`](Error::source), so an error that is printed alone does not
/// say why. Errors of some libraries repeat the text of their source; it is written once.
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<dyn Error + Send + Sync>>,
    }

    fn failure(text: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure { text, source: Some(source.into()) }
    }

    #[test]
    fn every_cause_is_named_once() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let alone = Failure { text: "alone", source: None };
        assert_eq!(ErrorChain(&alone).to_string(), "alone");
        let chain = failure("no answer", failure("redis a:1 is unreachable", refused()));
        assert_eq!(ErrorChain(&chain).to_string(), "no answer: redis a:1 is unreachable: connection refused");
        let repeating = failure("no answer", failure("i/o: connection refused", refused()));
        assert_eq!(ErrorChain(&repeating).to_string(), "no answer: i/o: connection refused");
    }
}
