"""Rate limits on functions, coroutines and blocks of code, in memory or over Redis.

    from tollway import And, Or, RateLimit, RateLimitExceeded

    rl = RateLimit()                       # or RateLimit("redis://localhost", namespace="shop")

    @rl.limit("10/s")
    def do_stuff(): ...

    @rl.limit(Or("10/s", "user:100/h"), user=current_user)
    async def upload(): ...

    with rl.limit("user:10/5m", user=name, key="login"):
        log_in()

A call over the limit raises ``RateLimitExceeded``, whose ``retry_after`` is the time to wait in seconds. A rule is
``[selector:]COUNT/SPAN``, and ``And`` and ``Or`` join rules.

``Limiter`` has the limits of a configuration, and ``Client`` those of a running server:

    limiter = Limiter.from_yaml("limits: { login: { burst: 5, count: 5, period: 1m } }")
    decision = limiter.spend("login", "alice")        # Client("127.0.0.1:8080").spend("login", "alice")
    decision = limiter.spend(InlineLimit(count=30, period=60), "alice")
"""

from ._client import Client
from ._errors import (
    ChargeError,
    ConfigError,
    InvalidBill,
    InvalidCost,
    InvalidId,
    NotRefundable,
    RateLimitExceeded,
    RuleError,
    RuleKeyError,
    SelectorError,
    ServerError,
    ServerTimeout,
    ServerUnreachable,
    StoreError,
    UnknownLimit,
    UnknownRule,
)
from ._limiter import Limiter
from ._rate_limit import RateLimit, RuleGuard
from ._rules import And, Or
from ._tollway import Decision, InlineLimit, ManualClock, Refund, RuleDecision
from ._tollway import __version__ as __version__

__all__ = [
    "And",
    "ChargeError",
    "Client",
    "ConfigError",
    "Decision",
    "InlineLimit",
    "InvalidBill",
    "InvalidCost",
    "InvalidId",
    "Limiter",
    "ManualClock",
    "NotRefundable",
    "Or",
    "RateLimit",
    "RateLimitExceeded",
    "Refund",
    "RuleDecision",
    "RuleError",
    "RuleGuard",
    "RuleKeyError",
    "SelectorError",
    "ServerError",
    "ServerTimeout",
    "ServerUnreachable",
    "StoreError",
    "UnknownLimit",
    "UnknownRule",
]
