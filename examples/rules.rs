//! Puts rules on a method and on a block: `cargo run -p tollway --example rules`
//!
//! The method sends letters: each sender may send ten in five minutes, and each address gets two in a second from all
//! senders together. A letter that is denied is counted nowhere. The block prints pages.

use std::error::Error;

use tollway::rate_limit::{RateLimitExceeded, global, set_global};
use tollway::{Limiter, RateLimit};

fn main() -> Result<(), Box<dyn Error>> {
    // For a fleet the text is `store: redis://cache:6379`, and nothing else differs.
    let limiter = Limiter::from_yaml("limits: {}")?;
    set_global(RateLimit::new(limiter).with_namespace("mail"))?;

    let mut letters = Mailbox { owner: "vova".to_owned(), sent: 0 };
    for address in ["anna", "anna", "anna", "tom"] {
        match letters.send(address) {
            Ok(sent) => println!("to {address}: sent, {sent} in all"),
            Err(Undelivered::TooMany(denied)) => println!("to {address}: {denied}"),
        }
    }
    print_in_blocks()
}

struct Mailbox {
    owner: String,
    sent: u32,
}

/// The reason that a letter was not delivered.
#[derive(Debug, PartialEq)]
enum Undelivered {
    TooMany(RateLimitExceeded),
}

impl From<RateLimitExceeded> for Undelivered {
    fn from(denied: RateLimitExceeded) -> Self {
        Self::TooMany(denied)
    }
}

impl Mailbox {
    #[tollway::limit("Or('from:10/5m', 'to:2/s')", from = self.owner, to = address)]
    fn send(&mut self, address: &str) -> Result<u32, Undelivered> {
        self.sent += 1;
        Ok(self.sent)
    }
}

/// Limits a block of code that is not a function of its own.
fn print_in_blocks() -> Result<(), Box<dyn Error>> {
    let printer = global().limit("3/m")?.key("printer");
    for page in 1..=4 {
        match printer.run(|| println!("page {page}")) {
            Ok(()) => {}
            Err(error) => println!("page {page}: {error}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway::core::{Policy, Timestamp};
    use tollway::rate_limit::RateLimitError;
    use tollway::store::memory::{MAX_BUCKETS, Memory};
    use tollway::{Clock, limit};

    use super::*;

    #[test]
    fn it_runs() {
        main().unwrap();
    }

    struct Cat {
        limits: RateLimit,
    }

    impl Cat {
        #[limit("owner:1/s", with = self.limits, key = "cats", owner)]
        fn stroke(&self, owner: &str) -> Result<&'static str, RateLimitError> {
            Ok("purr")
        }

        #[limit(with = self.limits, key = "cats", owner)]
        async fn feed(&self, owner: &str) -> Result<&'static str, RateLimitError> {
            Ok("purr")
        }
    }

    #[test]
    fn cats_have_one_clock() {
        let clock = Clock::manual(Timestamp::EPOCH);
        let limiter = Limiter::with(Policy::default(), Memory::new(MAX_BUCKETS), clock.clone());
        let cat = Cat { limits: RateLimit::new(limiter) };
        assert_eq!(cat.stroke("vova"), Ok("purr"));
        assert!(matches!(cat.stroke("vova"), Err(RateLimitError::Exceeded(_))));

        clock.advance(Duration::from_secs(1));
        assert_eq!(tollway::block_on(cat.feed("vova")), Ok("purr"));
        assert!(cat.stroke("vova").is_err());
    }
}
