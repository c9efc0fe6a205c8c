"""Inline limits have the numbers that they were given, and the buckets of `CL.THROTTLE`."""

import socket

import pytest
from conftest import free_port, tollway_server

from tollway import Client, InlineLimit, Limiter, ServerError


def throttle(port, key, max_burst, count, period):
    """Sends `CL.THROTTLE` to the gate for Redis clients, and returns the five numbers of the reply."""
    words = [b"CL.THROTTLE", *(str(word).encode() for word in (key, max_burst, count, period))]
    command = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rb") as reply:
        connection.sendall(command)
        assert reply.readline() == b"*5\r\n"
        return [int(reply.readline()[1:]) for _ in range(5)]


def test_numbers_are_as_they_were_given():
    limit = InlineLimit(count=30, period="1m30s", burst=16)
    assert (limit.count, limit.period, limit.burst) == (30, 90.0, 16)
    assert repr(limit) == "InlineLimit(count=30, period=90.0, burst=16)"
    assert eval(repr(limit)) == limit == InlineLimit(count=30, period=90, burst=16)
    assert limit != InlineLimit(count=30, period=90) == InlineLimit(count=30, period=90.0, burst=30)
    assert InlineLimit(count=1, period=0.25).period == 0.25


@pytest.mark.parametrize("error, message, numbers", [
    (ValueError, "count must be from 1 to 18446744073709551615, not 0", {"count": 0, "period": 1}),
    (ValueError, "count must be from 1 to 18446744073709551615, not -1", {"count": -1, "period": 1}),
    (ValueError, "burst must be from 1 to 18446744073709551615, not 0", {"count": 1, "period": 1, "burst": 0}),
    (ValueError, "burst must be from 1 to 18446744073709551615, not -5", {"count": 1, "period": 1, "burst": -5}),
    (ValueError, "period must be above zero", {"count": 1, "period": 0}),
    (ValueError, "period must be above 0 seconds and at most 292 years, not -1", {"count": 1, "period": -1}),
    (ValueError, "period must be above 0 seconds and at most 292 years, not nan", {"count": 1, "period": float("nan")}),
    (ValueError, "period must be above 0 seconds and at most 292 years, not 1000", {"count": 1, "period": 10**400}),
    (ValueError, "period '1fortnight': \"fortnight\" is not a unit of time; use", {"count": 1, "period": "1fortnight"}),
    (ValueError, "count must be at most 1000000 for this period", {"count": 10**7, "period": 0.001}),
    (TypeError, "count must be an int, not float", {"count": 1.5, "period": 1}),
    (TypeError, "burst must be an int, not bool", {"count": 1, "period": 1, "burst": True}),
    (TypeError, "period must be a number of seconds, or a text such as '1m30s', not list", {"count": 1, "period": []}),
    (TypeError, "count", {"period": 1}),
])
def test_numbers_that_are_not_valid_raise(error, message, numbers):
    with pytest.raises(error) as raised:
        InlineLimit(**numbers)
    assert message in str(raised.value)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_bucket_is_that_of_cl_throttle(urls, kind):
    http, resp = free_port(), free_port()
    store = f"limits: {{}}\nstore: {urls['redis'] if kind == 'redis' else 'memory'}"
    config = f"{store}\ngates: {{ http: 127.0.0.1:{http}, resp: 127.0.0.1:{resp} }}"
    ten = InlineLimit(count=10, period=360000, burst=10)
    with tollway_server(config, http) as address, Client(address, timeout=20) as client:
        client.reset(ten, "alice")
        asked = [client, Limiter.from_yaml(store)] if kind == "redis" else [client]
        left = 10
        for calls in asked:
            assert calls.spend(ten, "alice", 2).remaining == left - 2
            assert throttle(resp, "alice", 9, 10, 360000)[:3] == [0, 10, left - 3]
            assert calls.check(ten, "alice", 0).remaining == left - 3
            left -= 3


def test_a_gate_may_refuse_numbers():
    port = free_port()
    config = f"limits: {{}}\ngates: {{ http: {{ listen: '127.0.0.1:{port}', inline: deny }} }}"
    with tollway_server(config, port) as address, Client(address, timeout=20) as client:
        with pytest.raises(ServerError, match="this gate takes no numbers from clients") as error:
            client.spend(InlineLimit(count=1, period=1), "alice")
        assert error.value.status == 403
