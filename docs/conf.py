"""The site: `sphinx-build -W --keep-going -n -q docs build/site` (see README.md in this folder)."""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer
from sphinx.util.inspect import stringify_signature

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import name_pages  # noqa: E402  # found by the line above
import searched_words  # noqa: E402  # found by the line above

import jreader  # noqa: E402  # found by the line above
from jreader import Pipeline  # noqa: E402  # found by the line above

HOME = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
BRANCHES = (  # of the link to the repository
    '<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.5">'
    '<circle cx="4" cy="3" r="2"/><circle cx="4" cy="13" r="2"/><circle cx="12" cy="6" r="2"/>'
    '<path d="M4 5v6M12 8c0 3-8 1-8 3"/></svg>'
)

project = "jreader"
author = "the authors of jreader"
copyright = f"2026, {author}"  # noqa: A001  # Sphinx's name
release = jreader.__version__
version = release

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "sphinxext.opengraph",
]
exclude_patterns = ["README.md", "**.ipynb_checkpoints"]
templates_path = ["templates"]
root_doc = "index"
nitpicky = True
# types of signatures: those of others have no pages here, and neither have type variables
nitpick_ignore_regex = [("py:.*", r"(?!jreader\.[A-Za-z]+$).*")]

myst_heading_anchors = 4
nb_execution_mode = "off"  # they are saved as they ran, and the tests run them

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
default_role = "code"  # docstrings name arguments as `reader`
highlight_language = "default"  # blocks that do not name theirs

html_theme = "furo"
html_title = "jreader"
html_logo = html_favicon = "pictures/logo.svg"
html_static_path = ["site.css", "tables.js", "versions.js"]
html_css_files = ["site.css"]
html_js_files = [(script, {"defer": "defer"}) for script in ("tables.js", "versions.js")]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_theme_options = {
    "navigation_with_keys": True,
    "source_repository": HOME,
    "source_branch": "main",
    "source_directory": "docs/",
    "footer_icons": [{"name": "Repository", "url": HOME, "class": "", "html": BRANCHES}],
}
OWNER = HOME.split("/")[-2]
ogp_site_url = f"https://{OWNER}.github.io/{project}/v{version}/"
ogp_description_length = 200
ogp_social_cards = {"enable": False}
copybutton_exclude = ".linenos, .gp, .go"


def pages_without_a_source_have_no_link_to_edit_it(
    _app: Any, name: str, _template: str, context: dict[str, Any], _doctree: Any
) -> None:
    """Pages of names, and the copies of notebooks and of the changelog, are made here."""
    if name.startswith(("reference/", "notebooks/")):
        context["theme_top_of_page_buttons"] = []


def links_lead_to_copies(_app: Any, name: str, source: list[str]) -> None:
    """Pages and notebooks link to files of the repository, some of which the site has elsewhere."""
    up = "../" * name.count("/")
    text = re.sub(r"\]\((?:\.\./)+notebooks/", f"]({up}notebooks/", source[0])
    text = re.sub(r"\]\((?:\.\./)+CHANGELOG\.md", f"]({up}reference/changelog.md", text)
    text = re.sub(r"\]\((?:\.\./)?docs/", f"]({up}", text)
    source[0] = searched_words.with_entries(name, text)


def signatures_of_ops_are_those_of_their_fields(
    _app: Any, what: str, _name: str, value: Any, _options: Any, text: str | None, _returns: str
) -> tuple[str, None] | None:
    """Sphinx shows how a class is made, and ops are made by a function that takes anything."""
    if what != "class" or not (text or "").startswith("(*_args"):
        return None
    return stringify_signature(
        inspect.signature(value), show_return_annotation=False, unqualified_typehints=True
    ), None


def setup(app: Any) -> None:
    """Writes what is not committed: a page for each public name, and copies of the notebooks."""
    name_pages.write(DOCS / "reference")
    name_pages.copy(DOCS.parent / "notebooks", DOCS / "notebooks")
    analyzer = ModuleAnalyzer.for_module(Pipeline.__module__)
    analyzer.analyze()
    analyzer.overloads.clear()  # the signature behind them says the same in fewer lines
    app.connect("autodoc-process-signature", signatures_of_ops_are_those_of_their_fields)
    app.connect("source-read", links_lead_to_copies)
    app.connect("html-page-context", pages_without_a_source_have_no_link_to_edit_it)
