"""Real servers, and limits whose time the test sets."""

import itertools
import os
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager

import pytest

from tollway import ManualClock, RateLimit, RateLimitExceeded

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 3))
TESTBED = ["cargo", "run", "--quiet", "--locked", "--package", "tollway-testbed", "--"]
STORES = ["memory", "redis", "cluster"]

namespaces = (f"test-{number}" for number in itertools.count())


@contextmanager
def servers(*names):
    """The URLs of servers of these kinds, which end when the block does, or this process."""
    with subprocess.Popen(
        TESTBED + list(names), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as testbed:
        urls = [testbed.stdout.readline().strip() for _ in names]
        assert all(urls), "the servers did not start"
        yield urls
        testbed.stdin.close()


@contextmanager
def tollway_server(config, port=None):
    """Runs a server with this configuration until the block ends, and yields its address.

    A configuration with ``gates`` must have an HTTP gate at this port.
    """
    port = port or free_port()
    gates = "" if "gates:" in config else f"gates: {{ http: 127.0.0.1:{port} }}"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(f"{config}\n{gates}\n")
        file.flush()
        command = [os.environ["TOLLWAY_BINARY"], "serve", "--config", file.name]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
            try:
                wait_for_listener(port, server)
                yield f"127.0.0.1:{port}"
            finally:
                server.terminate()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for_listener(port, server):
    for _ in range(1000):
        assert server.poll() is None, "the server did not start"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError("the server does not listen")


@pytest.fixture(scope="session")
def urls():
    """A URL for each kind of store."""
    with servers("redis", "cluster") as (redis, cluster):
        # A slow machine shall not pass for an unreachable store.
        yield {"memory": None, "redis": f"{redis}?deadline=5s", "cluster": f"{cluster}?deadline=5s"}


@pytest.fixture(params=STORES)
def store(request, urls):
    """Each kind of store in turn."""
    return urls[request.param]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def rl(store, clock):
    """Limits that nobody has used, on each kind of store."""
    return RateLimit(store, namespace=next(namespaces), clock=clock)


@pytest.fixture
def local(clock):
    """Limits in memory, where the store is not the point."""
    return RateLimit(clock=clock)


def calls(function, *args, **kwargs):
    """How many calls in a row are allowed."""
    for number in range(1000):
        try:
            function(*args, **kwargs)
        except RateLimitExceeded:
            return number
    raise AssertionError("nothing limits")
