"""What a type checker must see. Never run."""

from typing import Optional

from typing_extensions import assert_type

from tollway import And, Decision, Limit, ManualClock, Or, RateLimit, RateLimitExceeded

rl = RateLimit("redis://localhost", namespace="shop", on_store_failure="local", clock=ManualClock(5))


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
    assert_type(limit, Limit)
    with limit:
        assert_type(limit.ask(user="vova"), Decision)
    async with limit:
        decision = await limit.ask_async(user="vova")
        assert_type(decision.allowed, bool)
        assert_type(decision.retry_after, Optional[float])
    with await limit.cm:
        pass
    try:
        add(1)
    except RateLimitExceeded as error:
        assert_type(error.retry_after, Optional[float])
    add("1")  # type: ignore[arg-type]
    RateLimit(7)  # type: ignore[arg-type]
    rl.limit(7)  # type: ignore[arg-type]
