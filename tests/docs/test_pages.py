"""Every block of README and docs runs, and every link leads somewhere."""

from __future__ import annotations

import re
import shutil

import pytest
from docs.pages import NOT_RUN, PAGES, ROOT, blocks, commands, run_command, shortened

_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_their_order(page, tmp_path, monkeypatch):
    # What a page calls its own lies beside it, as in a clone.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(shortened(text), str(page), "exec", dont_inherit=True), names)
        elif language == "sh":
            for words in commands(shortened(text)):
                assert run_command(words) == 0, words
        elif language == "console":
            for words in commands(text):
                assert " ".join(words).startswith(NOT_RUN), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_that_exist(page):
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        path = link.partition("#")[0]
        assert not path or (page.parent / path).exists(), link


def test_the_readme_fits_on_three_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
