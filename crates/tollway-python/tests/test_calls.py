"""A ``Limiter`` in memory, one over Redis and a ``Client`` give the same answers, awaited or not."""

import asyncio
import itertools

import pytest
from conftest import tollway_server

from tollway import (
    ChargeError,
    Client,
    Decision,
    InlineLimit,
    InvalidBill,
    InvalidCost,
    InvalidId,
    Limiter,
    NotRefundable,
    Refund,
    SelectorError,
    UnknownLimit,
    UnknownRule,
)

LIMITS = """
limits:
  login: { burst: 5, count: 5, period: 100h }
  address: { burst: 2, count: 2, period: 100h, id: ip }
  rate: { algorithm: smoothed_rate, count: 5, period: 10s }
  partners: {}
  fixed: { algorithm: fixed_window, count: 3, period: 200000h }
  sliding: { algorithm: sliding_window, count: 3, period: 200000h }
overrides:
  partners:some: { burst: 1, count: 1, period: 1s }
rules:
  upload: user:2/100h
  both: Or('user:2/100h', 'apikey:1/100h')
"""

# What a rule has counted cannot be forgotten, so each test has its own users.
users = (f"user-{number}" for number in itertools.count())

FIVE = InlineLimit(count=5, period="100h")


class Awaited:
    """Runs the awaited twin of each call to its end."""

    def __init__(self, calls, loop):
        self._calls = calls
        self._loop = loop

    def __getattr__(self, name):
        twin = getattr(self._calls, f"{name}_async")
        return lambda *args, **kwargs: self._loop.run_until_complete(twin(*args, **kwargs))


@pytest.fixture(scope="module")
def address():
    with tollway_server(LIMITS) as address:
        yield address


@pytest.fixture(params=["memory", "redis", "client"])
def kind(request):
    return request.param


@pytest.fixture(params=["blocking", "awaited"])
def calls(request, kind, urls, address):
    if kind == "client":
        made = Client(address, timeout=20)
    elif kind == "redis":
        made = Limiter.from_yaml(f"store: {urls['redis']}\n{LIMITS}")
    else:
        made = Limiter.from_yaml(LIMITS)
    for name, id in [("login", "alice"), ("login", "7"), ("login", "bob"), ("address", "192.0.2.1"),
                     ("fixed", "alice"), ("sliding", "alice"), (FIVE, "alice")]:
        made.reset(name, id)
    if request.param == "blocking":
        yield made
    else:
        loop = asyncio.new_event_loop()
        yield Awaited(made, loop)
        if kind == "client":
            loop.run_until_complete(made.close_async())
        loop.close()
    if kind == "client":
        made.close()


def test_a_spend_takes_what_fits(calls):
    allowed = calls.spend("login", "alice", 4)
    assert isinstance(allowed, Decision)
    assert allowed and allowed.allowed and allowed.remaining == 1 and allowed.limit == "login"
    assert 3600 * 79 < allowed.reset_after <= 3600 * 80 and not allowed.degraded
    denied = calls.spend("login", "alice", cost=3)
    assert not denied and not denied.allowed and denied.remaining == 1
    assert 3600 * 39 < denied.retry_after <= 3600 * 40
    assert calls.spend("login", "alice").remaining == 0


def test_a_check_takes_nothing(calls):
    assert calls.check("login", "alice", 5)
    assert calls.check("login", "alice", 5).remaining == calls.spend("login", "alice", 5).remaining == 0
    assert not calls.check("login", "alice")
    assert calls.check("login", "alice", 0).remaining == 0


def test_a_refund_gives_back_up_to_a_full_bucket(calls):
    calls.spend("login", "alice", 2)
    refund = calls.refund("login", "alice")
    assert isinstance(refund, Refund)
    assert refund and refund.refunded and refund.remaining == 4 and refund.reset_after > 0
    assert calls.refund("login", "alice", 3).remaining == 5
    assert not calls.refund("login", "alice")


def test_a_reset_forgets_the_bucket(calls):
    calls.spend("login", "alice", 5)
    assert calls.reset("login", "alice") is None
    assert calls.spend("login", "alice").remaining == 4


def test_several_charges_are_taken_as_a_whole_or_not_at_all(calls):
    bill = [("login", "alice"), ("address", "192.0.2.1", 2)]
    assert calls.check_all(bill)
    assert calls.spend_all(bill)
    denied = calls.spend_all(bill)
    assert not denied and denied.limit == "address" and denied.remaining == 0
    assert not calls.check_all(bill)
    assert calls.check("login", "alice", 0).remaining == 4


def test_several_charges_are_given_back_or_forgotten_together(calls):
    bill = [("login", "alice", 2), ("address", "192.0.2.1")]
    calls.spend_all(bill)
    refund = calls.refund_all(bill)
    assert isinstance(refund, Refund) and refund and refund.remaining == 2
    assert not calls.refund_all(bill)
    calls.spend_all(bill)
    # A reset has no cost, so none is too high for it.
    assert calls.reset_all([("login", "alice", 1000), ("address", "192.0.2.1")]) is None
    assert [calls.check(limit, id, 0).remaining for limit, id, *_ in bill] == [5, 2]


def test_limits_and_rules_are_one_bill(calls):
    user = next(users)
    charges, rules = [("login", "alice")], [("upload", {"user": user})]
    assert calls.check_all(charges, rules)
    for left in [4, 3]:
        allowed = calls.spend_all(charges, rules=rules)
        assert allowed and (allowed.limit, allowed.rule, allowed.remaining) == ("login", None, left)
    for decide in calls.check_all, calls.spend_all:
        denied = decide(charges, rules=rules)
        assert not denied and (denied.limit, denied.rule) == (None, "upload")
        assert denied.remaining is None and denied.reset_after is None and 3600 * 99 < denied.retry_after <= 3600 * 100
    assert calls.check("login", "alice", 0).remaining == 3, "what a rule denies takes nothing"


def test_a_rule_counts_nothing_if_a_limit_denies(calls):
    rules = [("upload", {"user": next(users)})]
    calls.spend("login", "alice", 5)
    denied = calls.spend_all([("login", "alice")], rules)
    assert not denied and (denied.limit, denied.rule, denied.remaining) == ("login", None, 0)
    assert [bool(calls.spend_all([], rules)) for _ in range(3)] == [True, True, False]


def test_rules_alone_are_a_bill(calls):
    user = next(users)
    allowed = calls.spend_all([], rules=[("both", {"user": user, "apikey": None}), ("upload", {"user": user})])
    assert allowed == Decision(True, None, 0.0, None, None, rule="both")
    # Selectors that the rule does not have are ignored, and so are those that have no value.
    assert calls.spend_all([], rules=[("upload", {"user": "", "other": "x"})])


def test_a_rule_may_be_counted_under_another_key(calls):
    user, key = next(users), next(users)
    for rule in [("upload", {"user": user}), ("upload", {"user": user}, key)]:
        assert [bool(calls.spend_all([], [rule])) for _ in range(3)] == [True, True, False]


def test_the_value_of_a_selector_is_text_bytes_or_a_number(calls):
    user = 10**6 + int(next(users)[5:])
    values = [user, str(user), str(user).encode()]
    assert [bool(calls.spend_all([], [("upload", {"user": value})])) for value in values] == [True, True, False]
    for value in [True, 1.5, ["a"], lambda: "vova"]:
        with pytest.raises(TypeError, match="the value of a selector must be a str, bytes, an int or None, not"):
            calls.spend_all([], [("upload", {"user": value})])


def test_an_inline_limit_brings_its_numbers(calls):
    allowed = calls.spend(FIVE, "alice", 4)
    assert allowed and allowed.remaining == 1 and allowed.limit == "inline/throttle"
    assert not calls.check(FIVE, "alice", 2)
    # The bucket is that of the id, whatever the numbers are: 4 of 10 are used.
    assert calls.check(InlineLimit(count=5, period="100h", burst=10), "alice", 0).remaining == 6
    assert calls.refund(FIVE, "alice", 2).remaining == 3
    assert not calls.spend_all([(FIVE, "alice", 4), ("login", "alice")])
    assert calls.spend_all([(FIVE, "alice", 3), ("login", "alice")]).limit == "inline/throttle"
    assert calls.check("login", "alice", 0).remaining == 4
    assert calls.reset(FIVE, "alice") is None
    assert calls.check(FIVE, "alice", 0).remaining == 5


def test_an_inline_limit_and_a_rule_are_one_bill(calls):
    rules = [("upload", {"user": next(users)})]
    assert [calls.spend_all([(FIVE, "alice")], rules).rule for _ in range(3)] == [None, None, "upload"]
    assert calls.check(FIVE, "alice", 0).remaining == 3


@pytest.mark.parametrize("limit", ["fixed", "sliding"])
def test_windows_count(calls, limit):
    assert [calls.spend(limit, "alice").remaining for _ in range(3)] == [2, 1, 0]
    denied = calls.spend_all([("login", "alice"), (limit, "alice")])
    assert not denied and denied.limit == limit and denied.retry_after > 0
    assert calls.refund(limit, "alice", 2).remaining == 2
    with pytest.raises(InvalidCost):
        calls.spend(limit, "alice", 4)


def test_an_id_is_text_bytes_or_a_number(calls):
    assert [calls.spend("login", id).remaining for id in ["7", b"7", 7]] == [4, 3, 2]
    assert calls.spend("login", "bob\u00e9").limit == "login"
    for id in [None, 1.5, ["a"]]:
        with pytest.raises(TypeError, match="id must be a str, bytes or an int, not"):
            calls.spend("login", id)


def test_an_id_without_a_limit_has_nothing_to_count(calls):
    decision = calls.spend("partners", "other", 1000)
    assert decision and decision.remaining is None and decision.reset_after == 0.0
    assert calls.refund("partners", "other").remaining is None


@pytest.mark.parametrize("error, verb, args", [
    (UnknownLimit, "spend", ("nope", "alice")),
    (UnknownLimit, "reset", ("nope", "alice")),
    (InvalidId, "spend", ("address", "not an address")),
    (InvalidCost, "spend", ("login", "alice", 6)),
    (InvalidCost, "check", ("login", "alice", -1)),
    (InvalidCost, "refund", ("login", "alice", 2**64)),
    (NotRefundable, "refund", ("rate", "alice")),
    (InvalidBill, "spend_all", ([("login", "alice"), ("login", "alice")],)),
    (TypeError, "spend", ("login", "alice", "1")),
    (TypeError, "spend", (7, "alice")),
    (TypeError, "spend_all", (["login"],)),
    (TypeError, "check_all", ([("login",)],)),
    (InvalidBill, "spend_all", ([],)),
    (InvalidBill, "refund_all", ([],)),
    (InvalidBill, "reset_all", ([],)),
    (NotRefundable, "refund_all", ([("login", "alice"), ("rate", "alice")],)),
    (TypeError, "reset_all", (["login"],)),
    (InvalidBill, "check_all", ([("login", number) for number in range(33)],)),
    (InvalidBill, "spend_all", ([], [("upload", {"user": number}) for number in range(9)])),
    (InvalidBill, "spend_all", ([(FIVE, "alice"), (InlineLimit(count=9, period=1), "alice")],)),
    (UnknownRule, "spend_all", ([("login", "alice")], [("nope", {})])),
    (SelectorError, "check_all", ([], [("both", {"user": "vova"})])),
    (InvalidCost, "spend", (FIVE, "alice", 6)),
    (ChargeError, "spend", ("inline/throttle", "alice")),
    (TypeError, "spend_all", ([], ["upload"])),
    (TypeError, "spend_all", ([], ("upload", {"user": "vova"}))),
    (TypeError, "spend_all", ([], [("upload",)])),
    (TypeError, "spend_all", ([], [("upload", "user")])),
    (TypeError, "spend_all", ([], [(7, {})])),
    (TypeError, "spend_all", ([], [("upload", {7: "vova"})])),
    (TypeError, "spend_all", ([], [("upload", {"user": "vova"}, 7)])),
])
def test_a_call_that_is_not_valid_raises(calls, error, verb, args):
    with pytest.raises(error) as raised:
        getattr(calls, verb)(*args)
    assert str(raised.value)
    if error in (UnknownLimit, UnknownRule):
        assert "nope" in str(raised.value) and isinstance(raised.value, ValueError)
    if error is SelectorError:
        assert raised.value.selector == "apikey"
        assert str(raised.value).startswith('rule "both" needs a value for selector "apikey"')
