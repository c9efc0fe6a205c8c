"""Names that rules are counted under."""

import pytest
from conftest import calls

from tollway import Or, RuleError, RuleKeyError


def test_functions_share_a_key(rl):
    @rl.limit("3/s", key="cats")
    def good_kittie(): ...

    @rl.limit(key="cats")
    def bad_kittie(): ...

    good_kittie()
    assert calls(bad_kittie) == 2
    with rl.limit("3/s"):
        pass  # Another key: the empty one.
    assert calls(rl.limit(key="cats").__enter__) == 0


def test_a_key_is_given_rules_once(local):
    local.limit("3/s", key="cats")(print)
    for rule in ("3/s", "4/s"):
        with pytest.raises(RuleKeyError, match="already has rules"):
            local.limit(rule, key="cats")(print)


def test_a_key_without_rules_is_a_mistake(local):
    for use in (lambda: local.limit(key="dogs")(print), local.limit(key="dogs").__enter__, local.limit(key="dogs").ask):
        with pytest.raises(RuleKeyError, match="no rules yet"):
            use()
    assert issubclass(RuleKeyError, RuleError)


def test_one_limit_may_decorate_several(local):
    cats = local.limit("3/s", key="cats")
    one, other = cats(lambda: None), cats(lambda: None)
    one()
    assert calls(other) == 2


def test_a_block_is_entered_again_and_again(rl):
    def log_in():
        with rl.limit(Or("2/s", "3/m"), key="login"):
            pass

    assert calls(log_in) == 2
    with pytest.raises(RuleKeyError, match="already has rules"):
        rl.limit("5/s", key="login").__enter__()


def test_blocks_without_a_key_are_one(rl):
    assert calls(rl.limit("user:3/s", user="vova").__enter__) == 3
    assert calls(rl.limit("user:4/s", user="vova").__enter__) == 1
    assert calls(rl.limit("user:4/s", user="vova", key="own").__enter__) == 4


def test_selectors_given_with_the_rules_go_with_the_key(local):
    names = ["vova"]
    local.limit("user:2/s", key="cats", user=lambda: names[-1])(print)
    other = local.limit(key="cats")(lambda: None)
    assert calls(other) == 2
    names.append("other")
    assert calls(other) == 2
    assert calls(local.limit(key="cats", user="third")(lambda: None)) == 2


def test_names_that_look_alike_are_two(rl):
    assert rl.limit("1/s", key="a:user:b").ask()
    assert rl.limit("user:1/s", key="a").ask(user="b")
    assert rl.limit("user:1/s", key="a:user").ask(user="b")


def test_a_key_is_a_text(local):
    with pytest.raises(TypeError, match="key must be text"):
        local.limit("1/s", key=7)
