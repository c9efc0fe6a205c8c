//! A login form that nobody can hammer: `cargo run -p tollway --example embed`
//!
//! One request is charged to two limits at once, the account's and the address's. If either refuses, neither pays: one
//! colleague who mistypes all morning does not use up the address that the whole office shares.

use std::error::Error;

use tollway::Limiter;
use tollway::core::algorithm::{Algorithm, TokenBucket};
use tollway::core::{Bill, Decision, IdFormat, Limit, Policy};

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(policy()?);
    for attempt in 1..=6 {
        let decision = login(&limiter, "alice", "192.0.2.7")?;
        match decision.allowed() {
            true => println!("attempt {attempt}: go on, {} left", decision.remaining),
            false => println!("attempt {attempt}: wait {}s", decision.retry_after().as_secs_f64().ceil()),
        }
    }
    // The password was right after all: the account's attempt is given back.
    let refund = limiter.refund("LoginsPerAccount", "alice", 1)?;
    println!("after a refund: {} left", refund.remaining);
    Ok(())
}

/// Five attempts at an account, then one every twelve seconds; twenty from an address, then one every three.
fn policy() -> Result<Policy, Box<dyn Error>> {
    let account = TokenBucket::new(5, 5, "1m".parse()?)?;
    let address = TokenBucket::new(20, 20, "1m".parse()?)?;
    Ok(Policy::new(vec![
        Limit::new("LoginsPerAccount")?.with_default(Algorithm::TokenBucket(account)),
        Limit::new("LoginsPerAddress")?
            .with_ids(IdFormat::IpAddress)
            .with_default(Algorithm::TokenBucket(address)),
    ])?)
}

/// May this attempt go on?
fn login(limiter: &Limiter, account: &str, address: &str) -> Result<Decision, Box<dyn Error>> {
    let policy = limiter.policy();
    let charges = [
        policy.charge("LoginsPerAccount", account.as_bytes(), 1)?,
        policy.charge("LoginsPerAddress", address.as_bytes(), 1)?,
    ];
    Ok(limiter.settle(&[Bill::new(&charges)?])[0])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway::Clock;
    use tollway::core::{Nanos, Timestamp};
    use tollway::store::memory::{MAX_BUCKETS, Memory};

    use super::*;

    /// A test sets the clock instead of waiting for it.
    #[test]
    fn a_refused_login_costs_the_address_nothing() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let limiter = Limiter::with(policy().unwrap(), Memory::new(MAX_BUCKETS), clock.clone());
        for _ in 0..5 {
            assert!(login(&limiter, "alice", "192.0.2.7").unwrap().allowed());
        }
        assert_eq!(login(&limiter, "alice", "192.0.2.7").unwrap().retry_after(), Duration::from_secs(12));
        assert_eq!(limiter.check("LoginsPerAddress", "192.0.2.7", 0).unwrap().remaining, 15);

        clock.set(Timestamp::EPOCH + Nanos::from_secs(12));
        assert!(login(&limiter, "alice", "192.0.2.7").unwrap().allowed());
    }
}
