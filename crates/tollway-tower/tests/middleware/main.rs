//! The layer: whose request it is, whoever is asked about it, and what becomes of it, also inside other people's servers.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod delayed;
mod gatekeeper;
mod identify;
mod layer;
mod pages;
mod remote;
mod servers;
mod support;
