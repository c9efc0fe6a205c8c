"""A Tornado app with limits. What is too many is answered 429, with Retry-After.

    $ python examples/rules_tornado.py --port 8888 --store redis://localhost
    $ curl -i http://localhost:8888/quote
"""

import argparse
import asyncio
import math

from tornado import gen, web

from tollway import And, Or, RateLimit, RateLimitExceeded


class Limited(web.RequestHandler):
    """Handlers whose limits find their selectors here, as methods of `self`."""

    def username(self):
        return self.get_argument("user", None)

    def address(self):
        return self.request.remote_ip

    def write_error(self, status_code, **kwargs):
        error = kwargs["exc_info"][1]
        if isinstance(error, RateLimitExceeded):
            self.set_status(503 if error.degraded else 429)
            if error.retry_after is not None:
                self.set_header("Retry-After", math.ceil(error.retry_after))
            self.finish({"error": str(error)})
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, kind, error, traceback):
        if not isinstance(error, RateLimitExceeded):
            super().log_exception(kind, error, traceback)


def app(store=None, clock=None):
    rl = RateLimit(store, namespace="quotes", clock=clock)

    class Quote(Limited):
        # A user has three an hour; whoever does not say who he is shares five a minute with the others at his address.
        @rl.limit(Or("username:3/h", "address:5/m"), key="quote")
        async def get(self):
            self.write({"quote": "All good things"})

    class Login(Limited):
        @gen.coroutine
        def post(self):
            with (yield rl.limit(And("username:2/m", "address:2/m"), selector=self, key="login").cm):
                self.write({"welcome": self.username()})

    return web.Application([("/quote", Quote), ("/login", Login)])


async def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=8888)
    arguments.add_argument("--store")
    given = arguments.parse_args()
    app(given.store).listen(given.port, "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
