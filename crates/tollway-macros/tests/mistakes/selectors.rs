//! Selectors that the rule does not have, or that are missing.
#![allow(unused_variables)]

use tollway_macros::limit;

#[limit("And('user:10/5m', 'apikey:100/m')", user)]
fn not_given(user: u64) -> Result<(), ()> {
    Ok(())
}

#[limit("And('user:10/5m', '100/m')", user, usr = user)]
fn not_needed(user: u64) -> Result<(), ()> {
    Ok(())
}

#[limit("10/s", namespace = "shop")]
fn no_option() -> Result<(), ()> {
    Ok(())
}

#[limit("user:10/s", user, user = 7)]
fn given_twice(user: u64) -> Result<(), ()> {
    Ok(())
}

#[limit("with:10/s", with)]
fn an_option(with: u64) -> Result<(), ()> {
    Ok(())
}

#[limit("with:10/s")]
fn an_option_too(with: u64) -> Result<(), ()> {
    Ok(())
}

#[limit("10/s", key = name)]
fn no_literal(name: &str) -> Result<(), ()> {
    Ok(())
}

fn main() {}
