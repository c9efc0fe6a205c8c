"""The language, from Python."""

import pytest

from tollway import And, Or, RateLimit, RuleError


def test_rules_are_printed_in_canonical_form():
    rule = And("apikey:100/60m", Or("10/1s", And("15/m", "apikey:5/s:0.1")))
    assert str(rule) == repr(rule) == "And('apikey:100/h', Or('10/s', And('15/m', 'apikey:5/s')))"
    assert rule == And(" apikey:100/h", Or("10/s", "And('15/m','apikey:5/s')"))
    assert len({Or("60/m", "1/s"), Or("60/60s", "1/s")}) == 1
    assert Or("1/s") != And("1/s") and Or() == Or() and str(Or()) == "Or()"


@pytest.mark.parametrize("make", [
    lambda rl: rl.limit("10/fortnight"),
    lambda rl: Or("1/s", "10/fortnight"),
    lambda rl: And(Or("1/s", And("10/fortnight"))),
    lambda rl: rl.limit("Or('1/s', '10/fortnight')"),
])
def test_a_malformed_rule_is_an_error_where_it_stands(local, make):
    with pytest.raises(RuleError) as error:
        make(local)
    assert isinstance(error.value, ValueError)
    *_, text, caret = str(error.value).splitlines()
    assert text[caret.index("^"):][:caret.count("^")] == "fortnight"


@pytest.mark.parametrize("rule", ["", "10", "/s", "10/", "-1/s", "1.5/s", "user:", "Xor('1/s')", "Or('1/s'", "10/s 10/s"])
def test_what_is_no_rule(local, rule):
    with pytest.raises(RuleError):
        local.limit(rule)


@pytest.mark.parametrize("rule", [7, 1.5, b"1/s", ["1/s"]])
def test_what_is_no_text(local, rule):
    with pytest.raises((RuleError, TypeError)):
        local.limit(rule)
    with pytest.raises((RuleError, TypeError)):
        And(rule)


@pytest.mark.parametrize("rule, allowed", [
    (And(), 0), (Or(), 20), ("0/s", 0), (Or("0/s", "5/s"), 0), (And("0/s", "5/s"), 5), (And(Or(), "1/s"), 20),
    (And(And(), "3/s"), 3), ("Or('7/s', And())", 0), ("1/ms", 1), ("2/d", 2),
])
def test_odd_rules(rl, rule, allowed):
    limit = rl.limit(rule)
    assert sum(limit.ask().allowed for _ in range(20)) == allowed


def test_a_decision_without_an_exception(rl, clock):
    limit = rl.limit("2/10s", key="it")
    first, _, denied = limit.ask(), limit.ask(), limit.ask()
    assert (bool(first), first.allowed, first.retry_after, first.degraded) == (True, True, 0.0, False)
    assert (bool(denied), denied.allowed, denied.retry_after) == (False, False, 10.0)
    assert repr(denied) == "RuleDecision(allowed=False, remaining=0, retry_after=10.0, degraded=False)"
    clock.advance(10)
    assert limit.ask()


@pytest.mark.parametrize("url", [
    "redis", "memcached://host", "redis://", "redis://user:s3cret@", "redis://:s3cret@host:99999", "http://s3cret@host",
    "redis://:s3cret@host/nine", "redis://:s3cret@host?deadline=never",
])
def test_a_bad_url_is_an_error_without_its_password(url):
    with pytest.raises(ValueError) as error:
        RateLimit(url)
    assert "s3cret" not in str(error.value) and str(error.value).startswith("store ")


def test_what_is_no_store():
    with pytest.raises(TypeError, match="redis://"):
        RateLimit(object())
    with pytest.raises(ValueError, match="on_store_failure"):
        RateLimit(on_store_failure="shrug")
    assert repr(RateLimit(namespace="shop", disable_locks=True)) == "RateLimit('memory', namespace='shop')"
    assert "s3cret" not in repr(RateLimit("redis://:s3cret@127.0.0.1:1"))


def test_a_manual_clock_stands_until_it_is_moved(local, clock):
    assert clock.now == 0.0
    clock.set(5)
    clock.advance(0.25)
    assert clock.now == 5.25 and repr(clock) == "ManualClock(5.25)"
    for wrong in (-1, float("nan"), float("inf"), 1e18):
        with pytest.raises(ValueError):
            clock.set(wrong)
