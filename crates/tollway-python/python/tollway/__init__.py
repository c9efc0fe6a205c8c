"""Rate limits on functions, coroutines and blocks of code, in memory or over Redis.

    from tollway import And, Or, RateLimit, RateLimitExceeded

    rl = RateLimit()                       # or RateLimit("redis://localhost", namespace="shop")

    @rl.limit("10/s")
    def do_stuff(): ...

    @rl.limit(Or("10/s", "user:100/h"), user=current_user)
    async def upload(): ...

    with rl.limit("user:10/5m", user=name, key="login"):
        log_in()

What is too many raises ``RateLimitExceeded``, whose ``retry_after`` says when to come back. A rule is
``[selector:]COUNT/SPAN``, and ``And`` and ``Or`` join rules.
"""

from ._errors import RateLimitExceeded, RuleError, RuleKeyError, SelectorError
from ._limit import Limit, RateLimit
from ._rules import And, Or
from ._tollway import Decision, ManualClock

__all__ = [
    "And",
    "Decision",
    "Limit",
    "ManualClock",
    "Or",
    "RateLimit",
    "RateLimitExceeded",
    "RuleError",
    "RuleKeyError",
    "SelectorError",
]
