//! Rules that cannot be parsed.
#![allow(unused_variables)]

use tollway_macros::limit;

#[limit("10/fortnight")]
fn no_span() -> Result<(), ()> {
    Ok(())
}

#[limit("Or('10/s', And('user:5/m' 'apikey:3/m'))", user, apikey)]
fn no_comma(user: u64, apikey: &str) -> Result<(), ()> {
    Ok(())
}

const RULE: &str = "10/s";

#[limit(RULE)]
fn no_string() -> Result<(), ()> {
    Ok(())
}

#[limit(10 / s)]
fn no_quotes() -> Result<(), ()> {
    Ok(())
}

#[limit]
fn no_rule() -> Result<(), ()> {
    Ok(())
}

fn main() {}
