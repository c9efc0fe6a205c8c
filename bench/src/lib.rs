//! Measures us and a peer alternately in one run, and says the ratio: these figures mean something on a noisy machine.

pub mod connections;
pub mod generator;
pub mod page;
pub mod requests;
pub mod rounds;
pub mod servers;
