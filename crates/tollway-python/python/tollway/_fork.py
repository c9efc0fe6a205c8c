"""Notes forks: a child opens its own connections to Redis."""

import os
from typing import Union
from weakref import WeakSet

from ._tollway import NativeLimiter, RuleNamespace

_opened: "WeakSet[Union[RuleNamespace, NativeLimiter]]" = WeakSet()


def note_forks(opened: Union[RuleNamespace, NativeLimiter]) -> None:
    """Calls ``forked`` of this object in every child of this process."""
    _opened.add(opened)


def _forked() -> None:
    for opened in _opened:
        opened.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
