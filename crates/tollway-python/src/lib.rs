//! The part of the Python package that is fast: `tollway._tollway`.
//!
//! ```text
//! python/tollway/_limit.py    what a Python programmer sees: decorators, blocks, docstrings
//! src/enforcer.rs                 one call of one function: its selectors' values, and the decision
//! src/pending_calls.rs               answers that are still to come, for an event loop
//! src/rule_namespace.rs                a limiter, and the rules of a namespace
//! ```
//!
//! What is decorated stays a plain Python function, so that everything that looks at functions still understands it; all that
//! happens for each call beyond calling is here. In memory a decision is made with the interpreter's lock held, for it takes
//! less time than giving the lock back; whoever waits for Redis does not hold it.

mod clock;
mod decision;
mod enforcer;
mod pending_calls;
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
    use super::decision::Decision;
    #[pymodule_export]
    use super::enforcer::Enforcer;
    #[pymodule_export]
    use super::pending_calls::PendingCalls;
    #[pymodule_export]
    use super::rule_namespace::{Keyed, RuleNamespace};

    /// The canonical form of a rule's text.
    #[pyfunction]
    fn canonical(rule: &str) -> PyResult<String> {
        let rule: Rule = rule.parse().map_err(super::rule_namespace::rule_error)?;
        Ok(rule.to_string())
    }
}
