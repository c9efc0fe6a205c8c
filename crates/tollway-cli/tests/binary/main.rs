//! The real binary, in processes of its own: every command, and every page that shows one.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod bench;
mod buckets;
mod commands;
mod explain;
mod faults;
mod fleet;
mod fleet_page;
mod gate_pages;
mod guard;
mod guard_process;
mod handover;
mod http_page;
mod journal;
mod packaging;
mod page;
mod pages;
mod record;
mod replay;
mod run;
mod serve;
mod serving;
mod signed_text_page;
mod smockron_page;
mod store;
mod text;
mod throttr;
mod tls;
mod tls_page;
mod tokens;
mod top;
mod upstream;
