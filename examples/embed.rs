//! A login form that nobody can hammer: `cargo run -p tollway --example embed`
//!
//! One request is charged to two limits at once, the account's and the address's. If either denies, neither pays: one
//! colleague who mistypes all morning does not use up the address that the whole office shares.

use std::error::Error;

use tollway::core::{IdFormat, Limit};
use tollway::limiter::{BuildError, LimiterError};
use tollway::{ChargeRequest, Clock, Decision, IntoAlgorithm, Limiter, TokenBucket};

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = limiter(Clock::monotonic())?;
    for attempt in 1..=6 {
        let decision = login(&limiter, "alice", "192.0.2.7")?;
        match decision.allowed() {
            true => println!("attempt {attempt}: go on, {} left", decision.remaining),
            false => match decision.retry_after() {
                Some(wait) => println!("attempt {attempt}: wait {}s", wait.as_secs_f64().ceil()),
                None => println!("attempt {attempt}: waiting does not help"),
            },
        }
    }
    // The password was right after all: the account's attempt is given back.
    let refund = limiter.refund("LoginsPerAccount", "alice", 1)?;
    println!("after a refund: {} left", refund.remaining);
    Ok(())
}

/// Allows five attempts at an account, then one every twelve seconds; twenty from an address, then one every three.
fn limiter(clock: Clock) -> Result<Limiter, Box<dyn Error>> {
    let per_address = TokenBucket::per_minute(20).into_algorithm()?;
    let limiter = Limiter::builder()
        .limit("LoginsPerAccount", TokenBucket::per_minute(5))
        .custom_limit(Limit::new("LoginsPerAddress")?.with_ids(IdFormat::IP).with_default(per_address))
        .clock(clock)
        .build();
    limiter.map_err(BuildError::into)
}

/// Charges one attempt to the account and to the address, or to neither.
fn login(limiter: &Limiter, account: &str, address: &str) -> Result<Decision, LimiterError> {
    limiter.spend_all(&[
        ChargeRequest::new("LoginsPerAccount", account, 1),
        ChargeRequest::new("LoginsPerAddress", address, 1),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway::core::Timestamp;

    use super::*;

    /// A test sets the clock instead of waiting for it.
    #[test]
    fn a_denied_login_costs_the_address_nothing() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let limiter = limiter(clock.clone()).unwrap();
        for _ in 0..5 {
            assert!(login(&limiter, "alice", "192.0.2.7").unwrap().allowed());
        }
        assert_eq!(
            login(&limiter, "alice", "192.0.2.7").unwrap().retry_after(),
            Some(Duration::from_secs(12))
        );
        assert_eq!(limiter.check("LoginsPerAddress", "192.0.2.7", 0).unwrap().remaining, 15);

        clock.advance(Duration::from_secs(12));
        assert!(login(&limiter, "alice", "192.0.2.7").unwrap().allowed());
    }
}
