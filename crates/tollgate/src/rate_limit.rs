//! Rules on functions and blocks of code.

mod registry;

pub use registry::{KeyError, Registry};
