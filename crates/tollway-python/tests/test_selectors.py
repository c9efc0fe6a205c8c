"""Where values come from, and what is one."""

import asyncio
import contextvars
import types
import uuid

import pytest
from conftest import calls

from tollway import RateLimit, RateLimitExceeded, SelectorError


class Api:
    user = "of the object"
    empty = None

    def __init__(self, user="of the instance"):
        self.user = user

    def method(self):
        return "called"


def test_a_keyword_comes_before_the_object_and_that_before_the_first_argument(local):
    def key_of(function, *args):
        """Which of the values it counts under: that one is used up."""
        assert calls(function, *args) == 1
        names = ["keyword", "object", "first"]
        return [name for name in names if not local.limit("user:1/s", key=key).ask(user=name)]

    key = "all"
    everything = local.limit("user:1/s", key=key, user="keyword", selector=Api("object"))(lambda self: None)
    assert key_of(everything, Api("first")) == ["keyword"]
    key = "two"
    two = local.limit("user:1/s", key=key, selector=Api("object"))(lambda self: None)
    assert key_of(two, Api("first")) == ["object"]
    key = "one"
    one = local.limit("user:1/s", key=key)(lambda self: None)
    assert key_of(one, Api("first")) == ["first"]
    key = "lacking"
    lacking = local.limit("user:1/s", key=key, selector=object())(lambda self: None)
    assert key_of(lacking, Api("first")) == ["first"]


@pytest.mark.parametrize("source", [
    {"user": "vova"},
    {"user": lambda: "vova"},
    types.MappingProxyType({"user": "vova"}),
    types.SimpleNamespace(user="vova"),
    types.SimpleNamespace(user=lambda: "vova"),
    type("Items", (), {"__getitem__": lambda self, name: {"user": "vova"}[name]})(),
    type("Property", (), {"user": property(lambda self: "vova")})(),
])
def test_an_object_has_attributes_methods_or_items(local, source):
    limit = local.limit("user:2/s", key="it", selector=source)
    assert limit.ask() and limit.ask(user="vova") and not limit.ask()


def test_what_a_dictionary_can_do_is_not_what_it_has(local):
    with pytest.raises(SelectorError, match="'items'"):
        local.limit("items:1/s", selector={}).ask()


def test_the_first_argument_may_be_passed_by_name(local):
    @local.limit("user:1/s")
    def endpoint(request, other=None):
        return request.user

    assert endpoint(request=Api("vova")) == "vova"
    assert calls(endpoint, other=1, request=Api("vova")) == 0


@pytest.mark.parametrize("none", [None, "", b"", lambda: None])
def test_no_value_is_not_limited_and_not_counted(rl, none):
    limit = rl.limit("user:1/s", user=none)
    for _ in range(5):
        assert limit.ask()


@pytest.mark.parametrize("value, same", [
    (0, "0"), (7, b"7"), (False, "False"), (1.5, "1.5"), ("vova", b"vova"), ("é", "é".encode()),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"), ("a:b", "a:b"), ("\udcff", "\udcff"),
])
def test_whatever_has_a_text_is_a_value(rl, value, same):
    limit = rl.limit("user:2/s", key="it")
    assert limit.ask(user=value) and limit.ask(user=same) and not limit.ask(user=value)
    assert limit.ask(user="another")


def test_a_selector_nobody_supplies_is_a_mistake_and_no_denial(rl):
    @rl.limit("Or('5/s', 'user:1/s')")
    def lost(): ...

    for attempt in (lost, rl.limit("user:1/s").__enter__, rl.limit("user:1/s").ask):
        with pytest.raises(SelectorError, match="'user'") as mistake:
            attempt()
        assert isinstance(mistake.value, LookupError) and mistake.value.selector == "user"
    with pytest.raises(SelectorError):
        rl.limit("Or('5/s', 'user:1/s')")(lambda first: None)(object())


def test_what_a_selector_raises_is_raised(local):
    def broken():
        raise ZeroDivisionError

    class Broken:
        @property
        def user(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        local.limit("user:1/s", user=broken).ask()
    with pytest.raises(ZeroDivisionError):
        local.limit("user:1/s", selector=Broken()).ask()


def test_a_coroutine_awaits_its_selectors(rl):
    async def current_user():
        await asyncio.sleep(0)
        return "vova"

    @rl.limit("user:1/s", user=current_user)
    async def upload():
        return "done"

    async def main():
        assert await upload() == "done"
        with pytest.raises(RateLimitExceeded):
            await upload()
        async with rl.limit("user:1/s", user=current_user):
            pass
        assert not await rl.limit("user:1/s", user=current_user).ask_async()

    asyncio.run(main())


def test_a_function_cannot_await_them(local):
    async def current_user(): ...

    with pytest.raises(TypeError, match="not async"):
        local.limit("user:1/s", user=current_user).ask()


def test_every_identifier_is_counted_also_one_that_was_not_looked_at(rl):
    both = rl.limit("Or('2/s', 'user:1/s')", key="both")
    assert both.ask(user="one") and not both.ask(user="one")
    assert both.ask(user="other") and not both.ask(user="third")
    either = rl.limit("And('user:1/s', 'apikey:2/s')", key="either")
    assert either.ask(user="u", apikey="k") and either.ask(user="u", apikey="k")
    assert not either.ask(user="u", apikey="k")
    assert either.ask(user="v", apikey="k")


def test_a_selector_may_be_called_rule_and_self(local):
    limit = local.limit("Or('rule:1/s', 'self:2/s')", rule=1, **{"self": 2})
    assert limit.ask() and not limit.ask()


class Asked(dict):
    """Selectors that count how often they are asked for."""

    def __init__(self, **values):
        super().__init__()
        self.values_of = values
        self.asked = []

    def __getitem__(self, name):
        def ask():
            self.asked.append(name)
            return self.values_of[name]

        return ask

    def take(self):
        asked, self.asked = self.asked, []
        return asked


@pytest.mark.parametrize("rule, needed", [
    ("Or('1/s', 'user:9/s')", []),
    ("Or('user:1/s', 'apikey:9/s')", ["user"]),
    ("Or('user:9/s', 'apikey:1/s')", ["user", "apikey"]),
    ("And('1/s', 'user:1/s')", ["user"]),
    ("Or(And('1/s', 'user:1/s'), 'apikey:9/s')", ["user"]),
])
def test_a_callable_is_called_only_if_the_rule_needs_its_value(rl, rule, needed):
    asked = Asked(user="u", apikey="k")
    limit = rl.limit(rule, key="it", selector=asked)
    assert limit.ask()
    names = [name for name in ("user", "apikey") if f"{name}:" in rule]
    assert sorted(asked.take()) == sorted(names), "an allowed call is counted under every value"
    assert not limit.ask()
    assert asked.take() == needed
    assert not asyncio.run(limit.ask_async())
    assert asked.take() == needed
    with pytest.raises(RateLimitExceeded) as denied:
        limit.__enter__()
    assert asked.take() == needed and denied.value.retry_after == 1.0


def test_values_that_are_awaited_are_awaited_only_if_they_are_needed(rl):
    awaited = []

    async def user():
        await asyncio.sleep(0)
        awaited.append("user")
        return "vova"

    async def main():
        limit = rl.limit("Or('2/s', 'user:9/s')", key="it", user=user)
        return [(await limit.ask_async()).allowed for _ in range(4)]

    assert asyncio.run(main()) == [True, True, False, False]
    assert awaited == ["user"] * 2


def test_a_selector_that_is_called_sees_the_context_of_its_task(rl):
    current = contextvars.ContextVar("current")

    async def call(name):
        current.set(name)
        return (await rl.limit("Or('9/s', 'user:1/s')", key="it", user=current.get).ask_async()).allowed

    async def main():
        return await asyncio.gather(*(call(name) for name in ("anna", "bert", "anna")))

    assert sorted(asyncio.run(main())) == [False, True, True]


def test_a_decision_says_how_many_calls_are_left(store, clock):
    rl = RateLimit(store, namespace="remaining", clock=clock)
    both = rl.limit("Or('user:3/s', '5/m')", key="it")
    left = [both.ask(user="u").remaining for _ in range(4)]
    assert left == ([2, 1, 0, 0] if store is None else [None, None, None, 0])
    assert asyncio.run(both.ask_async(user="v")).remaining == (1 if store is None else None)
    assert both.ask(user="w").remaining == (0 if store is None else None)
    assert rl.limit("user:1/s", key="nobody").ask(user=None).remaining is None
