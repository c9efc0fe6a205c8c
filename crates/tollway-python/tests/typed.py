"""What a type checker must see. Never run."""

from typing import Optional

from typing_extensions import assert_type

from tollway import (
    And,
    Client,
    Decision,
    InlineLimit,
    Limiter,
    ManualClock,
    Or,
    RateLimit,
    RateLimitExceeded,
    Refund,
    RuleDecision,
    RuleGuard,
    UnknownLimit,
    __version__,
)

rl = RateLimit("redis://localhost", namespace="shop", on_store_failure="local", clock=ManualClock(5))
assert_type(__version__, str)


@rl.limit(And("10/s", Or("user:5/m", "apikey:7/h")), user=lambda: 7, apikey="k1")
def add(one: int, other: int = 2) -> int:
    return one + other


@rl.limit("10/s", key="cats")
async def fetch(what: str) -> bytes:
    return what.encode()


class Api:
    @rl.limit(key="cats", selector={"user": 1})
    def method(self, number: float) -> str:
        return str(number)


async def main() -> None:
    assert_type(add(1, other=2), int)
    assert_type(await fetch("it"), bytes)
    assert_type(Api().method(1.5), str)
    limit = rl.limit("user:1/s")
    assert_type(limit, RuleGuard)
    with limit:
        assert_type(limit.ask(user="vova"), RuleDecision)
    async with limit:
        decision = await limit.ask_async(user="vova")
        assert_type(decision.allowed, bool)
        assert_type(decision.retry_after, Optional[float])
        assert_type(decision.remaining, Optional[int])
    with await limit.cm, await limit.cm():
        pass
    try:
        add(1)
    except RateLimitExceeded as error:
        assert_type(error.retry_after, Optional[float])
    add("1")  # type: ignore[arg-type]
    RateLimit(7)  # type: ignore[arg-type]
    rl.limit(7)  # type: ignore[arg-type]


async def by_name() -> None:
    for calls in (Limiter.from_yaml("limits: {}", clock=ManualClock()), Client("127.0.0.1:8080", timeout=0.5)):
        assert_type(calls.spend("login", "alice"), Decision)
        assert_type(await calls.spend_async("login", b"alice", 2), Decision)
        assert_type(await calls.check_all_async([("login", 7), ("address", "192.0.2.1", 2)]), Decision)
        assert_type(calls.refund("login", "alice"), Refund)
        assert_type(await calls.refund_all_async([("login", "alice", 2)]), Refund)
        calls.reset_all([("login", "alice"), ("address", "192.0.2.1")])
        assert_type(calls.check("login", "alice").remaining, Optional[int])
        assert_type(calls.check("login", "alice").limit, Optional[str])
        assert_type(calls.check("login", "alice").rule, Optional[str])
        limit = InlineLimit(count=30, period=60, burst=16)
        assert_type(calls.spend(limit, "alice"), Decision)
        uploads = [("upload", {"user": "vova", "apikey": None})]
        assert_type(calls.spend_all([("login", "alice"), (limit, 7, 2)], rules=uploads), Decision)
        assert_type(await calls.check_all_async([], [("upload", {"user": 7}), ("all", {}, "cats")]), Decision)
        calls.spend_all([], rules=["upload"])  # type: ignore[list-item]
        InlineLimit(30, 60)  # type: ignore[call-arg]
        calls.spend(7, "alice")  # type: ignore[arg-type]
        calls.spend("login", None)  # type: ignore[arg-type]
    unknown: ValueError = UnknownLimit("nope")
    raise unknown
