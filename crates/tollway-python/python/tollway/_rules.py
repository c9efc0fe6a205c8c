"""Joins rules with ``And`` and ``Or``."""

from typing import Union

from ._errors import RuleError
from ._tollway import canonical


class _Expression:
    """Several rules as one. It is parsed when it is created, so a mistake raises where it is written."""

    __slots__ = ("_text",)

    def __init__(self, *parts: "Rule") -> None:
        inner = ", ".join(_quoted(rule_text(part)) for part in parts)
        self._text = canonical(f"{type(self).__name__}({inner})")

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Expression) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class And(_Expression):
    """Limits when all of its parts are reached: ``And("user:100/h", "apikey:60/h")``.

    A part is a rule's text, or another ``And`` or ``Or``. ``And()`` always limits.
    """

    __slots__ = ()


class Or(_Expression):
    """Limits when any of its parts is reached: ``Or("10/s", "15/m")``.

    A part is a rule's text, or another ``And`` or ``Or``. ``Or()`` never limits.
    """

    __slots__ = ()


Rule = Union[str, And, Or]


def rule_text(rule: Rule) -> str:
    """Returns the canonical text of a rule."""
    if isinstance(rule, _Expression):
        return str(rule)
    if isinstance(rule, str):
        return canonical(rule)
    if callable(rule):
        raise TypeError("a limit needs a rule: write @rl.limit('10/s'), with parentheses")
    raise RuleError(f"a rule is a text such as '10/s', And(...) or Or(...), not {rule!r}")


def _quoted(rule: str) -> str:
    return rule if rule.endswith(")") else f"'{rule}'"
