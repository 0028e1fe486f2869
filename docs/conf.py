"""The site: `sphinx-build -W --keep-going -n -q docs build/site` (see README.md in this folder)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import name_pages  # noqa: E402  # found by the line above

import jreader  # noqa: E402  # likewise

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


def notebooks_are_beside_the_pages(_app: Any, name: str, source: list[str]) -> None:
    """Pages link to ../notebooks, as files of the repository; the site has its own copy of them."""
    up = "../" * name.count("/")
    source[0] = re.sub(r"\]\((?:\.\./)+notebooks/", f"]({up}notebooks/", source[0])


def setup(app: Any) -> None:
    """Writes what is not committed: a page for each public name, and copies of the notebooks."""
    name_pages.write(DOCS / "reference")
    name_pages.copy(DOCS.parent / "notebooks", DOCS / "notebooks")
    app.connect("source-read", notebooks_are_beside_the_pages)
