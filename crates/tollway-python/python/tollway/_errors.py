"""The exceptions of the package."""

from math import ceil
from typing import Any, Optional, Tuple


class RateLimitExceeded(RuntimeError):
    """The call exceeded a limit. It was not made, and nothing was counted for it."""

    key: str
    """The name that the call is counted under: that of the function, the ``key``, or an empty one for a block."""

    rule: str
    """The rule that denied the call, in canonical form."""

    retry_after: Optional[float]
    """The seconds until the call would be allowed if no other came; ``None`` if no time would help."""

    degraded: bool
    """True if the store gave no answer, so that ``on_store_failure`` decided: an outage, not too many calls."""

    def __init__(self, key: str, rule: str, retry_after: Optional[float], degraded: bool = False) -> None:
        super().__init__(key, rule, retry_after, degraded)
        self.key = key
        self.rule = rule
        self.retry_after = retry_after
        self.degraded = degraded

    def __str__(self) -> str:
        why = "the store did not answer" if self.degraded else "rate limit exceeded"
        rule = f"{self.key}, {self.rule}" if self.key else self.rule
        if self.retry_after is None:
            return f"{why}: {rule}; waiting does not help"
        # Rounded up: a caller that waits for the time in the message must not come too early.
        milliseconds = ceil(round(self.retry_after * 1e9) / 1e6)
        return f"{why}: {rule}; retry after {milliseconds / 1e3:.15g}s"


class RuleError(ValueError):
    """The rule is not valid. The message shows the place."""


class RuleKeyError(RuleError, RuntimeError):
    """The ``key`` is given rules a second time, or has none yet."""


class SelectorError(LookupError, RuntimeError):
    """Nothing supplies a selector that the rule names. An empty value would be one; this is a mistake."""

    selector: str
    """The name of the selector."""

    def __init__(self, selector: str, message: Optional[str] = None) -> None:
        super().__init__(selector, message)
        self.selector = selector
        self._message = message

    def __str__(self) -> str:
        if self._message is not None:
            return self._message
        name = self.selector
        return (
            f"nobody supplies the selector {name!r}: pass {name}=, which may be a callable,"
            f" or selector= or a first argument that has {name!r}"
        )

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.selector, self._message)


class ConfigError(ValueError):
    """The configuration is not valid. The message has a line for each mistake, with its line and column."""


class ChargeError(ValueError):
    """A charge or a rule of a call is not valid. This is not a denial: the same call would never succeed."""


class UnknownLimit(ChargeError):
    """No limit has this name."""


class UnknownRule(ChargeError):
    """No rule has this name."""


class InvalidId(ChargeError):
    """The limit does not accept this id."""


class InvalidCost(ChargeError):
    """The cost is negative, or more than a full bucket holds."""


class NotRefundable(ChargeError):
    """The algorithm of the limit has no refunds."""


class InvalidBill(ChargeError):
    """The charges and rules do not make a bill: there is none, there are more than 32 charges or 8 rules, or two
    charges are for one bucket."""


class StoreError(Exception):
    """The store gave no answer to a refund or a reset, which may have been carried out all the same."""


class ServerUnreachable(ConnectionError):
    """There is no server at this address, or the connection to it ended before an answer came.

    The message says which, and what to do. ``__cause__`` is the error of the system.
    """

    address: str
    """The address of the server."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.address, str(self))


class ServerTimeout(ServerUnreachable, TimeoutError):
    """The server gave no answer in time."""

    timeout: float
    """The seconds that the call has waited."""

    def __init__(self, address: str, timeout: float, sent: bool = False) -> None:
        if sent:
            message = f"no answer from {address} within {timeout:g} s; the charge may have been made"
        else:
            advice = "check that the host is up and no firewall drops packets"
            message = f"no connection to {address} within {timeout:g} s; {advice}"
        super().__init__(address, message)
        self.timeout = timeout
        self._sent = sent

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.address, self.timeout, self._sent)


class ServerError(Exception):
    """The server answered that it cannot carry out the call."""

    status: int
    """The HTTP status."""

    title: str
    """The kind of problem."""

    detail: str
    """The cause of this problem."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(status, title, detail)
        self.status = status
        self.title = title
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.title}: {self.detail} (status {self.status})"
