"""What the pages show runs, in the order in which they show it."""

import os
import re

import pytest
from conftest import ROOT

PAGES = ["docs/python.md", "crates/tollway-python/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(page):
    with open(os.path.join(ROOT, page)) as text:
        blocks = re.findall(r"^```python\n(.*?)^```$", text.read(), re.MULTILINE | re.DOTALL)
    names = {"current_user": lambda: "vova"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert blocks
