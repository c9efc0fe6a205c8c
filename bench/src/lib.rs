//! Measures us and a peer alternately in one run, and says the ratio: these figures mean something on a noisy machine.

pub mod crowd;
pub mod generator;
pub mod page;
pub mod peers;
pub mod requests;
pub mod rounds;
