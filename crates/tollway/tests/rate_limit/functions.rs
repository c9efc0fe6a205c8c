//! Checks `#[tollway::limit]` on functions of every shape. Each allows one call, so that the second call shows which
//! callers are counted together.

use std::fmt::{Debug, Display};
use std::time::Duration;

use tollway::block_on;
use tollway::core::{OnFull, OnStoreFailure};
use tollway::rate_limit::{self, RateLimitError, RateLimitExceeded, RuleKeyError};
use tollway::{RateLimit, limit};

use super::{at, limits, limits_with_room};

/// A caller's own error, as such are.
#[derive(Debug, PartialEq)]
pub(crate) enum Failure {
    Denied(Option<Duration>),
    Broken,
}

impl From<RateLimitExceeded> for Failure {
    fn from(denied: RateLimitExceeded) -> Self {
        Self::Denied(denied.retry_after())
    }
}

const DENIED: Failure = Failure::Denied(Some(Duration::from_secs(1)));

/// Doc comments and other attributes stay.
#[limit("1/s", with = limits)]
#[inline(never)]
#[must_use = "it may have been denied"]
pub(crate) fn plain(limits: &RateLimit, number: u32) -> Result<u32, Failure> {
    if number == 0 {
        return Err(Failure::Broken);
    }
    Ok(number)
}

#[test]
fn a_function_that_is_denied_does_not_run() {
    let (limits, clock) = limits();
    assert_eq!(plain(&limits, 7), Ok(7));
    assert_eq!(plain(&limits, 0), Err(DENIED));
    at(&clock, 1_000);
    assert_eq!(plain(&limits, 0), Err(Failure::Broken), "what it comes to does not matter");
    assert_eq!(plain(&limits, 7), Err(DENIED));
}

#[limit("user:1/s", with = limits, user)]
fn by_argument(limits: &RateLimit, user: String) -> Result<String, Failure> {
    Ok(user)
}

#[limit("Or('user:1/s', 'page:1/s')", with = limits, user = user.as_ref(), page = Some(page + 1),)]
fn by_expression<'a>(
    limits: &RateLimit,
    user: impl AsRef<str>,
    page: u64,
    text: &'a str,
) -> Result<&'a str, Failure> {
    Ok(text)
}

#[limit("user:1/s", with = limits, user = parse(token)?)]
fn by_what_may_fail(limits: &RateLimit, token: &str) -> Result<(), Failure> {
    Ok(())
}

fn parse(token: &str) -> Result<Option<&str>, Failure> {
    token.strip_prefix("user ").map(Some).ok_or(Failure::Broken)
}

#[limit("id:1/s", with = limits, id = id.to_string())]
fn generic<T, const N: usize>(
    limits: &RateLimit,
    id: T,
    (first, ..): (u8, [u8; N]),
) -> Result<(T, u8), Failure>
where
    T: Display + Clone + Debug,
{
    Ok((id.clone(), first))
}

#[test]
fn selectors_are_expressions_over_arguments() {
    let (limits, _) = limits();
    for (user, allowed) in [("vova", true), ("vova", false), ("anna", true), ("", true), ("", true)] {
        assert_eq!(by_argument(&limits, user.to_owned()).is_ok(), allowed, "{user}");
    }
    for (user, page, allowed) in
        [("vova", 1, true), ("vova", 2, false), ("anna", 1, false), ("anna", 2, true)]
    {
        assert_eq!(by_expression(&limits, user, page, "text").is_ok(), allowed, "{user} {page}");
    }
    assert_eq!(by_what_may_fail(&limits, "token"), Err(Failure::Broken));
    assert_eq!(by_what_may_fail(&limits, "user vova"), Ok(()));
    assert_eq!(by_what_may_fail(&limits, "user vova"), Err(DENIED));
    assert_eq!(generic(&limits, 1, (7, [8])), Ok((1, 7)));
    assert_eq!(
        generic(&limits, "1", (7, [])),
        Err(DENIED),
        "all instances of a generic function are one function"
    );
}

/// Reads its selector through a guard that is released before the answer is awaited, so the future is `Send`.
#[limit("user:1/s", with = limits, user = users.lock().unwrap().first())]
async fn awaited(limits: &RateLimit, users: &std::sync::Mutex<Vec<String>>) -> Result<usize, Failure> {
    tokio::task::yield_now().await;
    Ok(users.lock().unwrap().len())
}

fn sent<F: Future + Send>(future: F) -> F {
    future
}

#[test]
fn async_functions_are_awaited_and_can_be_sent() {
    let (limits, _) = limits();
    let users = vec!["vova".to_owned()].into();
    assert_eq!(block_on(sent(awaited(&limits, &users))), Ok(1));
    let later = awaited(&limits, &users);
    users.lock().unwrap()[0] = "anna".to_owned();
    assert_eq!(block_on(later), Ok(1), "nothing is asked before it is polled");
    assert_eq!(block_on(awaited(&limits, &users)), Err(DENIED));
}

struct Account {
    limits: RateLimit,
    user: String,
    uploads: u32,
}

impl Account {
    fn new(limits: &RateLimit, user: &str) -> Self {
        Self { limits: limits.clone(), user: user.to_owned(), uploads: 0 }
    }

    fn user(&self) -> Option<&str> {
        Some(&self.user)
    }

    #[limit("user:1/s", with = self.limits, user = self.user())]
    fn look(&self) -> Result<u32, Failure> {
        Ok(self.uploads)
    }

    #[limit("user:1/s", with = self.limits, user = self.user)]
    async fn upload(&mut self, count: u32) -> Result<u32, Failure> {
        self.uploads += count;
        Ok(self.uploads)
    }

    #[limit("user:1/s", with = self.limits, user = self.user)]
    fn close(mut self) -> Result<String, Failure> {
        Ok(std::mem::take(&mut self.user))
    }

    #[limit("user:1/s", with = self.limits, user = self.user)]
    fn share(self: &std::sync::Arc<Self>) -> Result<usize, Failure> {
        Ok(std::sync::Arc::strong_count(self))
    }
}

trait Greet {
    async fn greet(&self) -> Result<String, Failure>;

    fn name(&self) -> String;

    #[limit("1/s", with = limits)]
    fn introduce(&self, limits: &RateLimit) -> Result<String, Failure> {
        Ok(self.name())
    }
}

impl Greet for Account {
    #[tollway::limit("user:1/s", with = self.limits, user = self.user)]
    async fn greet(&self) -> Result<String, Failure> {
        Ok(format!("hello {}", self.user))
    }

    fn name(&self) -> String {
        self.user.clone()
    }
}

#[test]
fn methods_are_limited_whatever_self_is() {
    let (limits, _) = limits();
    let account = || Account::new(&limits, "vova");
    assert_eq!(account().look(), Ok(0));
    assert_eq!(account().look(), Err(DENIED));
    assert_eq!(Account::new(&limits, "anna").look(), Ok(0));
    let mut busy = account();
    assert_eq!(block_on(sent(busy.upload(3))), Ok(3));
    assert_eq!(block_on(busy.upload(3)), Err(DENIED));
    assert_eq!(busy.uploads, 3);
    assert_eq!(account().close().as_deref(), Ok("vova"));
    assert_eq!(account().close(), Err(DENIED));
    assert_eq!(std::sync::Arc::new(account()).share(), Ok(1));
    assert_eq!(block_on(account().greet()).as_deref(), Ok("hello vova"));
    assert_eq!(block_on(account().greet()), Err(DENIED));
    assert_eq!(account().introduce(&limits).as_deref(), Ok("vova"));
    assert_eq!(account().introduce(&limits), Err(DENIED));
}

macro_rules! endpoint {
    ($name:ident, $rule:literal, $selector:ident = $value:expr, $returns:ty) => {
        #[limit($rule, with = limits, $selector = $value)]
        fn $name(limits: &RateLimit) -> $returns {
            Ok(())
        }
    };
}

endpoint!(written_by_a_macro, "user:1/s", user = "vova", Result<(), Failure>);

#[test]
fn functions_that_macros_write_are_functions() {
    let (limits, _) = limits();
    assert_eq!(written_by_a_macro(&limits), Ok(()));
    assert_eq!(written_by_a_macro(&limits), Err(DENIED));
}

mod one {
    #[tollway::limit("1/s", with = limits)]
    pub(super) fn of_one_name(limits: &tollway::RateLimit) -> Result<(), super::Failure> {
        Ok(())
    }
}

mod other {
    #[tollway::limit("1/s", with = limits)]
    pub(super) fn of_one_name(limits: &tollway::RateLimit) -> Result<(), super::Failure> {
        Ok(())
    }
}

#[test]
fn functions_of_one_name_are_counted_together_in_a_namespace_and_not_across() {
    let (limits, _) = limits();
    assert_eq!(one::of_one_name(&limits), Ok(()));
    assert_eq!(other::of_one_name(&limits), Err(DENIED));
    assert_eq!(other::of_one_name(&limits.with_namespace("other")), Ok(()));
    assert_eq!(other::of_one_name(&limits), Err(DENIED));
}

#[limit("user:1/s", with = limits, key = "cats", user)]
fn good_kitty(limits: &RateLimit, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[limit(with = limits, key = "cats", user)]
async fn bad_kitty(limits: &RateLimit, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[limit("user:1/s", with = limits, key = "cats", user)]
fn copycat(limits: &RateLimit, user: &str) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

#[limit(with = limits, key = "cats")]
fn stray(limits: &RateLimit) -> Result<(), RateLimitError> {
    Ok(())
}

#[test]
fn a_key_is_shared_and_has_its_rule_from_the_first() {
    let (limits, _) = limits();
    let key = || "cats".to_owned();
    let not_yet = RateLimitError::Key(RuleKeyError::NotDefined { key: key() });
    assert_eq!(block_on(bad_kitty(&limits, "tom")), Err(not_yet));
    assert_eq!(good_kitty(&limits, "tom"), Ok(()));
    let denied = block_on(bad_kitty(&limits, "tom")).unwrap_err();
    assert_eq!(denied.to_string(), "rate limit exceeded: cats, user:1/s; retry after 1s");
    assert_eq!(block_on(bad_kitty(&limits, "felix")), Ok(()));
    assert!(good_kitty(&limits, "felix").is_err());
    let twice = RuleKeyError::DefinedTwice { key: key() };
    assert_eq!(copycat(&limits, "garfield").unwrap_err().to_string(), twice.to_string());
    let unsaid = stray(&limits).unwrap_err().to_string();
    assert_eq!(unsaid, "rule \"user:1/s\" needs a value for selector \"user\", but the call has none");
}

#[test]
fn a_key_can_be_defined_before_any_function_is_called() {
    let (limits, _) = limits();
    assert!(limits.limit("user:2/s").unwrap().key("cats").define().is_ok());
    for allowed in [true, true, false] {
        assert_eq!(block_on(bad_kitty(&limits, "tom")).is_ok(), allowed);
    }
}

#[limit("user:1/s", with = limits, user, on_full = OnFull::Allow, on_store_failure = OnStoreFailure::Deny)]
fn when_full(limits: &RateLimit, user: u32) -> Result<(), Failure> {
    Ok(())
}

#[test]
fn a_full_store_is_answered_for_as_the_function_says() {
    let (limits, _) = limits_with_room(1);
    assert_eq!(when_full(&limits, 1), Ok(()));
    assert_eq!(when_full(&limits, 2), Ok(()), "there is no room, and it allows then");
    assert!(by_argument(&limits, "vova".to_owned()).is_err(), "it does not say so");
    assert_eq!(when_full(&limits, 1), Err(DENIED));
}

#[limit("1/d")]
fn global() -> Result<(), RateLimitExceeded> {
    Ok(())
}

/// The only test here that asks the global one, since it can be set once.
#[test]
fn the_global_limits_are_set_once_and_asked_by_who_names_no_other() {
    let (limits, _) = limits();
    assert_eq!(rate_limit::set_global(limits.with_namespace("global")), Ok(()));
    assert_eq!(rate_limit::set_global(limits.clone()), Err(rate_limit::GlobalAlreadySet));
    assert_eq!(global(), Ok(()));
    let denied = global().unwrap_err();
    assert_eq!((denied.key(), denied.retry_after()), ("global", Some(Duration::from_secs(86_400))));
    assert_eq!(limits.limiter().engine().stats().buckets, 1);
}

#[limit("And()", with = limits)]
fn never(limits: &RateLimit) -> Result<(), RateLimitExceeded> {
    Ok(())
}

#[test]
fn what_no_waiting_lifts_has_no_moment() {
    let denied = never(&limits().0).unwrap_err();
    assert_eq!(denied.retry_after(), None);
    assert_eq!(denied.to_string(), "rate limit exceeded: never, And(); waiting does not help");
    assert!(!denied.degraded());
}
