//! The engine over its stores: domains, and the pages about policies and rules. They are one program, linked once.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod descriptors;
mod domains;
mod pages;
mod rules_page;
