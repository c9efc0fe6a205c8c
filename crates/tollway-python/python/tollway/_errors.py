"""What can be raised."""

from typing import Any, Optional, Tuple


class RateLimitExceeded(Exception):
    """A call that was one too many. It was not made, and nothing was counted for it."""

    key: str
    """The name it is counted under: the function's, the ``key``, or the empty one of a block."""

    rule: str
    """The rule that limits it, in canonical form."""

    retry_after: Optional[float]
    """In how many seconds it would be allowed if nobody else came; ``None`` if no passing of time lifts it."""

    degraded: bool
    """Did the store give no answer, so that this is only what ``on_store_failure`` says? Then it is an outage."""

    def __init__(self, key: str, rule: str, retry_after: Optional[float], degraded: bool = False) -> None:
        super().__init__(key, rule, retry_after, degraded)
        self.key = key
        self.rule = rule
        self.retry_after = retry_after
        self.degraded = degraded

    def __str__(self) -> str:
        whose = f" of {self.key!r}" if self.key else ""
        if self.degraded:
            return f"the rate limit{whose} ({self.rule}) denies: its store gives no answer"
        if self.retry_after is None:
            return f"the rate limit{whose} ({self.rule}) always denies"
        return f"the rate limit{whose} ({self.rule}) is reached, for another {self.retry_after:.3g} s"


class RuleError(ValueError):
    """A rule that cannot be read. The message shows the place."""


class RuleKeyError(RuleError):
    """A ``key`` that is given rules a second time, or that has none yet."""


class SelectorError(LookupError):
    """A selector that a rule names, and that nobody supplies. An empty value would be one; this is a mistake."""

    selector: str
    """Its name."""

    def __init__(self, selector: str) -> None:
        super().__init__(selector)
        self.selector = selector

    def __str__(self) -> str:
        name = self.selector
        return (
            f"nobody supplies the selector {name!r}: pass {name}=, which may be a callable,"
            f" or selector= or a first argument that has {name!r}"
        )

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.selector,)
