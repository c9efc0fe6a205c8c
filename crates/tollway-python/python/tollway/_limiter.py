"""Limits and rules of a configuration, asked by name."""

import json
import os
from typing import Any, Mapping, Optional, Sequence, Tuple, Union, cast

from ._fork import note_forks
from ._pending import call_limiter
from ._tollway import Decision, InlineLimit, ManualClock, NativeLimiter, Refund

Limit = Union[str, InlineLimit]
"""A limit: the name of one in the configuration, or an ``InlineLimit``, which brings its numbers."""

Id = Union[str, bytes, int]
"""The id that a limit counts: an account, an address. An int is converted with ``str``."""

Charge = Union[Tuple[Limit, Id], Tuple[Limit, Id, int]]
"""One charge of several: ``(limit, id)``, which costs 1, or ``(limit, id, cost)``."""

Selectors = Mapping[str, Union[Id, None]]
"""The values of a rule's selectors. ``None`` and an empty text mean that the request has no value."""

Rule = Union[Tuple[str, Selectors], Tuple[str, Selectors, str]]
"""A rule of the configuration: ``(name, selectors)``, or ``(name, selectors, key)`` to count under another key."""


class Limiter:
    """The limits and rules of a configuration, decided in this process or in Redis.

        limiter = Limiter.from_yaml("limits: { login: { burst: 5, count: 5, period: 1m } }")
        if not limiter.spend("login", "alice"):
            ...

    Wherever a limit is named, an ``InlineLimit`` may stand instead, which brings its numbers:

        limiter.spend(InlineLimit(count=30, period=60), "alice")

    With ``store: redis://HOST:PORT`` in the configuration, all processes share the buckets. A call then blocks its
    thread until Redis has answered, and other threads run meanwhile. Its awaited twin, such as ``spend_async``, never
    blocks the event loop. A denial is a decision; exceptions are for calls that are not valid.
    """

    __slots__ = ("__weakref__", "_native")

    _native: NativeLimiter

    def __init__(self) -> None:
        raise TypeError("create a limiter with from_yaml(text), from_file(path) or from_dict(config) of Limiter")

    @classmethod
    def from_yaml(cls, text: str, *, clock: Optional[ManualClock] = None) -> "Limiter":
        """Creates a limiter from the text of a configuration file.

        Does not wait for Redis, which may be started later.

        :param clock: a ``ManualClock``, for tests.
        :raises ConfigError: the text is not valid. The message has the line and the column of each mistake.
        """
        return cls._with(NativeLimiter.from_yaml(text, "yaml", clock))

    @classmethod
    def from_file(cls, path: "Union[str, os.PathLike[str]]", *, clock: Optional[ManualClock] = None) -> "Limiter":
        """Creates a limiter from a configuration file.

        :raises ConfigError: the file cannot be read, or is not valid.
        """
        return cls._with(NativeLimiter.from_file(os.fspath(path), clock))

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], *, clock: Optional[ManualClock] = None) -> "Limiter":
        """Creates a limiter from a configuration that stands in code, with the names that a file has.

            Limiter.from_dict({
                "limits": {
                    "login": {"burst": 5, "count": 5, "period": "1m"},
                    "report": {"algorithm": "fixed_window", "count": 3, "period": "1d"},
                },
            })

        :raises ConfigError: the configuration is not valid. The column in the message is that in its JSON.
        """
        # JSON is YAML. Its escapes for characters beyond ASCII are not all known to YAML.
        text = json.dumps(config, ensure_ascii=False)
        return cls._with(NativeLimiter.from_yaml(text, "dict", clock))

    def spend(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Takes ``cost`` from the bucket of ``id`` under ``limit``, if it fits.

        :raises UnknownLimit: no limit has this name.
        :raises InvalidId: the limit does not accept this id.
        :raises InvalidCost: the cost is negative, or more than a full bucket holds.
        """
        return self._native.spend(limit, id, cost)

    async def spend_async(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Does what ``spend`` does, awaited."""
        if not self._native.is_shared:
            return self._native.spend(limit, id, cost)
        return cast(Decision, await self._call_async("spend", [(limit, id, cost)]))

    def check(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Returns the decision that ``spend`` would make. Takes nothing. A cost of 0 asks what is left."""
        return cast(Decision, self._native.call("check", [(limit, id, cost)], []))

    async def check_async(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Does what ``check`` does, awaited."""
        return cast(Decision, await self._call_async("check", [(limit, id, cost)]))

    def refund(self, limit: Limit, id: Id, cost: int = 1) -> Refund:
        """Gives back ``cost`` to the bucket of ``id`` under ``limit``, up to a full bucket.

        :raises NotRefundable: the algorithm of the limit has no refunds.
        :raises StoreError: Redis gave no answer.
        """
        return cast(Refund, self._native.call("refund", [(limit, id, cost)], []))

    async def refund_async(self, limit: Limit, id: Id, cost: int = 1) -> Refund:
        """Does what ``refund`` does, awaited."""
        return cast(Refund, await self._call_async("refund", [(limit, id, cost)]))

    def reset(self, limit: Limit, id: Id) -> None:
        """Forgets the bucket of ``id`` under ``limit``.

        :raises StoreError: Redis gave no answer.
        """
        self._native.call("reset", [(limit, id, 0)], [])

    async def reset_async(self, limit: Limit, id: Id) -> None:
        """Does what ``reset`` does, awaited."""
        await self._call_async("reset", [(limit, id, 0)])

    def spend_all(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Takes all the charges and counts the request in all the rules, or does nothing if one of them denies.

            limiter.spend_all([("account", "alice"), ("address", "192.0.2.1"), ("bytes", "alice", 512)])
            limiter.spend_all([("bytes", "alice", 512)], rules=[("upload", {"user": "alice"})])

        The decision's ``limit`` is the limit that decided. It is ``None`` if a rule decided, which is then in ``rule``.
        Rules are those of the configuration, by their names.

        :raises InvalidBill: there is neither a charge nor a rule, there are more than 32 charges or 8 rules, or two
            charges are for one bucket.
        :raises UnknownRule: no rule has this name.
        :raises SelectorError: a rule has a selector that is not given. One without a value is given as ``None``.
        """
        return cast(Decision, self._native.call("spend", list(charges), list(rules)))

    async def spend_all_async(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Does what ``spend_all`` does, awaited."""
        return cast(Decision, await self._call_async("spend", list(charges), list(rules)))

    def check_all(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Returns the decision that ``spend_all`` would make. Takes nothing, and counts nothing."""
        return cast(Decision, self._native.call("check", list(charges), list(rules)))

    async def check_all_async(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Does what ``check_all`` does, awaited."""
        return cast(Decision, await self._call_async("check", list(charges), list(rules)))

    def refund_all(self, charges: Sequence[Charge]) -> Refund:
        """Gives back all the charges, up to full buckets.

        ``refunded`` is true if one bucket got something back, ``remaining`` is the least that is left, and
        ``reset_after`` is the longest time.

        :raises NotRefundable: the algorithm of a limit has no refunds. Nothing was given back.
        :raises InvalidBill: there is no charge, there are more than 32, or two are for one bucket.
        :raises StoreError: Redis gave no answer.
        """
        return cast(Refund, self._native.call("refund", list(charges), []))

    async def refund_all_async(self, charges: Sequence[Charge]) -> Refund:
        """Does what ``refund_all`` does, awaited."""
        return cast(Refund, await self._call_async("refund", list(charges)))

    def reset_all(self, charges: Sequence[Charge]) -> None:
        """Forgets the buckets of all the charges. Their costs have no effect.

        :raises InvalidBill: there is no charge, there are more than 32, or two are for one bucket.
        :raises StoreError: Redis gave no answer.
        """
        self._native.call("reset", list(charges), [])

    async def reset_all_async(self, charges: Sequence[Charge]) -> None:
        """Does what ``reset_all`` does, awaited."""
        await self._call_async("reset", list(charges))

    def __repr__(self) -> str:
        return f"<Limiter over {self._native.store}>"

    @classmethod
    def _with(cls, native: NativeLimiter) -> "Limiter":
        limiter = cls.__new__(cls)
        limiter._native = native
        note_forks(native)
        return limiter

    async def _call_async(self, verb: str, charges: "list[Any]", rules: "Sequence[Any]" = ()) -> Any:
        if not self._native.is_shared:
            return self._native.call(verb, charges, list(rules))
        return await call_limiter(self._native, verb, charges, list(rules))
