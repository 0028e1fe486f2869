"""What an op is called elsewhere, and the pages that use it: found in the pages themselves."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parent
MOST = 6
"""How many pages are named at most."""


def page(name: str, method: str) -> str:
    """Two sections: words of other libraries, and pages that use a name; empty if there is none."""
    words = {method or name, name}
    found = [row for row in rows() if words & row[2]]
    parts = []
    if found:
        table = ["| in | is | here |", "|---|---|---|"]
        table += [f"| {library} | {theirs} | {ours} |" for library, theirs, _, ours in found]
        parts += ["## In other libraries", "\n".join(table)]
    used = sorted(((uses(path, words), path) for path in pages()), key=lambda each: -each[0])
    links = [
        f"- [{title(path)}](../{path.relative_to(DOCS)})" for count, path in used[:MOST] if count
    ]
    if links:
        parts += ["## Pages that use it", "\n".join(links)]
    return "\n\n".join(parts)


@cache
def rows() -> list[tuple[str, str, frozenset[str], str]]:
    """The rows of all tables of `coming_from`: library, their words, names of ours, our words."""
    found = []
    for path in sorted((DOCS / "coming_from").glob("*.md")):
        head: list[str] = []
        for line in path.read_text().splitlines():
            if not line.startswith("| "):
                head = []
                continue
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not head:
                head = cells
            elif "jreader" in head:
                ours = cells[head.index("jreader")]
                for library, theirs in zip(head, cells, strict=False):
                    if library in LIBRARIES and "`" in theirs and called(theirs) != called(ours):
                        found.append((library, link(theirs), called(ours), link(ours)))
    return [*dict.fromkeys(found)]


LIBRARIES = ("Paddle", "PyTorch", "Grain", "tf.data", "Hugging Face")


def called(text: str) -> frozenset[str]:
    """The names of jreader that a cell types: those that are called in its code."""
    code = " ".join(re.findall(r"`([^`]+)`", text))
    return frozenset(re.findall(r"(\w+)\(", code))


def link(text: str) -> str:
    """A cell of a page of `coming_from`, with links as they are from a page beside that folder."""
    beside = re.sub(r"\]\((?!https?:|\.\./)", "](../coming_from/", text)
    return beside.replace("](../coming_from/#", "](#")


@cache
def pages() -> list[Path]:
    """The pages that show a name at work: not lists of all of them."""
    lists = {"pages", "index", "README", "words", "differences", "contributing", "errors"}
    written = {"reference", "notebooks"}
    found = sorted(DOCS.rglob("*.md"))
    return [each for each in found if each.stem not in lists and each.parent.name not in written]


@cache
def blocks(path: Path) -> str:
    """The programs of a page, and the code in its text."""
    found = re.findall(r"```python\n(.*?)```|(?<!`)`([^`\n]+)`", path.read_text(), re.DOTALL)
    return "\n".join(map("".join, found))


def uses(path: Path, words: set[str]) -> int:
    """How often a page calls one of these names."""
    named = "|".join(map(re.escape, words))
    return len(re.findall(rf"(?<!\w)(?:{named})\(", blocks(path)))


@cache
def title(path: Path) -> str:
    """The heading of a page."""
    return path.read_text().partition("\n")[0].removeprefix("# ")
