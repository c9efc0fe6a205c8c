//! Tests the server over real sockets: each gate, its clients good and bad, and the traces.
//!
//! One program, so that what tests have in common is built and linked once.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod admin;
mod browsers;
mod clients;
mod console;
mod dashboard;
mod disclosure;
mod envoy;
mod hostile;
mod http;
mod lifecycle;
mod openapi;
mod proxies;
mod pyzmq;
mod redis_clients;
mod resp;
mod rls;
mod rules;
mod signed_text;
mod smockron;
#[cfg(feature = "otel")]
mod spans;
mod support;
mod tap;
mod text;
mod throttr;
mod tls;
mod tokens;
mod traces;
mod watch;
