"""Every block of the pages in docs runs, in order, page by page, where what it imports is there."""

from __future__ import annotations

import gc
import os
import re
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
from widths import few

ROOT = Path(__file__).parents[1]
NEEDS = {"images": ("simplejpeg", "PIL")}
PAGES = sorted((ROOT / "docs").glob("*.md"))
COSTLY = ("far", "images", "ops", "text")  # seconds each
QUICK = [page for page in PAGES if page.stem not in COSTLY]


@pytest.mark.parametrize("page", few(PAGES, QUICK), ids=lambda page: page.stem)
def test_the_python_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    for name in NEEDS.get(page.stem, ()):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    room = {"__name__": page.stem}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    with mock.patch.dict(os.environ):  # which a page may change
        for number, text in enumerate(blocks):
            used = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
            if not all(map(find_spec, used)):  # an extra, which is not installed
                continue
            place = f"{page.name}, block {number}"
            exec(compile(text, place, "exec", dont_inherit=True), room)
    room.clear()  # its functions hold it, and it holds loaders, whose workers would stay
    gc.collect()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_to_files(page):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_readme_lists_every_page():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES if f"(docs/{page.name})" not in readme] == []
