//! [`Cause`]: the error of a library that one of ours has as its source.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tollway_core::ErrorChain;

/// An error that another one has as its [`source`](Error::source). It can be cloned, whatever error it is, because an
/// outage fails many calls at once. Two causes are equal if they print the same.
///
/// It prints the error with the causes that that one has.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Returns a cause with this error, or with this text.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into().into())
    }
}

/// Gives the error itself, so that `source` can be downcast to its type.
impl Deref for Cause {
    type Target = dyn Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ErrorChain(&*self.0).fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}
