//! The parts of the project's own tools that its tests use as well.

pub mod words;
