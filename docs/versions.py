"""Builds the sites of all releases side by side: `python docs/versions.py OUT`.

OUT gets a folder for each tag `v*` and `dev`, of the tree as it is; `versions.json`, from which
their pages fill a menu; and a page that leads to the newest release.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEADS_ON = """<!doctype html>
<meta charset="utf-8">
<title>jreader</title>
<meta http-equiv="refresh" content="0; url={0}/">
<a href="{0}/">jreader {0}</a>
"""


def run(*command: object) -> str:
    """What a command prints."""
    return subprocess.run(  # noqa: S603  # git and Sphinx
        [str(each) for each in command], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ).stdout


def build(tree: Path, out: Path, *options: str) -> None:
    """Builds the site of a tree."""
    run(sys.executable, "-m", "sphinx", "-j", "2", "-q", *options, tree / "docs", out)


def main(out: Path) -> None:
    """Builds them all, the newest release first."""
    tags = run("git", "-c", "versionsort.suffix=rc", "tag", "--list", "v*", "--sort=-v:refname")
    names = [*tags.split(), "dev"]  # a candidate comes after its release
    build(ROOT, out / "dev", "-W", "--keep-going")
    for tag in names[:-1]:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder, tag)
            run("git", "worktree", "add", "--detach", tree, tag)
            try:
                build(tree, out / tag)
            finally:
                run("git", "worktree", "remove", "--force", tree)
    shutil.rmtree(out / "jupyter_execute", ignore_errors=True)  # notebooks, as MyST-NB reads them
    (out / "versions.json").write_text(json.dumps(names))
    (out / "index.html").write_text(LEADS_ON.format(names[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
