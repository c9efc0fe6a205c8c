"""What can be decorated, and what it is afterwards."""

import asyncio
import functools
import inspect
import pickle

import pytest
from conftest import calls
from tornado import gen

from tollway import RateLimitExceeded


def test_a_function_is_what_it_was(local):
    @local.limit("3/s")
    def add(one: int, *, other: int = 2) -> int:
        """Adds."""
        return one + other

    assert add(1) == 3 and add(1, other=4) == 5
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Adds.", __name__)
    assert str(inspect.signature(add)) == "(one: int, *, other: int = 2) -> int"
    assert not inspect.iscoroutinefunction(add)


def test_what_was_denied_did_not_run_and_cost_nothing(rl, clock):
    ran = []

    @rl.limit("2/s")
    def run():
        ran.append(clock.now)

    assert calls(run) == 2
    clock.advance(0.75)
    with pytest.raises(RateLimitExceeded) as denied:
        run()
    assert denied.value.retry_after == pytest.approx(0.25)
    clock.advance(0.25)
    assert calls(run) == 2
    assert ran == [0, 0, 1, 1]


def test_an_exception_says_who_what_and_until_when(local):
    @local.limit("Or('1/10s', '5/h')")
    def upload(): ...

    upload()
    with pytest.raises(RateLimitExceeded) as denied:
        upload()
    error = denied.value
    assert (error.key, error.rule, error.retry_after, error.degraded) == (
        "upload", "Or('1/10s', '5/h')", 10.0, False)
    assert str(error) == "rate limit exceeded: upload, Or('1/10s', '5/h'); retry after 10s"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.retry_after) == (str(error), 10.0)


def test_what_no_time_lifts_has_no_retry_after(rl):
    @rl.limit("0/s")
    def never(): ...

    with pytest.raises(RateLimitExceeded, match="waiting does not help") as denied:
        never()
    assert denied.value.retry_after is None


def test_coroutines_are_awaited(rl):
    @rl.limit("2/s")
    async def fetch(what):
        await asyncio.sleep(0)
        return what

    assert inspect.iscoroutinefunction(fetch)

    async def main():
        assert await fetch("it") == "it"
        waiting = fetch("that")  # Nothing is decided before it is awaited.
        assert await fetch("this") == "this"
        with pytest.raises(RateLimitExceeded):
            await waiting

    asyncio.run(main())


def test_methods_of_every_kind(local):
    class Base:
        user = "of the class"

        def __init__(self, user):
            self.user = user

        @local.limit("user:1/s")
        def plain(self):
            return self.user

        @local.limit("user:1/s")
        async def awaited(self):
            return self.user

        @classmethod
        @local.limit("user:1/s")
        def outside(cls):
            return cls.user

        @local.limit("user:1/s")
        @classmethod
        def inside(cls):
            return cls.user

        @staticmethod
        @local.limit("user:1/s")
        def static(first):
            return first.user

        @local.limit("user:1/s")
        @staticmethod
        def static_inside(first):
            return first.user

        @property
        @local.limit("user:1/s")
        def name(self):
            return self.user

    class Derived(Base):
        def plain(self):
            return super().plain() + "!"

    one, other = Derived("one"), Derived("other")
    assert (one.plain(), other.plain()) == ("one!", "other!")
    assert calls(one.plain) == calls(Base("one").plain) == 0
    assert (Derived.outside(), Derived.inside()) == ("of the class", "of the class")
    assert calls(Base.outside) == calls(one.inside) == 0
    assert (one.static(other), Base.static_inside(one)) == ("other", "one")
    assert calls(Base.static, other) == calls(one.static_inside, one) == 0
    assert one.name == "one"
    with pytest.raises(RateLimitExceeded):
        one.name  # noqa: B018
    assert asyncio.run(one.awaited()) == "one"
    with pytest.raises(RateLimitExceeded):
        asyncio.run(one.awaited())
    limited = local.limit("user:1/s", key="bound")(one.plain.__func__.__get__(other))
    assert calls(limited) == 0  # The limit of the method itself still counts.


def test_a_bound_method_has_its_self(local):
    class Account:
        user = "vova"

        def pay(self):
            return "paid"

    pay = local.limit("user:1/s")(Account().pay)
    assert pay() == "paid"
    assert calls(pay) == 0


def test_a_generator_is_limited_where_it_is_called(local):
    @local.limit("1/s")
    def count():
        yield 1
        yield 2

    assert list(count()) == [1, 2]
    assert calls(count) == 0


def test_a_tornado_coroutine_begins_by_itself(rl):
    ran = []

    @rl.limit("1/s")
    @gen.coroutine
    def get(what):
        yield gen.sleep(0)
        ran.append(what)
        raise gen.Return(what)

    async def main():
        begun = get(1)
        assert isinstance(begun, asyncio.Future)
        assert await begun == 1
        with pytest.raises(RateLimitExceeded):
            await get(2)

    asyncio.run(main())
    assert ran == [1]


def test_what_cannot_be_limited_is_rejected_where_it_stands(local):
    limit = local.limit("1/s")
    with pytest.raises(TypeError, match="a function or a method"):
        limit(type("Class", (), {}))
    with pytest.raises(TypeError, match="a function or a method"):
        limit(property(len))
    with pytest.raises(TypeError, match="async with"):
        @limit
        async def stream():
            yield 1
    with pytest.raises(TypeError, match="key="):
        limit(functools.partial(print))
    with pytest.raises(TypeError, match="parentheses"):
        local.limit(test_methods_of_every_kind)
    with pytest.raises(TypeError, match="a rule such as"):
        local.limit()
    assert local.limit("1/s", key="named")(functools.partial(int, "7"))() == 7


def test_functions_of_one_name_share_their_counts_in_one_namespace(store, clock):
    from conftest import namespaces

    from tollway import RateLimit

    here, there = [RateLimit(store, namespace=next(namespaces), clock=clock) for _ in range(2)]

    def do_stuff(): ...

    one, same, elsewhere = here.limit("3/s")(do_stuff), here.limit("4/s")(do_stuff), there.limit("3/s")(do_stuff)
    assert [calls(one), calls(same), calls(elsewhere)] == [3, 1, 3]
