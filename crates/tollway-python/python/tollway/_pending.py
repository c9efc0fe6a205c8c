"""Awaits calls to a store without blocking the event loop."""

import asyncio
from threading import Lock
from typing import Any, List
from weakref import WeakKeyDictionary

from ._tollway import NativeLimiter, PendingCalls, RuleCall

_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, PendingCalls]" = WeakKeyDictionary()
_lock = Lock()


async def decide_rule(call: RuleCall) -> Any:
    """Returns the reply to a call of a rule. Awaits its values, as far as the rule needs them, and the store."""
    loop = asyncio.get_running_loop()
    while True:
        awaitable = call.advance()
        while awaitable is not None:
            awaitable = call.answer(await awaitable)
        if call.is_decided:
            return call.reply()
        future = loop.create_future()
        _pending_calls(loop).start_rule(call, future)
        await future


async def call_limiter(limiter: NativeLimiter, verb: str, charges: List[Any], rules: List[Any]) -> Any:
    """Returns the answer of a limiter: a decision, a refund or ``None``."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    _pending_calls(loop).start_bill(limiter, verb, charges, rules, future)
    return await future


def _pending_calls(loop: asyncio.AbstractEventLoop) -> PendingCalls:
    pending = _by_loop.get(loop)
    return _new_pending_calls(loop) if pending is None else pending


def _new_pending_calls(loop: asyncio.AbstractEventLoop) -> PendingCalls:
    pending = PendingCalls()
    loop.add_reader(pending.fileno(), pending.complete_ready)
    with _lock:
        # Calls that were never answered refer to their loop, and would keep a closed one for ever.
        for other in [other for other in _by_loop if other.is_closed()]:
            del _by_loop[other]
        _by_loop[loop] = pending
    return pending
