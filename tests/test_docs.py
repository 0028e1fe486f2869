"""Every block of the pages in docs runs, in order, page by page, where what it imports is there."""

from __future__ import annotations

import gc
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
from docs_scripts import script
from widths import few

ROOT = Path(__file__).parents[1]
NEEDS = {
    "coming_from/equinox": ("equinox", "optax"),
    "coming_from/flax": ("flax", "optax", "orbax"),
    "coming_from/levanter": ("levanter",),
    "coming_from/optax": ("optax",),
    "coming_from/tunix": ("tunix",),
    "images": ("simplejpeg", "cv2", "PIL"),
    "how_to/images_from_files": ("simplejpeg", "cv2", "PIL"),
    "how_to/pictures_among_text": ("simplejpeg", "cv2", "PIL"),
    "how_to/stop_and_resume": ("orbax",),
}
DOCS = ROOT / "docs"
WRITTEN_FOR_THE_SITE = {"notebooks", "reference"}  # by its build, if there was one here
PAGES = [
    page for page in sorted(DOCS.rglob("*.md")) if page.parent.name not in WRITTEN_FOR_THE_SITE
]
COSTLY = (
    "far",
    "images",
    "ops",
    "text",
    "how_to",
    "coming_from",
)  # pages and folders: seconds each
QUICK = [page for page in PAGES if {page.stem, page.parent.name}.isdisjoint(COSTLY)]


def name_of(page):
    return str(page.relative_to(DOCS).with_suffix(""))


@pytest.fixture
def forgotten(tmp_path):
    """Forgets the modules that a page has written, since others have their names."""
    yield
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore:__array__ implementation", "ignore:Your input ran")  # Keras
@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("page", few(PAGES, QUICK), ids=name_of)
def test_the_python_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    for name in NEEDS.get(name_of(page), ()):
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_to_files(page):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_places_that_a_page_links_to_are_headings(page):
    for link, place in re.findall(r"\]\((?!https?:)([^)#]*\.md|)#([^)]+)", page.read_text()):
        there = (page.parent / link if link else page).read_text()
        headings = re.findall(r"^#+ (.*)", there, re.MULTILINE)
        assert place in {
            re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings
        }


def test_one_page_lists_every_page():
    listed = (DOCS / "pages.md").read_text()
    here = {"pages", "index", "README"}
    names = [name_of(page) for page in PAGES if name_of(page) not in here]
    assert [name for name in names if f"({name}.md)" not in listed] == []


def test_a_searched_word_stands_in_the_page_that_the_site_shows_first():
    table = script("searched_words").PAGES
    words = [(word, page) for page, line in table.items() for word in line.split(", ")]
    assert len({word for word, _ in words}) == len(words)
    pages = {page: (DOCS / f"{page}.md").read_text().lower() for page in table}
    assert [(word, page) for word, page in words if word not in pages[page]] == []


def test_the_rooms_are_those_that_there_are():
    rooms = re.findall(
        r"```\n(jreader/\n.*?)```", (DOCS / "contributing.md").read_text(), re.DOTALL
    )
    listed = set(re.findall(r"^  ([a-z_]+)(?:\.py|/)", rooms[0], re.MULTILINE))
    package = ROOT / "jreader"
    there = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "py.typed"))}
    assert listed == there
