"""Nobody waits for long, and nobody else waits with him."""

import asyncio
import gc
import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import namespaces, servers

from tollway import RateLimit, RateLimitExceeded


@pytest.fixture(scope="module")
def frozen():
    """The URL of a Redis that does not answer."""
    with servers("redis") as (url,):
        port = url.rpartition(":")[2]
        info = subprocess.run(["redis-cli", "-p", port, "info", "server"], capture_output=True, text=True, check=True)
        pid = next(int(line.split(":")[1]) for line in info.stdout.split() if line.startswith("process_id:"))
        os.kill(pid, signal.SIGSTOP)
        yield f"{url}?deadline=200ms"
        os.kill(pid, signal.SIGCONT)


def test_a_loop_goes_on_while_the_store_is_frozen(frozen):
    rl = RateLimit(frozen, on_store_failure="deny")

    @rl.limit("10/s")
    async def do_stuff(): ...

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        with pytest.raises(RateLimitExceeded, match="the store did not answer") as denied:
            await do_stuff()
        ticking.cancel()
        assert denied.value.degraded and denied.value.retry_after > 0
        return ticks

    # While it waited, nothing else did. A loop that was held up would have ticked a few times.
    assert asyncio.run(main()) > 100


@pytest.mark.parametrize("answer, replies", [
    ("allow", [True, True, True]), ("deny", [False, False, False]), ("local", [True, True, False]),
])
def test_what_is_answered_for_an_unreachable_store(answer, replies):
    rl = RateLimit("redis://127.0.0.1:1", on_store_failure=answer)
    limit = rl.limit("2/h")
    decisions = [limit.ask() for _ in replies]
    assert [decision.allowed for decision in decisions] == replies
    assert all(decision.degraded for decision in decisions)


def test_other_threads_run_while_one_waits(frozen):
    rl = RateLimit(frozen)
    waiting = threading.Thread(target=rl.limit("1/s").ask)
    waiting.start()
    turns = 0
    while waiting.is_alive():
        turns += 1
        time.sleep(0)
    assert turns > 100


def test_who_is_cancelled_hears_no_more(frozen):
    rl = RateLimit(frozen)

    async def main():
        asking = [asyncio.ensure_future(rl.limit("1/s").ask_async()) for _ in range(10)]
        await asyncio.sleep(0)
        for task in asking[:5]:
            task.cancel()
        replies = await asyncio.gather(*asking, return_exceptions=True)
        assert [isinstance(reply, asyncio.CancelledError) for reply in replies] == [True] * 5 + [False] * 5

    asyncio.run(main())


def test_a_loop_that_ends_meanwhile_takes_nothing_with_it(frozen, urls):
    slow, quick = RateLimit(frozen), RateLimit(urls["redis"], namespace=next(namespaces))
    loop = asyncio.new_event_loop()
    begun = loop.create_task(slow.limit("1/s").ask_async())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del begun, loop
    assert asyncio.run(quick.limit("1/s").ask_async()).allowed
    gc.collect()


def test_several_loops_at_once(urls):
    rl = RateLimit(urls["redis"], namespace=next(namespaces))
    limit = rl.limit("40/h", key="shared")

    async def main():
        return sum([(await decision).allowed for decision in [limit.ask_async() for _ in range(20)]])

    allowed = []
    threads = [threading.Thread(target=lambda: allowed.append(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(allowed) == 40


def test_loops_leave_nothing_open(urls):
    rl = RateLimit(urls["redis"], namespace=next(namespaces))

    def ask():
        assert asyncio.run(rl.limit("1000/s").ask_async()).allowed

    ask(), gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        ask()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 4


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_forked_process_asks_too(urls, kind):
    rl = RateLimit(urls[kind], namespace=next(namespaces))
    limit = rl.limit("3/h", key="it")
    assert limit.ask()  # The thread that talks to Redis runs, and stays behind.
    pid = os.fork()
    if pid == 0:
        asked = [limit.ask(), asyncio.run(limit.ask_async()), limit.ask()]
        right = [(bool(decision), decision.degraded) for decision in asked] == [
            (True, False), (True, False), (False, False)]
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert limit.ask().allowed == (kind == "memory")
