//! Limits as values: blocks, and functions that are wrapped.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use tollway::block_on;
use tollway::core::{OnFull, Rule, Verdict};
use tollway::rate_limit::{RateLimitError, RuleGuard, RuleKeyError};

use super::{at, limits, limits_with_room};

#[test]
fn a_block_that_is_denied_does_not_run() {
    let (limits, clock) = limits();
    let twice = limits.limit("2/s").unwrap().key("twice");
    let ran = Cell::new(0);
    let count = || ran.replace(ran.get() + 1);
    assert_eq!(twice.run(count), Ok(0));
    assert_eq!(block_on(twice.run_async(async { count() })), Ok(1));
    assert!(matches!(twice.run(count), Err(RateLimitError::Exceeded(_))));
    assert!(matches!(block_on(twice.run_async(async { count() })), Err(RateLimitError::Exceeded(_))));
    assert_eq!(ran.get(), 2);
    at(&clock, 1_000);
    assert_eq!(twice.enter().unwrap().decision().verdict, Verdict::Allow);
    assert!(block_on(twice.enter_async()).is_ok());
    assert!(twice.enter().is_err());
}

#[test]
fn blocks_without_a_key_are_counted_together() {
    let (limits, _) = limits();
    let [one, other] = ["1/s", "2/s"].map(|rule| limits.limit(rule).unwrap());
    assert!(one.enter().is_ok());
    assert!(one.enter().is_err());
    assert!(other.enter().is_ok());
    assert!(other.enter().is_err());
    assert!(limits.limit("1/s").unwrap().key("its own").enter().is_ok());
}

#[test]
fn a_block_comes_again_with_the_same_rule_and_not_with_another() {
    let (limits, _) = limits();
    let enter = |rule: &str| limits.limit(rule).unwrap().key("login").enter().map(|_| ());
    assert_eq!(
        limits.key("login").map(|_| ()).unwrap_err(),
        RuleKeyError::NotDefined { key: "login".into() }
    );
    assert_eq!(enter("2/s"), Ok(()));
    assert_eq!(enter("2/1000ms"), Ok(()));
    assert!(matches!(enter("2/s"), Err(RateLimitError::Exceeded(_))));
    assert_eq!(enter("3/s"), Err(RuleKeyError::DefinedTwice { key: "login".into() }.into()));
    assert!(matches!(limits.key("login").unwrap().enter(), Err(RateLimitError::Exceeded(_))));
}

#[test]
fn rules_come_as_text_or_ready_made() {
    let (limits, _) = limits();
    let rule: Rule = "1/s".parse().unwrap();
    assert!(limits.limit(rule).unwrap().enter().is_ok());
    assert!(limits.limit(format!("{}/s", 1)).unwrap().enter().is_err());
    let error = limits.limit("10/fortnight").map(|_| ()).unwrap_err();
    assert!(error.to_string().ends_with("\n  10/fortnight\n     ^^^^^^^^^"), "{error}");
}

#[test]
fn selectors_are_values_or_asked_for_each_time() {
    let (limits, _) = limits();
    let number = AtomicU32::new(0);
    let always = limits.limit("user:1/s").unwrap().key("always").selector("user", "vova");
    let never = limits.limit("user:1/s").unwrap().key("never").selector("user", None::<u64>);
    let next = || number.fetch_add(1, Ordering::Relaxed);
    let other = limits.limit("user:1/s").unwrap().key("other").selector("user", next);
    for first in [true, false, false] {
        assert_eq!(always.enter().is_ok(), first);
        assert!(never.enter().is_ok(), "who has no value is not counted");
        assert!(other.enter().is_ok());
    }
    assert_eq!(number.load(Ordering::Relaxed), 3);
}

#[test]
fn selectors_by_name_are_asked_after_those_by_themselves() {
    let (limits, _) = limits();
    let both = limits.limit("Or('user:1/s', 'apikey:2/s')").unwrap();
    let supply = |name: &str| match name {
        "user" => Some("nobody"),
        "apikey" => Some("k1"),
        _ => None,
    };
    let both = both.selector("user", || "vova").selectors(supply);
    assert!(both.enter().is_ok());
    assert!(both.enter().is_err());
    let nobody = limits.limit("user:1/s").unwrap().selectors(supply);
    assert!(nobody.enter().is_ok(), "it was vova who came");
}

#[test]
fn a_selector_that_nothing_supplies_is_no_denial() {
    let (limits, _) = limits();
    let missing = |guard: RuleGuard<'_>| match guard.enter() {
        Err(RateLimitError::Selector(error)) => (error.selector, error.rule),
        other => panic!("{other:?}"),
    };
    let unsaid = |selector: &str, rule: &str| (selector.to_owned(), rule.to_owned());
    let bare = limits.limit("Or('1/s', 'user:60/60s')").unwrap();
    assert_eq!(missing(bare), unsaid("user", "Or('1/s', 'user:60/m')"));
    let unknown = limits.limit("team:1/s").unwrap().selectors(|name| (name == "user").then_some("vova"));
    assert_eq!(missing(unknown), unsaid("team", "team:1/s"));
    assert!(limits.limit("1/s").unwrap().enter().is_ok(), "and nothing was logged");
}

#[test]
fn wrapped_functions_take_what_they_took() {
    let (limits, clock) = limits();
    let double = limits.limit("1/s").unwrap().key("double").wrap(|number: u32| number * 2).unwrap();
    assert_eq!(double.call(21), Ok(42));
    let denied = double.call(21).unwrap_err();
    assert_eq!(denied.to_string(), "rate limit exceeded: double, 1/s; retry after 1s");

    let add = limits.key("double").unwrap().wrap(async |(one, other): (u32, u32)| one + other).unwrap();
    assert!(block_on(add.call_async((1, 2))).is_err(), "the key is shared");
    at(&clock, 1_000);
    assert_eq!(block_on(add.call_async((1, 2))), Ok(3));

    let again = limits.limit("1/s").unwrap().key("double").wrap(|()| ());
    assert_eq!(again.map(|_| ()).unwrap_err(), RuleKeyError::DefinedTwice { key: "double".into() });
}

#[test]
fn a_wrapped_function_can_be_called_from_another_thread() {
    async fn greet(name: String) -> String {
        format!("hello {name}")
    }
    let (limits, _) = limits();
    let greet = limits.limit("user:1/s").unwrap().key("greet").selector("user", "vova").wrap(greet).unwrap();
    let call = std::thread::spawn(move || block_on(greet.call_async("vova".to_owned())));
    assert_eq!(call.join().unwrap().as_deref(), Ok("hello vova"));
}

#[test]
fn a_full_store_is_answered_for_as_the_place_says() {
    let (limits, _) = limits_with_room(1);
    let limit = |user: u32| limits.limit("user:1/s").unwrap().selector("user", user);
    assert!(limit(1).enter().is_ok());
    let Err(RateLimitError::Exceeded(full)) = limit(2).enter() else { panic!("there was room") };
    assert_eq!(full.decision().verdict, Verdict::DenyFull);
    let allowed = limit(2).on_full(OnFull::Allow).enter().unwrap();
    assert_eq!(allowed.decision().verdict, Verdict::AllowFull);

    let shared = limit(3).key("shared").on_full(OnFull::Allow);
    assert!(shared.enter().is_ok());
    assert!(limits.key("shared").unwrap().on_full(OnFull::Deny).selector("user", 4).enter().is_err());
    assert!(limits.key("shared").unwrap().selector("user", 4).enter().is_ok());
}

#[test]
fn a_function_of_a_selector_is_called_only_if_the_rule_needs_its_value() {
    let (limits, clock) = limits();
    let calls = AtomicU32::new(0);
    let user = || {
        calls.fetch_add(1, Ordering::Relaxed);
        "vova"
    };
    let called = || calls.swap(0, Ordering::Relaxed);
    let upload = limits.limit("Or('2/s', 'user:3/m')").unwrap().key("upload").selector("user", user);
    assert!(upload.enter().is_ok());
    assert!(block_on(upload.enter_async()).is_ok());
    assert_eq!(called(), 2, "who is allowed is counted under every value");
    for denied in [upload.enter(), block_on(upload.enter_async())] {
        let Err(RateLimitError::Exceeded(denied)) = denied else { panic!("{denied:?}") };
        assert_eq!(denied.retry_after(), Some(std::time::Duration::from_secs(1)));
    }
    assert_eq!(called(), 0, "everybody is over the limit");
    at(&clock, 1_000);
    assert!(upload.enter().is_ok());
    assert!(upload.enter().is_err());
    assert_eq!(called(), 2, "the user is over the limit, and nothing else is");

    let supplied = limits.limit("Or('1/s', 'user:9/s')").unwrap().key("all").selectors(|_| Some(user()));
    assert!(supplied.enter().is_ok());
    assert!(supplied.enter().is_err());
    assert_eq!(called(), 1);
    let missing =
        limits.limit("Or('0/s', 'user:9/s', 'key:1/s')").unwrap().key("missing").selector("user", user);
    assert!(
        matches!(missing.enter(), Err(RateLimitError::Selector(_))),
        "a mistake, whether it is needed or not"
    );
}
