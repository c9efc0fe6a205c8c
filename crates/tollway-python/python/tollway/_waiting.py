"""Awaiting a decision."""

import asyncio
from inspect import isawaitable
from threading import Lock
from typing import Any, List
from weakref import WeakKeyDictionary

from ._tollway import Asker, Mailbox

_mailboxes: "WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox]" = WeakKeyDictionary()
_lock = Lock()


async def decided(asker: Asker, values: List[Any], enforce: bool) -> Any:
    """The decision with these values, some of which may have to be awaited themselves."""
    values = [await value if isawaitable(value) else value for value in values]
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    _mailbox(loop).post(asker, values, future, enforce)
    return await future


def _mailbox(loop: asyncio.AbstractEventLoop) -> Mailbox:
    mailbox = _mailboxes.get(loop)
    return _new_mailbox(loop) if mailbox is None else mailbox


def _new_mailbox(loop: asyncio.AbstractEventLoop) -> Mailbox:
    mailbox = Mailbox()
    loop.add_reader(mailbox.fileno(), mailbox.collect)
    with _lock:
        # One with answers that never came refers to its loop, and would keep it for ever.
        for other in [other for other in _mailboxes if other.is_closed()]:
            del _mailboxes[other]
        _mailboxes[loop] = mailbox
    return mailbox
