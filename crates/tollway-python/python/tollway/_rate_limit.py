"""Guards functions and blocks by rules."""

import asyncio
import functools
import inspect
from contextlib import AbstractContextManager, nullcontext
from types import MethodType, TracebackType
from typing import Any, Callable, Coroutine, Dict, Generator, List, Optional, Tuple, Type, TypeVar, cast

from ._fork import note_forks
from ._pending import decide_rule
from ._rules import Rule, rule_text
from ._tollway import Enforcer, Keyed, ManualClock, RuleDecision, RuleNamespace

F = TypeVar("F", bound=Callable[..., Any])

_Layer = Tuple[Dict[str, Any], Any]
"""The keyword arguments and the ``selector`` object of one guard."""


class RateLimit:
    """Rules of one namespace, which are counted in one store.

        rl = RateLimit()                                          # in this process
        rl = RateLimit("redis://localhost", namespace="shop")     # shared by all processes with this namespace

    :param store: ``None`` for the memory of this process; or a URL, ``redis://HOST:PORT``, ``redis+cluster://A,B,C``,
        ``redis+sentinel://A,B/NAME``, or ``rediss`` for TLS. Redis may be started later.
    :param namespace: separates your counts from those of others in the same store.
    :param on_store_failure: the decision while the store gives no answer: ``"allow"``, ``"deny"``, or ``"local"``,
        which counts in the memory of this process meanwhile.
    :param clock: a ``ManualClock``, for tests.
    :param disable_locks: accepted and without effect, as are ``lock_ttl`` and ``lock_polling_interval``: there are no
        locks, and no races.
    """

    def __init__(
        self,
        store: Optional[str] = None,
        namespace: str = "",
        *,
        on_store_failure: str = "allow",
        clock: Optional[ManualClock] = None,
        disable_locks: bool = False,
        lock_ttl: Optional[float] = None,
        lock_polling_interval: Optional[float] = None,
    ) -> None:
        if store is not None and not isinstance(store, str):
            raise TypeError(f"store must be a URL such as 'redis://localhost:6379', not {type(store).__name__}")
        self._rules = RuleNamespace("memory" if store is None else store, namespace, on_store_failure, clock)
        self._namespace = namespace
        self._given: Dict[str, _Layer] = {}
        note_forks(self._rules)

    def limit(
        self,
        rule: Optional[Rule] = None,
        /,
        *,
        key: Optional[str] = None,
        selector: Any = None,
        **selectors: Any,
    ) -> "RuleGuard":
        """Returns a guard: a decorator for a function, or a context manager for a block.

            @rl.limit(And("username:10/5m", "apikey:100/m"), username=get_username, apikey=get_api_key)
            def do_stuff(): ...

        :param rule: ``"10/s"``, ``"user:10/5m"``, ``And(...)``, ``Or(...)``, or all of that as one text. Without it,
            the rule that the ``key`` was given before.
        :param key: the name that calls are counted under. By default the name of the function, and an empty one for a
            block.
        :param selector: an object whose attributes, methods or items are the values of the rule's selectors. Without
            it, the first argument of the function: ``self``.
        :param selectors: the values of selectors, or callables that return them. A callable is called only if the rule
            needs its value: not if other parts of the rule deny the call already. ``None`` and an empty text are no
            value: that part of the rule then does not limit.
        """
        if rule is None and key is None:
            raise TypeError("a limit needs a rule such as '10/s', or the key of one that was given before")
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be text, not {type(key).__name__}")
        text = None if rule is None else rule_text(rule)
        return RuleGuard(self, text, key, (selectors, selector))

    def __repr__(self) -> str:
        return f"RateLimit({self._rules.store!r}, namespace={self._namespace!r})"


class RuleGuard:
    """Guards functions that it decorates, and blocks that it is entered for, by one rule. ``ask`` asks the rule alone.

    It holds no state of a call, so any number of threads and tasks may enter it at once.
    """

    __slots__ = ("_enforcer", "_key", "_keyed", "_layer", "_owner", "_rule")

    def __init__(self, owner: RateLimit, rule: Optional[str], key: Optional[str], layer: _Layer) -> None:
        self._owner = owner
        self._rule = rule
        self._key = key
        self._layer = layer
        self._enforcer: Optional[Enforcer] = None
        self._keyed: Optional[Keyed] = None

    def __call__(self, function: F) -> F:
        """Guards a function, a method or a coroutine. An ``async`` function stays one, and no other becomes one."""
        if isinstance(function, (classmethod, staticmethod)):
            return cast(F, type(function)(self(function.__func__)))
        if inspect.ismethod(function):
            return cast(F, MethodType(self(function.__func__), function.__self__))
        if inspect.isclass(function) or not callable(function):
            raise TypeError(f"a limit is for a function or a method, not for {function!r}")
        if inspect.isasyncgenfunction(function):
            raise TypeError("an async generator has no call that could be awaited: use `async with` inside it")
        enforcer = self._enforcer_of(function)
        if inspect.iscoroutinefunction(function):
            return cast(F, _limited_coroutine(function, enforcer))
        if getattr(function, "__tornado_coroutine__", False):
            return cast(F, _limited_tornado_coroutine(function, enforcer))
        return cast(F, _limited_function(function, enforcer))

    def __enter__(self) -> None:
        (self._enforcer or self._block()).enforce((), {})

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Gives nothing back: an allowed call stays counted."""

    async def __aenter__(self) -> None:
        enforcer = self._enforcer or self._block()
        call = enforcer.enforce_async((), {})
        if call is not None:
            await decide_rule(call)

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Gives nothing back: an allowed call stays counted."""

    @property
    def cm(self) -> "_Admission":
        """Limits a block of a coroutine that yields: ``with (yield rl.limit("user:10/5m", user=name).cm): ...``

        Awaiting it decides; the block then only runs. ``cm()`` is the same.
        """
        return _Admission(self)

    def ask(self, **selectors: Any) -> RuleDecision:
        """Decides without raising, with these values for selectors before all others.

            uploads = rl.limit("user:10/5m", key="uploads")
            if not uploads.ask(user=name): ...
        """
        return (self._enforcer or self._block()).ask(selectors)

    async def ask_async(self, **selectors: Any) -> RuleDecision:
        """Does what ``ask`` does, awaited."""
        enforcer = self._enforcer or self._block()
        decision = enforcer.ask_async(selectors)
        if isinstance(decision, RuleDecision):
            return decision
        return cast(RuleDecision, await decide_rule(decision))

    def __repr__(self) -> str:
        rule = "" if self._rule is None else repr(self._rule)
        key = "" if self._key is None else f"key={self._key!r}"
        return f"limit({', '.join(filter(None, (rule, key)))})"

    def _enforcer_of(self, function: Callable[..., Any]) -> Enforcer:
        rules = self._owner._rules
        if self._key is not None:
            # Two functions under one guard are given its rules once.
            if self._keyed is None:
                self._keyed = rules.define(self._key, self._rule)
                if self._rule is not None:
                    self._owner._given[self._key] = self._layer
            return self._new_enforcer(self._keyed, self._key, function)
        name = getattr(function, "__name__", None)
        if name is None:
            raise TypeError(f"{function!r} has no name to be counted under: give it one with key=")
        assert self._rule is not None, "`RateLimit.limit` takes no call without a rule and a key"
        return self._new_enforcer(rules.unnamed(name, self._rule), name, function)

    def _block(self) -> Enforcer:
        """Creates the enforcer that all blocks of this guard use."""
        rules = self._owner._rules
        if self._keyed is not None:
            keyed = self._keyed
        elif self._key is not None:
            keyed = rules.enter(self._key, self._rule)
        else:
            assert self._rule is not None, "`RateLimit.limit` takes no call without a rule and a key"
            keyed = rules.unnamed("", self._rule)
        self._enforcer = self._new_enforcer(keyed, self._key or "", None)
        return self._enforcer

    def _new_enforcer(self, keyed: Keyed, key: str, function: Optional[Callable[..., Any]]) -> Enforcer:
        layers = self._layers()
        if function is None:
            return Enforcer(self._owner._rules, keyed, key, layers, False, None)
        return Enforcer(self._owner._rules, keyed, key, layers, True, _first_parameter(function))

    def _layers(self) -> List[_Layer]:
        """Returns the sources of selectors: this guard, and then the guard that gave its key the rules."""
        given = None if self._key is None or self._rule is not None else self._owner._given.get(self._key)
        return [self._layer] if given is None else [self._layer, given]


class _Admission:
    """The decision about a block, to be awaited. It becomes the context manager of the block."""

    __slots__ = ("_guard",)

    def __init__(self, guard: RuleGuard) -> None:
        self._guard = guard

    def __call__(self) -> "_Admission":
        return self

    def __await__(self) -> "Generator[Any, None, AbstractContextManager[None]]":
        yield from self._guard.__aenter__().__await__()
        return nullcontext()


def _limited_function(function: Callable[..., Any], enforcer: Enforcer) -> Callable[..., Any]:
    enforce = enforcer.enforce

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        enforce(args, kwargs)
        return function(*args, **kwargs)

    return limited


def _limited_coroutine(
    function: Callable[..., Any], enforcer: Enforcer
) -> Callable[..., Coroutine[Any, Any, Any]]:
    enforce = enforcer.enforce_async

    @functools.wraps(function)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        call = enforce(args, kwargs)
        if call is not None:
            await decide_rule(call)
        return await function(*args, **kwargs)

    return limited


def _limited_tornado_coroutine(function: Callable[..., Any], enforcer: Enforcer) -> Callable[..., Any]:
    """Limits a function of ``tornado.gen.coroutine``, which runs without being awaited, and still does."""
    begun = _limited_coroutine(function, enforcer)

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(begun(*args, **kwargs))

    return limited


def _first_parameter(function: Callable[..., Any]) -> Optional[str]:
    """Returns the name by which the first argument may be passed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return next((parameter.name for parameter in parameters if parameter.kind in by_name), None)
