"""Tables of names in the documentation agree with the code."""

from __future__ import annotations

import re
import runpy

import pytest
from docs.pages import ROOT

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.config.changes import known_words
from torchrl_elegant.trainers import RunConfig

DOCS = ROOT / "docs"


def test_the_page_of_options_is_what_the_configurations_say():
    generator = runpy.run_path(str(DOCS / "generate_options.py"))
    assert generator["page"]() == (DOCS / "options.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["from-stable-baselines3", "from-elegantrl"])
def test_options_named_beside_those_of_others_exist(page):
    known = {word for config in (RunConfig, *ALGORITHMS.values()) for word in known_words(config)}
    known |= {"algorithm", "tuned", *ALGORITHMS}
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8").rpartition("Names of options:")[2]
    names = set()
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        ours = row.split("|")[2]
        names |= {found.split("=")[0] for found in re.findall(r"`([a-z_]+(?:=[^`]*)?)`", ours)}
    assert len(names) > 15
    assert names <= known, names - known
