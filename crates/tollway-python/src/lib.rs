//! The part of the Python package that is fast: `tollway._tollway`.
//!
//! ```text
//! python/tollway/_limit.py    what a Python programmer sees: decorators, blocks, docstrings
//! src/asker.rs                 one call of one function: its selectors' values, and the decision
//! src/mailbox.rs               answers that are still to come, for an event loop
//! src/engine.rs                a limiter, and the rules of a namespace
//! ```
//!
//! What is decorated stays a plain Python function, so that everything that looks at functions still understands it; all that
//! happens for each call beyond calling is here. In memory a decision is made with the interpreter's lock held, for it takes
//! less time than giving the lock back; whoever waits for Redis does not hold it.

mod asker;
mod clock;
mod decision;
mod engine;
mod mailbox;
mod selectors;

use pyo3::prelude::*;

#[pymodule]
mod _tollway {
    use pyo3::prelude::*;
    use tollway::core::Rule;

    #[pymodule_export]
    use super::asker::Asker;
    #[pymodule_export]
    use super::clock::ManualClock;
    #[pymodule_export]
    use super::decision::Decision;
    #[pymodule_export]
    use super::engine::{Engine, Keyed};
    #[pymodule_export]
    use super::mailbox::Mailbox;

    /// The canonical form of a rule's text.
    #[pyfunction]
    fn canonical(rule: &str) -> PyResult<String> {
        let rule: Rule = rule.parse().map_err(super::engine::rule_error)?;
        Ok(rule.to_string())
    }
}
