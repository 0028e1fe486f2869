"""The site: `sphinx-build -W --keep-going -n -q docs build/site` (see README.md in this folder)."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer
from sphinx.util.inspect import stringify_signature

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import name_pages  # noqa: E402  # found by the line above

import jreader  # noqa: E402  # likewise
from jreader import Pipeline  # noqa: E402  # likewise

project = "jreader"
author = "the authors of jreader"
copyright = f"2026, {author}"  # noqa: A001  # Sphinx's name
release = jreader.__version__
version = release

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
exclude_patterns = ["README.md", "**.ipynb_checkpoints"]
root_doc = "index"
nitpicky = True
# types of signatures: those of others have no pages here, and neither have type variables
nitpick_ignore_regex = [("py:.*", r"(?!jreader\.[A-Za-z]+$).*")]

myst_heading_anchors = 4
nb_execution_mode = "off"  # they are saved as they ran, and the tests run them

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
default_role = "code"  # docstrings name arguments as `reader`
highlight_language = "default"  # blocks that do not name theirs

html_theme = "furo"
html_title = "jreader"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}


def links_lead_to_copies(_app: Any, name: str, source: list[str]) -> None:
    """Pages and notebooks link to files of the repository, some of which the site has elsewhere."""
    up = "../" * name.count("/")
    text = re.sub(r"\]\((?:\.\./)+notebooks/", f"]({up}notebooks/", source[0])
    text = re.sub(r"\]\((?:\.\./)+CHANGELOG\.md", f"]({up}reference/changelog.md", text)
    source[0] = re.sub(r"\]\((?:\.\./)?docs/", f"]({up}", text)


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
