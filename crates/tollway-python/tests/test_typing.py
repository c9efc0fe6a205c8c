"""The package is typed, and its types say what it does."""

import inspect
import os
import subprocess
import sys

import pytest

import tollway
from tollway import _tollway


@pytest.mark.parametrize("what", [["typed.py"], ["--package", "tollway"]])
def test_a_type_checker_agrees(what):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *what]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(__file__))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_everything_public_says_what_it_is():
    for name in tollway.__all__:
        item = getattr(tollway, name)
        assert inspect.getdoc(item), name
        for member, value in vars(item).items():
            if not member.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_the_stub_names_what_the_extension_has():
    with open(os.path.join(os.path.dirname(tollway.__file__), "_tollway.pyi")) as stub:
        text = stub.read()
    for name, item in vars(_tollway).items():
        if name.startswith("_"):
            continue
        assert f"class {name}" in text or f"def {name}(" in text, name
        for member in vars(item) if inspect.isclass(item) else ():
            assert member.startswith("_") or f"def {member}(" in text, f"{name}.{member}"
