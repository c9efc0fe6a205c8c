//! Each algorithm against a second, naive implementation, on random histories.
//!
//! Both ways: what is admitted is never too much, and what conforms is never denied. A million decisions each in
//! the ordinary suite; more with `TOLLGATE_DECISIONS`.

mod history;
mod naive;
mod quota;
mod random;
mod sliding_log;
mod smoothed_rate;
mod token_bucket;
