"""Cursors that an earlier release stored go on in this one, or are refused with the reason.

The runs and epochs in `stored_cursors.jsonl` were written by `tests/helpers/stored_loaders.py`. Its
other lines are cursors of mixtures, written by 71b2ed9d, and of format 1, written by 18d136f and
a60fd61, and the modules that public names lay in.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from seen import through_json
from steps import told
from stored_loaders import EPOCH, LOADERS, RUNS
from widths import few

import jreader
from jreader import NotResumable, arrays, datasets, mix
from jreader.readers import Plan
from jreader.readers.fingerprints import fingerprint
from jreader.readers.hashing import _module_in_cursors

# the release before said nothing of what plans in their order leave out
pytestmark = pytest.mark.filterwarnings("ignore:same-left-out", "ignore:shuffle-after-batch")

OTHER_PYTHON = sys.version_info[:2] != (3, 11)
INDEXED_SINCE = "streamed: jsonl"  # its lines are found by number now
GO_ON = [name for name in LOADERS if name != INDEXED_SINCE]
DOORS = (  # some of each door of the loader: a state is a cursor
    *("indexed: shuffled", "indexed: resident", "indexed: chunk(2)"),
    *("streamed: shuffle in windows", "streamed: map with processes"),
    *("data set: shuffle", "data set: workers", "data set: a stream"),
    *("generator: samples", "generator: sample lists", "generator: batches"),
)
KEPT = Path(__file__).parent / "stored_cursors.jsonl"


def stored(kind):
    """What was stored, by names."""
    known = map(json.loads, KEPT.read_text().splitlines())
    return {line["name"]: line for line in known if line["kind"] == kind}


@pytest.fixture(autouse=True)
def _other_pythons_are_told_of_functions():
    """Python compiles functions to other code in other versions: only those may warn."""
    with warnings.catch_warnings():
        if OTHER_PYTHON:
            told = "(a function|the data|the feeds) of this .* another Python version"
            warnings.filterwarnings("ignore", told, UserWarning)
        yield


def comparable(cursor):
    """The cursor without what later releases add, nor hashes of functions that Python compiles."""
    unlike = {"plan", "check", "digest"} if OTHER_PYTHON else {"check"}
    known = {name: cursor["plan"][name] for name in Plan.__required_keys__}
    made = through_json({**cursor, "plan": known})
    return {name: part for name, part in made.items() if name not in unlike}


def rests(kind, name):
    """Each cursor, and the feeds that came behind it."""
    line = stored(kind)[name]
    for cursor, done in zip(line["cursors"], line["done"], strict=True):
        yield cursor, line["feeds"][done:]


def test_every_loader_has_stored_cursors():
    assert list(stored("epoch")) == list(LOADERS)
    assert list(stored("run")) == list(RUNS)


@pytest.mark.parametrize("name", GO_ON)
def test_an_epoch_goes_on_from_stored_cursors(name, tmp_path):
    loader = LOADERS[name](tmp_path)
    for cursor, rest in rests("epoch", name):
        assert through_json(list(map(told, loader.epoch(EPOCH, at=cursor)))) == rest


@pytest.mark.parametrize("name", few(GO_ON, DOORS))
def test_a_loader_takes_up_stored_cursors_as_its_state(name, tmp_path):
    loader = LOADERS[name](tmp_path)
    for cursor, rest in rests("epoch", name):
        loader.load_state_dict(cursor)
        assert through_json(list(map(told, loader))) == rest


def test_cursors_of_lines_that_were_streamed_are_refused_with_the_reason(tmp_path):
    loader = LOADERS[INDEXED_SINCE](tmp_path)
    for cursor, _ in rests("epoch", INDEXED_SINCE):
        with pytest.raises(NotResumable, match=r"another plan, whose line 1 is jsonl.*or start"):
            loader.epoch(EPOCH, at=cursor)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_from_stored_cursors_across_its_epochs(name, tmp_path):
    loader, many, _ = RUNS[name]
    for cursor, rest in rests("run", name):
        feeds = LOADERS[loader](tmp_path).steps(many, at=cursor)
        assert through_json(list(map(told, feeds))) == rest


@pytest.mark.parametrize("name", RUNS)
def test_cursors_behind_a_stored_one_are_those_that_were_stored(name, tmp_path):
    loader, many, _ = RUNS[name]
    first, *others = stored("run")[name]["cursors"]
    feeds = LOADERS[loader](tmp_path).steps(many, at=first)
    later = [comparable(feeds.cursor) for _ in feeds]
    others = list(map(comparable, others))
    assert [cursor for cursor in later if cursor in others] == others


def test_public_names_are_hashed_by_the_modules_they_lay_in():
    """A user's function reads the same of jreader, wherever that lies by now: `_OLD_MODULES`."""
    was = {name: line["module"] for name, line in stored("public name").items()}
    made = {name: getattr(datasets, name, getattr(jreader, name, None)) for name in was}
    assert {name: _module_in_cursors(each) for name, each in made.items() if each} == was


@pytest.mark.parametrize("kind", ["format 1, stream version 1", "format 1, stream version 2"])
@pytest.mark.parametrize(
    "name", ["indexed: shuffled", "streamed: shuffle in windows", "data set: shuffle"]
)
def test_older_formats_are_refused_with_the_reason(kind, name, tmp_path):
    said = f"{kind.replace(',', ' and')}, .*in other orders.*resume with the release that wrote it"
    loader = LOADERS[name](tmp_path)
    (cursor,) = stored(kind)[name]["cursors"]
    for give in (
        lambda: loader.load_state_dict(cursor),
        lambda: loader.epoch(EPOCH, at=cursor),
        lambda: loader.steps(at=cursor),
    ):
        with pytest.raises(NotResumable, match=said):
            give()


def test_folders_of_caches_and_locks_name_readers_of_mixtures_as_earlier_releases_did():
    web, code = arrays(np.arange(9)), arrays(np.arange(5))
    assert fingerprint(mix({"web": web, "code": code}, {"web": 3, "code": 1}, seed=0))["ops"] == [
        "told: [[0,[3,1],[0,0],0]]",
        "arrays(columns=int64[9])",
        "arrays(columns=int64[5])",
        "mix(2 readers, seed=0, stop='first')",
        "found by place: as many as its readers have in proportion",
    ]
