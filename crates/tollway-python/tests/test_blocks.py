"""Limits on blocks of code."""

import asyncio

import pytest

from tollway import RateLimitExceeded


def test_a_block_runs_while_it_may(rl, clock):
    ran = []

    def block():
        with rl.limit("user:2/s", user="vova"):
            ran.append(clock.now)

    block(), block()
    with pytest.raises(RateLimitExceeded) as denied:
        block()
    assert (denied.value.key, denied.value.rule, denied.value.retry_after) == ("", "user:2/s", 1.0)
    assert ran == [0, 0]


def test_an_async_block_runs_while_it_may(rl):
    async def main():
        ran = []
        for _ in range(5):
            try:
                async with rl.limit("user:2/s", user="vova", key="it"):
                    ran.append(1)
            except RateLimitExceeded:
                pass
        with pytest.raises(RateLimitExceeded), (await rl.limit(key="it", user="vova").cm):
            ran.append(1)
        with pytest.raises(RateLimitExceeded), (await rl.limit(key="it", user="vova").cm()):
            ran.append(1)
        return len(ran)

    assert asyncio.run(main()) == 2


def test_what_a_block_raises_is_raised_and_was_counted(local):
    limit = local.limit("1/s")
    with pytest.raises(ZeroDivisionError), limit:
        1 / 0
    assert not limit.ask()


def test_one_limit_is_entered_by_many(local):
    limit = local.limit("3/s")
    with limit, limit:
        async def main():
            async with limit:
                return limit.ask().allowed

        assert asyncio.run(main()) is False
