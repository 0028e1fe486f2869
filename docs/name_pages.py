"""A page for every public name, from its docstring; Sphinx's configuration has them written."""

from __future__ import annotations

import inspect
from pathlib import Path

import elsewhere
import op_pictures

import jreader
from jreader import Node, Pipeline
from jreader.pipelines.methods import methods_of

ROOMS = {
    "pipelines": "Pipelines",
    "loaders": "Loaders",
    "paddle": "Paddle's older names",
    "sources": "Sources",
    "transforms": "Ops that select, reorder and change samples",
    "workers": "Threads, processes, clusters",
    "batches": "Batches",
    "chats": "Chats",
    "datasets": "Data sets",
    "images": "Images",
    "sounds": "Sounds",
    "feeds": "Fields of feeds",
    "sinks": "Writing",
    "measuring": "Speed",
    "linting": "The linter",
    "readers": "What a reader is",
    "orders": "Random orders",
    "errors": "Errors",
}
"""The rooms of public names, in the order of the menu; one that is not here comes last."""

LAWS = {
    "batch": "Batches lose nothing",
    "buffered": "Prefetching is bounded",
    "cache": "A cache keeps",
    "chain": "The usual algebra holds",
    "epochs": "Epochs differ",
    "firstn": "Prefetching is bounded",
    "map_readers": "The usual algebra holds",
    "map_samples": "Workers are invisible",
    "multiprocess_reader": "Workers are invisible",
    "shard": "Shards partition",
    "shuffle": "Shuffles permute",
    "unbatch": "Batches lose nothing",
    "xmap_readers": "Workers are invisible",
}
"""The law of docs/guarantees.md that is about an op, beside those that hold for every op."""

JOBS = {
    "Pipeline": {
        "Select, filter and map samples": "map xmap map_batches filter flat_map firstn skip shard",
        "Shuffle, repeat and split": "shuffle epochs split folds",
        "Combine readers": "chain compose interleave mix",
        "Make batches": "batch rebatch unbatch padded_batch bucket group_by sliding_window",
        "Text and documents": "windows pack fill chat",
        "Files and caches": "read cache prefetch prepare write",
        "Load onto devices": "load",
        "Look at a pipeline": "peek element_spec lock check_lock",
    },
    "DataLoader": {
        "Iterate": "steps start reset over peek epoch next_epoch chunk next",
        "Resume": "state_dict load_state_dict where without affected",
        "Feed devices": "replicate on_device for_keras warm element_spec shapes batch_axes",
        "Watch and tune": "stats tune tuned samples",
        "Paddle's constructors": "from_generator set_sample_generator set_sample_list_generator "
        "set_batch_generator",
    },
}
"""What one does with a pipeline or a loader, and the members for it; others come last."""

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
NOT_YET = "# Changelog\n\nNothing was released yet.\n"

ERRORS = "exceptions"
"""The stem of the page that has all exceptions: too small for a page each."""


def write(folder: Path) -> None:
    """Writes the pages into a folder, and removes those of names that have gone."""
    folder.mkdir(exist_ok=True)
    pages = {stem(name): page(name) for name in jreader.__all__ if not raised(name)}
    pages[ERRORS] = errors()
    pages["index"] = index()
    pages["changelog"] = CHANGELOG.read_text() if CHANGELOG.exists() else NOT_YET
    for name, text in pages.items():
        renew(folder / f"{name}.md", text)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()


def renew(path: Path, text: str) -> None:
    """Writes a file if that changes it: Sphinx builds pages again whose files are newer."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def copy(notebooks: Path, folder: Path) -> None:
    """Copies the notebooks, which lie beside the pages, into them."""
    folder.mkdir(exist_ok=True)
    for path in notebooks.glob("*.ipynb"):
        renew(folder / path.name, path.read_text().replace("](../docs/", "](../"))
    for path in folder.glob("*.ipynb"):
        if not (notebooks / path.name).exists():
            path.unlink()


def stem(name: str) -> str:
    """The file of a name: `Report` and `report` would be one where case is ignored."""
    lower = name.lower()
    return f"{name}-class" if lower != name and lower in jreader.__all__ else name


def raised(name: str) -> bool:
    """Whether a name is an exception or a warning."""
    value = getattr(jreader, name)
    return inspect.isclass(value) and issubclass(value, Exception)


def room(name: str) -> str:
    """The room of a public name, without the name of the package."""
    return jreader._LATER[name].partition(".")[2]  # noqa: SLF001  # the one list of them


def first_line(name: str) -> str:
    """The sentence that defines a name."""
    if name == "Reader":
        return "Any function without arguments whose result can be iterated."
    return (inspect.getdoc(getattr(jreader, name)) or "").partition("\n")[0]


def index() -> str:
    """The page that lists all of them, room by room."""
    named = {key: [] for key in ROOMS} | {room(name): [] for name in jreader.__all__}
    for name in jreader.__all__:
        named[room(name)].append(name)
    parts = ["# Every name", "All that `import jreader` gives, by what it is for."]
    for key, names in named.items():
        rows = [f"| {link(name)} | {first_line(name)} |" for name in names]
        parts += [f"## {ROOMS.get(key, key.capitalize())}", table(rows)]
    stems = [stem(name) for names in named.values() for name in names if not raised(name)]
    return "\n\n".join([*parts, toctree([*stems, ERRORS])]) + "\n"


def link(name: str) -> str:
    """A link to the entry of a name, from a page beside it."""
    return f"{{py:exc}}`~jreader.{name}`" if raised(name) else f"[`{name}`]({stem(name)}.md)"


def page(name: str) -> str:
    """The page of one name: a picture, what it is, its docstring, and other words for it."""
    method = method_of(name)
    parts = [f"# {name}", op_pictures.page(name), directive(name), *members(name)]
    if method:
        parts += [
            "## As a method",
            f"{{py:meth}}`Pipeline.{method} <jreader.Pipeline.{method}>` is this op as a method.",
        ]
    parts += [facts(name), elsewhere.page(name, method)]
    return "\n\n".join(filter(None, parts)) + "\n"


def method_of(name: str) -> str:
    """The method of a pipeline that is this op; an empty text where there is none."""
    value = getattr(jreader, name)
    return methods_of(Pipeline).get(value, "") if callable(value) else ""


def directive(name: str) -> str:
    """What has Sphinx show the docstring, and those of what belongs to it."""
    value = getattr(jreader, name)
    whole = f"jreader.{name}"
    if inspect.ismodule(value):
        parts = [
            f".. auto{'class' if inspect.isclass(member) else 'function'}:: {whole}.{each}"
            for each in value.__all__
            if not inspect.ismodule(member := getattr(value, each)) and each not in jreader.__all__
        ]
        inner = [
            f".. automodule:: {whole}.{each}\n   :members:"
            for each in value.__all__
            if inspect.ismodule(getattr(value, each))
        ]
        return rst(f".. automodule:: {whole}", *inner, *parts)
    if name == "Reader":
        return rst(f".. autodata:: {whole}\n   :no-value:")
    if not inspect.isclass(value):
        return rst(f".. autofunction:: {whole}")
    if name in JOBS:
        return rst(f".. autoclass:: {whole}")
    alone = value is jreader.Pass or (issubclass(value, Node) and value is not Node)
    return rst(f".. autoclass:: {whole}" + ("" if alone else "\n   :members:"))


def shown(value: type) -> list[str]:
    """The members that users of a class see: those with a docstring."""
    listed = dir(Pipeline(list) if value is Pipeline else value)
    public = (each for each in listed if not each.startswith("_"))
    return [each for each in public if inspect.getdoc(getattr(value, each, None))]


def members(name: str) -> list[str]:
    """What a pipeline or a loader can do: tables by job, then each member at length."""
    if name not in JOBS:
        return []
    value = getattr(jreader, name)
    jobs = {job: names.split() for job, names in JOBS[name].items()}
    listed = {each for names in jobs.values() for each in names}
    jobs["Others"] = [each for each in shown(value) if each not in listed]
    parts = []
    for job, names in jobs.items():
        rows = [
            f"| {{py:{kind(value, each)}}}`{each} <jreader.{name}.{each}>` "
            f"| {inspect.getdoc(getattr(value, each)).partition(chr(10))[0]} |"
            for each in names
        ]
        parts += [f"## {job}", table(rows)]
    whole = [
        f".. auto{'method' if kind(value, each) == 'meth' else 'attribute'}:: jreader.{name}.{each}"
        for each in shown(value)
    ]
    return [*parts, "## Every member", rst(*whole)]


def kind(value: type, member: str) -> str:
    """What Sphinx calls a member of a class."""
    found = inspect.getattr_static(value, member)
    return "meth" if callable(found) or isinstance(found, classmethod) else "attr"


def facts(name: str) -> str:
    """What an op is, told by its class: its method, its length, its plane, its seed."""
    value = getattr(jreader, name)
    if not (inspect.isclass(value) and issubclass(value, Node)) or value in (Node, Pipeline):
        return ""
    rows = []
    fields = value.__dataclass_fields__
    if method := method_of(name):
        rows.append(f"| as a method | {{py:meth}}`~jreader.Pipeline.{method}` of a pipeline |")
    if value.plane is not Node.plane:
        rows.append("| by index | yes, if what it reads is: then any sample is found at once |")
    if value.length is not Node.length:
        rows.append("| length | known before it is read, if that of what it reads is |")
    if "seed" in fields:
        rows.append("| random | a seed fixes it; every epoch is another one |")
    if value.in_cursor == "never":
        rows.append("| in a cursor | no: a run may be resumed with or without it |")
    kept = {"all": "all of them, as they are", "some": "some of them, as they are"}
    if value.from_reader in kept:
        rows.append(f"| gives the samples it reads | {kept[value.from_reader]} |")
    own = f"{LAWS[name]}; and " if name in LAWS else ""
    every = "[those of every op](../guarantees.md#the-laws-in-words), on random plans"
    rows.append(f"| laws | {own}{every} |")
    return "## What it keeps\n\n" + table(rows)


def errors() -> str:
    """The page of all exceptions."""
    names = [name for name in jreader.__all__ if raised(name)]
    names.sort(key=lambda name: name != "ReaderError")
    shown = [f".. autoexception:: jreader.{name}\n   :show-inheritance:" for name in names]
    return "\n\n".join(
        [
            "# Exceptions",
            "What jreader raises itself. [Errors](../errors.md) has messages, with cause and cure.",
            rst(*shown),
        ]
    )


def table(rows: list[str]) -> str:
    """A table without a head, of rows of two cells."""
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else ""


def toctree(stems: list[str]) -> str:
    """What puts pages into the menu."""
    return "\n".join(["```{toctree}", ":hidden:", "", *stems, "```"])


def rst(*directives: str) -> str:
    """Directives of Sphinx, in a page of Markdown."""
    return "```{eval-rst}\n" + "\n\n".join(directives) + "\n```"
