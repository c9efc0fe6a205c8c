"""The repository's traces of rules, through the decorators.

A function counts under its own name, which may be any, so `key=` becomes the name of the function.
"""

import asyncio
import codecs
import glob
import os
import re
from decimal import Decimal

import pytest
import yaml
from conftest import ROOT, namespaces

from tollway import RateLimit, RateLimitExceeded, RuleError, SelectorError

TRACES = sorted(glob.glob(os.path.join(ROOT, "traces", "rules-*.trace")))
EVENT = re.compile(r'(?P<at>\S+)s +rule +(?:"(?P<rule>(?:[^"\\]|\\.)*)"|(?P<name>\S+))(?P<given>.*?) +=> (?P<reply>.+)')


@pytest.mark.parametrize("call", ["plain", "awaited"])
@pytest.mark.parametrize("path", TRACES, ids=os.path.basename)
def test_every_event_has_its_reply(store, clock, path, call):
    with open(path.replace(".trace", ".yaml")) as config:
        rules = {name: rule_of(rule) for name, rule in (yaml.safe_load(config)["rules"] or {}).items()}
    rl = RateLimit(store, namespace=next(namespaces), clock=clock)
    answer = answers[call]
    checked = 0
    for number, event in events(path):
        if event["rule"] is None and event["name"] not in rules:
            continue  # Rules by name are the configuration's; here it would be a rule like another.
        clock.set(float(event["at"]))
        given = event["given"]
        key = given.pop(None, event["name"] or "")
        rule = rules[event["name"]] if event["rule"] is None else event["rule"]
        reply = answer(rl, rule, key, given)
        expected = "error" if event["reply"].startswith("error") else event["reply"]
        assert reply == expected, f"{path}:{number}"
        checked += 1
    assert checked > 10


def test_there_are_traces():
    assert len(TRACES) >= 5


def events(path):
    """The lines of a trace that ask for a rule, with their numbers."""
    with open(path) as trace:
        for number, line in enumerate(trace, 1):
            match = EVENT.fullmatch(line.rstrip("\n"))
            if match is None:
                assert line.startswith("#") or not line.strip() or " limit " in line, f"{path}:{number}"
                continue
            event = match.groupdict()
            event["rule"] = event["rule"] and unescaped(event["rule"]).decode()
            words = (word.split("=", 1) for word in event["given"].split())
            # What has an escape in it is never the word itself: `key` without one is the key.
            event["given"] = {
                None if name == "key" else unescaped(name).decode(): unescaped(value) for name, value in words
            }
            if None in event["given"]:
                event["given"][None] = event["given"][None].decode()
            yield number, event


def answer_plain(rl, rule, key, given):
    def limited(): ...

    limited.__name__ = key
    return reply_of(lambda: rl.limit(rule, selector=given)(limited)())


def answer_awaited(rl, rule, key, given):
    async def limited(): ...

    limited.__name__ = key
    return reply_of(lambda: loop.run_until_complete(rl.limit(rule, selector=given)(limited)()))


answers = {"plain": answer_plain, "awaited": answer_awaited}


@pytest.fixture(autouse=True, scope="module")
def one_loop():
    global loop
    loop = asyncio.new_event_loop()
    yield
    loop.close()


def reply_of(call):
    try:
        call()
    except RateLimitExceeded as denied:
        return "deny" if denied.retry_after is None else f"deny retry_after={seconds(denied.retry_after)}"
    except (RuleError, SelectorError):
        return "error"
    return "allow"


def seconds(number):
    text = f"{Decimal(round(number * 10**9)).scaleb(-9):f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "s"


def unescaped(text):
    return codecs.escape_decode(text.encode())[0]


def rule_of(rule):
    return rule["rule"] if isinstance(rule, dict) else rule
