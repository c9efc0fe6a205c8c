//! The part of the Python package that is written in Rust: `tollway._tollway`.
//!
//! ```text
//! python/tollway/_rate_limit.py RateLimit: decorators, blocks, docstrings
//! python/tollway/_limiter.py    Limiter: the limits of a configuration, by name
//! python/tollway/_client.py     Client: the same calls, to a server over HTTP; no Rust
//! src/enforcer.rs               one limited function: the values of its selectors, and the decision
//! src/rule_call.rs              one awaited call of it
//! src/limiter.rs                the calls of a Limiter
//! src/bill_request.rs           the charges and rules of a call, read from Python objects
//! src/pending_calls.rs          calls that an event loop waits for
//! src/rule_namespace.rs         the rules of a RateLimit
//! src/process_engine.rs         the engine of both, which survives a fork
//! ```
//!
//! A decorated function stays a plain Python function, so that everything that inspects functions still works. Only
//! the decision is made here. In memory it is made with the interpreter's lock held, because it takes less time than
//! giving the lock back. A call that waits for Redis does not hold the lock.

mod bill_request;
mod clock;
mod decision;
mod enforcer;
mod inline_limit;
mod limiter;
mod pending_calls;
mod process_engine;
mod rule_call;
mod rule_namespace;
mod selectors;

use pyo3::prelude::*;

#[pymodule]
mod _tollway {
    use pyo3::prelude::*;
    use tollway::core::Rule;

    #[pymodule_export]
    use super::clock::ManualClock;
    #[pymodule_export]
    use super::decision::{Decision, Refund, RuleDecision};
    #[pymodule_export]
    use super::enforcer::Enforcer;
    #[pymodule_export]
    use super::inline_limit::InlineLimit;
    #[pymodule_export]
    use super::limiter::NativeLimiter;
    #[pymodule_export]
    use super::pending_calls::PendingCalls;
    #[pymodule_export]
    use super::rule_call::RuleCall;
    #[pymodule_export]
    use super::rule_namespace::{Keyed, RuleNamespace};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Returns the canonical form of a rule's text.
    #[pyfunction]
    fn canonical(rule: &str) -> PyResult<String> {
        let rule: Rule = rule.parse().map_err(super::rule_namespace::rule_error)?;
        Ok(rule.to_string())
    }
}
