"""Limiters are created from a configuration, move with a clock, and survive outages and forks."""

import asyncio
import os
import threading

import pytest
import yaml

from tollway import Client, ConfigError, Decision, Limiter, ManualClock, Refund, StoreError

LOGIN = "limits: { login: { burst: 3, count: 3, period: 3m } }"


def test_a_configuration_that_is_not_valid_raises_with_the_place(tmp_path):
    with pytest.raises(ConfigError, match=r"yaml:2:12: .*brust"):
        Limiter.from_yaml("limits:\n  login: { brust: 5 }")
    path = tmp_path / "limits.yaml"
    path.write_text("limits: [")
    with pytest.raises(ValueError, match=r"limits\.yaml:2:1:"):
        Limiter.from_file(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Limiter.from_file(tmp_path / "missing.yaml")
    with pytest.raises(TypeError, match="from_yaml"):
        Limiter()


def test_an_id_that_would_be_one_bucket_for_everybody_is_a_type_error():
    limiter, client = Limiter.from_yaml(LOGIN), Client()
    for asked in limiter, client:
        for id in None, True, 1.5:
            with pytest.raises(TypeError, match="id must be a str, bytes or an int"):
                asked.spend("login", id)
        with pytest.raises(TypeError, match="cost must be an int, not bool"):
            asked.spend("login", "alice", True)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text(LOGIN)
    assert Limiter.from_file(path).spend("login", "alice").remaining == 2
    assert Limiter.from_file(str(path)).spend("login", "alice").remaining == 2


def test_time_is_that_of_the_clock():
    clock = ManualClock()
    limiter = Limiter.from_yaml(LOGIN, clock=clock)
    assert limiter.spend("login", "alice", 3) == Decision(True, 0, 180.0, 180.0, "login")
    assert limiter.spend("login", "alice") == Decision(False, 0, 60.0, 180.0, "login")
    clock.advance(60)
    assert limiter.spend("login", "alice") == Decision(True, 0, 60.0, 180.0, "login")
    assert limiter.refund("login", "alice") == Refund(True, 1, 120.0)


def test_limits_may_stand_in_code():
    fixed = {"algorithm": "fixed_window", "count": 3, "period": "100h"}
    config = {"limits": {"fixed": fixed}, "overrides": {"fixed:zo\u00eb \U0001f600": {**fixed, "count": 7}}}
    limiter = Limiter.from_dict(config, clock=ManualClock())
    assert limiter.spend("fixed", "alice").remaining == 2
    assert limiter.spend("fixed", "zo\u00eb \U0001f600").remaining == 6
    with pytest.raises(ConfigError, match=r"dict:1:\d+: .*brust"):
        Limiter.from_dict({"limits": {"login": {"brust": 5}}})


@pytest.mark.parametrize("make", [
    Limiter.from_dict,
    lambda config, clock: Limiter.from_yaml(yaml.dump(config), clock=clock),
])
def test_windows_begin_at_multiples_of_their_period(make):
    clock = ManualClock(50.0)
    minute = {"count": 3, "period": "1m"}
    limits = {
        "fixed": {"algorithm": "fixed_window", **minute},
        "moved": {"algorithm": "fixed_window", "offset": "55s", **minute},
        "sliding": {"algorithm": "sliding_window", **minute},
    }
    limiter = make({"limits": limits}, clock=clock)
    assert limiter.spend("fixed", "alice", 3) == Decision(True, 0, 10.0, 10.0, "fixed")
    assert limiter.spend("moved", "alice", 3) == Decision(True, 0, 5.0, 5.0, "moved")
    assert limiter.spend("sliding", "alice", 3) == Decision(True, 0, 70.0, 70.0, "sliding")
    clock.advance(10)
    assert limiter.spend("fixed", "alice", 3).allowed
    assert limiter.spend("moved", "alice", 3) == Decision(True, 0, 55.0, 55.0, "moved")
    assert limiter.spend("sliding", "alice") == Decision(False, 0, 20.0, 60.0, "sliding")
    assert limiter.refund("fixed", "alice", 2) == Refund(True, 2, 60.0)


def test_answers_are_printed_as_they_are_made():
    limiter = Limiter.from_yaml(LOGIN, clock=ManualClock())
    shown = repr(limiter.spend("login", "alice"))
    assert shown == 'Decision(allowed=True, remaining=2, retry_after=0.0, reset_after=60.0, limit="login", rule=None, degraded=False)'
    assert eval(shown, {"Decision": Decision}) == limiter.check("login", "alice", 0)
    assert repr(limiter.refund("login", "alice")) == "Refund(refunded=True, remaining=3, reset_after=0.0)"
    assert repr(limiter) == "<Limiter over memory>"


def test_a_store_that_cannot_be_reached_degrades_decisions_and_fails_refunds():
    limit = "burst: 3, count: 3, period: 3m, on_store_failure"
    text = f"store: redis://127.0.0.1:1\nlimits: {{ open: {{ {limit}: allow }}, shut: {{ {limit}: deny }} }}"
    limiter = Limiter.from_yaml(text)

    async def main():
        return await limiter.spend_async("open", "alice"), await limiter.spend_async("shut", "alice")

    for allowed, denied in [(limiter.spend("open", "alice"), limiter.spend("shut", "alice")), asyncio.run(main())]:
        assert allowed and allowed.degraded and allowed.remaining is None
        assert not denied and denied.degraded and denied.remaining is None
    for call in [lambda: limiter.refund("open", "alice"), lambda: asyncio.run(limiter.reset_async("open", "alice"))]:
        with pytest.raises(StoreError, match="127.0.0.1:1"):
            call()


def test_threads_and_loops_share_a_limiter(urls):
    limits = "limits: { crowd: { burst: 100, count: 100, period: 100h } }"
    limiter = Limiter.from_yaml(f"store: {urls['redis']}\n{limits}")
    limiter.reset("crowd", "all")

    async def main():
        return await asyncio.gather(*[limiter.spend_async("crowd", "all") for _ in range(20)])

    allowed = []

    def work():
        allowed.extend(bool(decision) for decision in asyncio.run(main()))
        allowed.extend(bool(limiter.spend("crowd", "all")) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(allowed) == 160 and sum(allowed) == 100


def test_a_loop_goes_on_while_redis_does_not_answer():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        limiter = Limiter.from_yaml(f"store: redis://127.0.0.1:{port}?deadline=300ms\n{LOGIN}")

        async def main():
            spending = asyncio.ensure_future(limiter.spend_async("login", "alice"))
            ticks = 0
            while not spending.done():
                ticks += 1
                await asyncio.sleep(0)
            assert (await spending).degraded
            return ticks

        # A loop that was held up would have ticked a few times.
        assert asyncio.run(main()) > 100


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_forked_process_has_a_limiter_too(urls, kind):
    limits = "limits: { forked: { burst: 3, count: 3, period: 100h } }"
    limiter = Limiter.from_yaml(f"store: {urls[kind] or 'memory'}\n{limits}")
    limiter.reset("forked", "it")
    assert limiter.spend("forked", "it")
    pid = os.fork()
    if pid == 0:
        spent = [limiter.spend("forked", "it"), asyncio.run(limiter.spend_async("forked", "it"))]
        os._exit(0 if [decision.remaining for decision in spent] == [1, 0] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert limiter.spend("forked", "it").allowed == (kind == "memory")
