//! Tests that the layer identifies clients and acts on decisions, also inside axum, hyper and tonic.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod delayed;
mod fleet;
mod gatekeeper;
mod identify;
mod layer;
mod pages;
mod remote;
mod servers;
mod support;
