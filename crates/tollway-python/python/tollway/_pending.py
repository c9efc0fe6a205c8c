"""Awaiting a decision."""

import asyncio
from inspect import isawaitable
from threading import Lock
from typing import Any, List
from weakref import WeakKeyDictionary

from ._tollway import Enforcer, PendingCalls

_pending_calls: "WeakKeyDictionary[asyncio.AbstractEventLoop, PendingCalls]" = WeakKeyDictionary()
_lock = Lock()


async def decided(enforcer: Enforcer, values: List[Any], enforce: bool) -> Any:
    """The decision with these values, some of which may have to be awaited themselves."""
    values = [await value if isawaitable(value) else value for value in values]
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    _pending_calls_of(loop).post(enforcer, values, future, enforce)
    return await future


def _pending_calls_of(loop: asyncio.AbstractEventLoop) -> PendingCalls:
    pending_calls = _pending_calls.get(loop)
    return _new_pending_calls(loop) if pending_calls is None else pending_calls


def _new_pending_calls(loop: asyncio.AbstractEventLoop) -> PendingCalls:
    pending_calls = PendingCalls()
    loop.add_reader(pending_calls.fileno(), pending_calls.collect)
    with _lock:
        # One with answers that never came refers to its loop, and would keep it for ever.
        for other in [other for other in _pending_calls if other.is_closed()]:
            del _pending_calls[other]
        _pending_calls[loop] = pending_calls
    return pending_calls
