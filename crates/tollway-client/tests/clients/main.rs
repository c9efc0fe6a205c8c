//! The clients of every gate, beside peers that do what they are told to. They are one program, which is linked once.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod gatekeeper;
mod http;
mod text;
mod throttr;
