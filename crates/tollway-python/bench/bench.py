"""Decisions a second, beside the package `limits`, whose moving window keeps the same promise.

    $ cargo xtask bench python
    $ cargo xtask bench python --turns 3     # a quick try, which is not written into the page

Both decide in turns, in one process and over one Redis. The ratio is taken turn by turn, and its median is printed with the
lowest and the highest. What `limits` does in the background for its decisions has ended before Tollway begins.
"""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from statistics import median

import limits
import limits.aio
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter

from tollway import RateLimit, RateLimitExceeded

TURNS = int(sys.argv[sys.argv.index("--turns") + 1]) if "--turns" in sys.argv else 9
TURNS_MIN = 5  # Those of shorter runs are not written into the page.
KEYS = [f"user-{number}" for number in range(100_000)]
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 3))
THREADS, IN_FLIGHT = 8, 64


def main():
    heading()
    in_memory()
    with redis() as url:
        over_redis(url)
        asyncio.run(over_redis_awaited(url))
    if TURNS >= TURNS_MIN:
        write_section()


def in_memory():
    many, one = KEYS, ["vova"]
    peer, item = MemoryStorage(), limits.RateLimitItemPerMinute(100)
    hit, rl = MovingWindowRateLimiter(peer).hit, RateLimit()
    ask = rl.limit("user:100/m", key="ask").ask
    race("memory, one key, most denied", one, 100_000, lambda key: hit(item, key), lambda key: ask(user=key), peer)
    race("memory, 100,000 keys, all allowed", many, 100_000, lambda key: hit(item, key), lambda key: ask(user=key), peer)
    afresh("memory, one key, all allowed", 10_000)
    decorated("memory, one key, all allowed, decorated", 10_000)


def afresh(name, count):
    """The log begins empty in each turn, and is full when the turn ends."""
    turns = []
    for _ in range(TURNS):
        peer, item = MemoryStorage(), limits.RateLimitItemPerMinute(count)
        hit, ask = MovingWindowRateLimiter(peer).hit, RateLimit().limit(f"user:{count}/m").ask
        turns.append((timed(lambda key: hit(item, key), ["vova"] * count, peer), timed(lambda key: ask(user=key), ["vova"] * count)))
    report(name, count, turns)


def decorated(name, count):
    """A function with a limit on it, beside one that asks `limits` first."""
    turns = []
    for _ in range(TURNS):
        peer, item = MemoryStorage(), limits.RateLimitItemPerMinute(count)
        hit, rl = MovingWindowRateLimiter(peer).hit, RateLimit()

        def theirs(key):
            if not hit(item, key):
                raise RateLimitExceeded("theirs", "", None)

        @rl.limit(f"{count}/m")
        def ours(key): ...

        turns.append((timed(theirs, ["vova"] * count, peer), timed(ours, ["vova"] * count)))
    report(name, count, turns)


def over_redis(url):
    item = limits.RateLimitItemPerMinute(100)
    hit, rl = MovingWindowRateLimiter(RedisStorage(url)).hit, RateLimit(f"{url}?deadline=5s")
    ask = rl.limit("user:100/m", key="ask").ask
    race("Redis, one key, most denied", ["vova"], 5_000, lambda key: hit(item, key), lambda key: ask(user=key))
    race("Redis, 10,000 keys, all allowed", KEYS[:10_000], 5_000, lambda key: hit(item, key), lambda key: ask(user=key))
    keys, turns = KEYS[10_000:20_000], []
    for turn in range(TURNS + 1):
        some = part(keys, turn, 5_000)
        turns.append((timed_threads(lambda key: hit(item, key), some), timed_threads(lambda key: ask(user=key), some)))
    report(f"Redis, 10,000 keys, {THREADS} threads", 5_000, turns[1:])


async def over_redis_awaited(url):
    item = limits.RateLimitItemPerMinute(100)
    peer = limits.aio.storage.RedisStorage(f"async+{url}", implementation="redispy")
    hit = limits.aio.strategies.MovingWindowRateLimiter(peer).hit
    ask = RateLimit(f"{url}?deadline=5s").limit("user:100/m", key="awaited").ask_async
    keys = KEYS[20_000:30_000]
    turns = []
    for turn in range(TURNS + 1):
        some = part(keys, turn, 5_000)
        turns.append((await timed_awaited(lambda key: hit(item, key), some), await timed_awaited(lambda key: ask(user=key), some)))
    report(f"Redis, 10,000 keys, {IN_FLIGHT} tasks", 5_000, turns[1:])


def race(name, keys, count, theirs, ours, peer=None):
    """So many decisions of each a turn, going round the keys. The first turn is for warming up."""
    turns = []
    for turn in range(TURNS + 1):
        some = part(keys, turn, count)
        turns.append((timed(theirs, some, peer), timed(ours, some)))
    report(name, count, turns[1:])


def part(keys, turn, count):
    return [keys[number % len(keys)] for number in range(turn * count, (turn + 1) * count)]


def timed(decide, keys, peer=None):
    """Seconds that these decisions take."""
    gc.collect()
    began = time.perf_counter()
    for key in keys:
        decide(key)
    took = time.perf_counter() - began
    if peer is not None:
        peer.timer.join()
    return took


def timed_threads(decide, keys):
    threads = [
        threading.Thread(target=lambda mine: [decide(key) for key in mine], args=(keys[number::THREADS],))
        for number in range(THREADS)
    ]
    gc.collect()
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


async def timed_awaited(decide, keys):
    async def task(mine):
        for key in mine:
            await decide(key)

    gc.collect()
    began = time.perf_counter()
    await asyncio.gather(*[task(keys[number::IN_FLIGHT]) for number in range(IN_FLIGHT)])
    return time.perf_counter() - began


def heading():
    say(f"CPython {sys.version.split()[0]}, `limits` {limits.__version__}, {TURNS} turns: microseconds a decision, median (lowest to")
    say("highest), and ratios turn by turn.\n")
    say("| | `limits` | tollway | ratio |")
    say("|---|---|---|---|")


lines = []


def say(line):
    lines.append(line)
    print(line, flush=True)


def write_section():
    """Replaces the section of the page, as the other benchmarks do."""
    page = os.path.join(ROOT, "docs/benchmarks.md")
    with open(page, encoding="utf-8") as file:
        before, rest = file.read().split("<!-- python -->\n")
    after = rest.split("<!-- /python -->")[1]
    changes = ", with changes on top" if git("status", "--porcelain", "--", ".", ":!docs", ":!*.md") else ""
    measured = f"Measured by `cargo xtask bench python` at commit {git('rev-parse', '--short=10', 'HEAD')}{changes}."
    text = "\n".join([measured, "", *lines])
    with open(page, "w", encoding="utf-8") as file:
        file.write(f"{before}<!-- python -->\n{text}\n<!-- /python -->{after}")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def report(name, count, turns):
    theirs, ours = ([turn[side] / count * 1e6 for turn in turns] for side in (0, 1))
    ratios = [theirs / ours for theirs, ours in turns]
    say(f"| {name} | {spread(theirs)} | {spread(ours)} | {spread(ratios)} |")


def spread(numbers):
    return f"{median(numbers):.3g} ({min(numbers):.3g} to {max(numbers):.3g})"


@contextmanager
def redis():
    """The URL of a Redis that nobody else uses."""
    command = ["cargo", "run", "--quiet", "--locked", "--package", "tollway-testbed", "--", "redis"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as testbed:
        yield testbed.stdout.readline().strip()
        testbed.stdin.close()


if __name__ == "__main__":
    main()
