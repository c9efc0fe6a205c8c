//! Every codec, with anything that a peer may send. They are one program, which is linked once.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod http;
mod http_headers;
mod problems;
mod resp_replies;
mod response;
mod rls;
mod text;
mod throttr;
mod zmtp;
