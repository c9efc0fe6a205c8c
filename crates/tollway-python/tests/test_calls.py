"""A ``Limiter`` in memory, one over Redis and a ``Client`` give the same answers, awaited or not."""

import asyncio

import pytest
from conftest import tollway_server

from tollway import (
    Client,
    Decision,
    InvalidBill,
    InvalidCost,
    InvalidId,
    Limiter,
    NotRefundable,
    Refund,
    UnknownLimit,
)

LIMITS = """
limits:
  login: { burst: 5, count: 5, period: 100h }
  address: { burst: 2, count: 2, period: 100h, id: ip }
  rate: { algorithm: smoothed_rate, count: 5, period: 10s }
  partners: {}
overrides:
  partners:some: { burst: 1, count: 1, period: 1s }
"""


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
    for name, id in [("login", "alice"), ("login", "7"), ("login", "bob"), ("address", "192.0.2.1")]:
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
])
def test_a_call_that_is_not_valid_raises(calls, error, verb, args):
    with pytest.raises(error) as raised:
        getattr(calls, verb)(*args)
    assert str(raised.value)
    if error is UnknownLimit:
        assert "nope" in str(raised.value) and isinstance(raised.value, ValueError)
