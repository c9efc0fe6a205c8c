"""Many at once: never one too many."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from conftest import namespaces

from tollway import Or, RateLimit, RateLimitExceeded

PROCESSES, TASKS, ROUNDS = 4, 64, 3


@pytest.mark.parametrize("kind", ["redis", "cluster"])
def test_four_processes_of_sixty_four_tasks(urls, kind):
    """All ask in one second of a clock that stands: what is allowed in all is what the rule says."""
    namespace = next(namespaces)
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        by_process = pool.starmap(crowd, [(urls[kind], namespace)] * PROCESSES)
    assert sum(allowed for allowed, _ in by_process) == 60
    assert sum(denied for _, denied in by_process) == PROCESSES * TASKS * ROUNDS - 60


def crowd(url, namespace):
    """How many calls were allowed, and how many denied."""
    from tollway import ManualClock

    rl = RateLimit(url, namespace=namespace, clock=ManualClock(1000))

    @rl.limit(Or("user:100/s", "apikey:60/s"), user="vova", apikey="k1", key="hot")
    async def call(): ...

    async def task():
        allowed = 0
        for _ in range(ROUNDS):
            try:
                await call()
                allowed += 1
            except RateLimitExceeded as denied:
                assert denied.retry_after == 1.0
        return allowed

    async def main():
        return sum(await asyncio.gather(*[task() for _ in range(TASKS)]))

    allowed = asyncio.run(main())
    return allowed, TASKS * ROUNDS - allowed


def test_threads(rl):
    limit = rl.limit(Or("user:100/s", "apikey:60/s"), user="vova", apikey="k1")
    allowed = []
    threads = [
        threading.Thread(target=lambda: allowed.extend(limit.ask().allowed for _ in range(50))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(allowed), sum(allowed)) == (400, 60)


def test_a_thousand_awaited_asks_on_a_busy_machine(urls):
    """The deadline measures Redis, not this process: nobody is decided without Redis, and the limit holds."""
    # The busy machine keeps Redis waiting, too, and sometimes for longer than the default deadline.
    url = urls["redis"].partition("?")[0] + "?deadline=500ms"
    limit = RateLimit(url, namespace=next(namespaces)).limit("100/h", key="hot")

    async def main():
        return await asyncio.gather(*[limit.ask_async() for _ in range(1000)])

    with busy_cores():
        decisions = asyncio.run(main())
    assert not any(decision.degraded for decision in decisions)
    assert sum(decision.allowed for decision in decisions) == 100


@contextmanager
def busy_cores():
    """Two processes for each core that do nothing but count, until the block ends."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
