"""Every argument of every op and source, changed under a cursor: refused, told, or on the page."""

import json
import re
import warnings
from pathlib import Path

import pytest
from changed_arguments import ALLOWED, CHANGED, REFUSED, WARNED, Later
from graphs import parameters
from widths import few

import jreader
from jreader import DataLoader, NotResumable, Pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "cursors.md").read_text()
ROOMS = ("sources", "transforms", "batches", "chats", "workers", "readers", "datasets")
NO_READERS = {  # what is no op, and no source
    *("Columns", "Cursor", "Dataset", "IterableDataset", "Node", "Pass", "Processes", "Reader"),
    *("Store", "at_epoch", "datasets", "get_worker_info", "marked_text", "replay", "stack"),
    "start",
}
ELSEWHERE = {"huggingface": "tests/sources/tables/test_huggingface.py"}
ALL = [(name, argument) for name, (_, arguments) in CHANGED.items() for argument in arguments]
SOME = [pair for pair in ALL if pair[0] in ("pack", "map_samples", "mix", "csv")]


def exported():
    """The ops and sources that users have."""
    rooms = {name: room.split(".")[1] for name, room in jreader._LATER.items()}
    return {name for name, room in rooms.items() if room in ROOMS} - NO_READERS


def test_every_argument_of_every_op_and_source_has_an_entry():
    assert exported() - set(ELSEWHERE) == set(CHANGED)
    for name, (_, arguments) in CHANGED.items():
        wanted = set(parameters(getattr(jreader, name)))
        assert set(arguments) == wanted, f"say in changed_arguments.py what {name} does"


def loader_of(name, argument, value):
    plan = CHANGED[name][0](**{argument: value.make() if isinstance(value, Later) else value})
    if isinstance(plan, DataLoader):
        return plan
    return Pipeline(plan).batch(4).load(sharding="host", last="pad")


def gone_on(loader, cursor):
    """The cursor of a loader that went on from another one, which arrival order refuses."""
    loader.load_state_dict(cursor)
    next(iter(loader))
    return loader.state_dict()


@pytest.mark.filterwarnings("ignore:shuffle-after-batch", "ignore:.*leaves out")
@pytest.mark.parametrize(("name", "argument"), few(ALL, SOME))
def test_a_changed_argument_is(name, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verdict, (before, after) = CHANGED[name][1][argument]
    feeds = loader_of(name, argument, before).epoch(0)
    next(feeds)
    cursor = json.loads(json.dumps(feeds.cursor))
    feeds.close()
    loader_of(name, argument, before).load_state_dict(cursor)  # without a word
    other = loader_of(name, argument, after)
    if verdict == REFUSED:
        with pytest.raises(NotResumable):
            gone_on(other, cursor)
    elif verdict == WARNED:
        with pytest.warns(UserWarning, match=r"not (what|made as) (it|they) (was|were)"):
            other.load_state_dict(cursor)
    else:
        with warnings.catch_warnings(action="error"):
            other.load_state_dict(cursor)


def test_what_goes_on_in_silence_is_on_the_page():
    rows = re.findall(r"^\| (.+?) \| (?:allowed|not noticed) \|", PAGE, re.MULTILINE)
    said = set(re.findall(r"`(\w+)=?`", " ".join(rows)))
    silent = {
        argument
        for _, arguments in CHANGED.values()
        for argument, (verdict, _) in arguments.items()
        if verdict == ALLOWED
    }
    assert silent <= said
