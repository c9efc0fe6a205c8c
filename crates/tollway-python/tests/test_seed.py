"""Every block of code that users of the original package know, as it stood there but for the constructor."""

import asyncio
import textwrap
from importlib import metadata

import pytest
from conftest import calls
from tornado import gen

import tollway
from tollway import RateLimitExceeded, SelectorError

GETTERS = """
def get_username(): return 'vova'
def get_api_key(): return 'k1'
"""

API = """
class API(object):
    def apikey(self): pass
    def username(self): pass
"""

KNOWN_API = """
class API(object):
    def apikey(self): return 'k1'
    def username(self): return 'vova'
"""


def run(code, rl, **names):
    """Executes code that knows the names of the package, and `rl`; what it defined is an attribute of what comes back."""
    names.update(vars(tollway), rl=rl)
    exec(textwrap.dedent(code), names)
    return type("Defined", (), {name: staticmethod(value) for name, value in names.items() if callable(value)})


def test_do_stuff_runs_ten_times_a_second(store, clock):
    code = """
    from tollway import RateLimit, And, Or

    rl = RateLimit(store, namespace="my_namespace", clock=clock)

    @rl.limit('10/s')
    def do_stuff():
        '''
        do_stuff() will only run 10 times per second,
        then an exception will be thrown
        '''
        pass
    """
    clock.set(1000)
    defined = run(code, None, store=store, clock=clock)
    assert calls(defined.do_stuff) == 10
    clock.advance(1)
    assert calls(defined.do_stuff) == 10
    assert "10 times per second" in defined.do_stuff.__doc__


def test_or_limits_by_whatever_happens_first(rl, clock):
    code = """
    @rl.limit(Or('10/s', '15/m'))
    def do_stuff():
        pass
    """
    do_stuff = run(code, rl).do_stuff
    assert calls(do_stuff) == 10
    clock.advance(1)
    assert calls(do_stuff) == 5
    with pytest.raises(RateLimitExceeded) as denied:
        do_stuff()
    assert denied.value.retry_after == 59


def test_and_limits_only_when_the_apikey_has_reached_its_own(rl, clock):
    code = """
    @rl.limit(And('apikey:100/h', Or('10/s', And('15/m', 'apikey:5/s:0.1'))), apikey=get_api_key)
    def do_stuff():
        '''
        same as before, but only start limiting do_stuff() when apikey
        limit of 100 requests an hour is reached.
        '''
        pass
    """
    do_stuff = run(GETTERS + textwrap.dedent(code), rl).do_stuff
    assert calls(do_stuff) == 100
    clock.advance(1)
    # A hundred in the last minute, but none in the last second: five, and then the key's five a second is reached.
    assert calls(do_stuff) == 5


def test_a_selector_is_a_function(rl):
    code = """
    def get_username(): pass

    @rl.limit('username:10/5m', username=get_username)
    def do_stuff():
        '''
        this means each user can run do_stuff() 10 times in 5 minutes
        '''
        pass

    def get_api_key(): pass


    @rl.limit(And('username:10/5m', 'apikey:100/m'), username=get_username, apikey=get_api_key)
    def do_stuff_crazy():
        '''
        do_stuff() will throw when user reached the 10 requests per 5 minute limit
        AND his API key reached 100 requests per minute, crazy.
        '''
        pass
    """
    defined = run(code, rl)
    for _ in range(200):  # Nobody is logged in, so nobody is limited.
        defined.do_stuff()
        defined.do_stuff_crazy()
    known = run(GETTERS + textwrap.dedent(code).replace("def get_username(): pass", "").replace(
        "def get_api_key(): pass", ""), rl)
    assert calls(known.do_stuff) == 10
    assert calls(known.do_stuff_crazy) == 100


@pytest.mark.parametrize("api", [API, KNOWN_API])
def test_a_selector_object_has_them_all(rl, api):
    code = """
    @rl.limit(And('username:10/5m', 'apikey:100/m'), selector=API())
    def do_stuff():
        '''
        this is the same as before, but prettier
        '''
        pass
    """
    do_stuff = run(api + textwrap.dedent(code), rl).do_stuff
    if api is KNOWN_API:
        assert calls(do_stuff) == 100
    else:
        for _ in range(200):
            do_stuff()


@pytest.mark.parametrize("api", [API, KNOWN_API])
def test_self_has_them_all(rl, api):
    code = """
    class MyAPI(API):
        @rl.limit(And('username:10/5m', 'apikey:100/m'))
        def do_stuff(self):
            '''
            the decorator will look for username and apikey in 'self'
            so you better have those!!!
            '''
            pass
    """
    mine = run(api + textwrap.dedent(code), rl).MyAPI()
    if api is KNOWN_API:
        assert calls(mine.do_stuff) == 100
    else:
        for _ in range(200):
            mine.do_stuff()
    without = run("class API: pass\n" + textwrap.dedent(code), rl).MyAPI()
    with pytest.raises(SelectorError, match="username"):
        without.do_stuff()


@pytest.mark.parametrize("api", [API, KNOWN_API])
def test_kitties_share_a_key(rl, api):
    code = """
    @rl.limit(And('username:10/5m', 'apikey:100/m'), selector=API(), key='cats')
    def good_kittie(): pass

    first_kittie = good_kittie

    @rl.limit(key='cats')
    def good_kittie(): pass
    """
    kitties = run(api + textwrap.dedent(code), rl)
    if api is KNOWN_API:
        for _ in range(50):
            kitties.first_kittie()
            kitties.good_kittie()
        assert calls(kitties.first_kittie) == calls(kitties.good_kittie) == 0
    else:
        for _ in range(200):
            kitties.good_kittie()


def test_blocks_in_a_tornado_coroutine(rl):
    blocks = """
    @gen.coroutine
    def everywhere():
        with (yield rl.limit('username:10/5m', username=get_username).cm):
            do_stuff()

    @gen.coroutine
    def log_in():
        with (yield rl.limit('username:10/5m', username=get_username, key='login').cm()):
            do_stuff()
    """
    done = []
    defined = run(GETTERS + textwrap.dedent(blocks), rl, gen=gen, do_stuff=lambda: done.append(1))

    async def main():
        for block in (defined.everywhere, defined.log_in):
            for _ in range(10):
                await block()
            with pytest.raises(RateLimitExceeded):
                await block()

    asyncio.run(main())
    assert len(done) == 20


def test_what_the_original_took_is_taken():
    rl = tollway.RateLimit(disable_locks=True, lock_ttl=30, lock_polling_interval=0.05)
    assert rl.limit("1/s").ask()


def test_what_the_original_raised_is_caught_as_it_was(local):
    local.limit("3/s", key="cats")(print)
    for mistake in (
        local.limit("0/s").__enter__,
        local.limit("user:1/s").__enter__,
        lambda: local.limit("3/s", key="cats")(print),
    ):
        with pytest.raises(RuntimeError):
            mistake()


def test_the_version_is_that_of_the_package():
    assert tollway.__version__ == metadata.version("tollway")
