"""How plans and loaders show themselves in a notebook."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import jreader
from jreader import DataLoader, Pipeline, arrays, batch, chain, compose, data, datasets, firstn

FIELDS = [data("image", [None, 784]), data("label", [None, 1], "int64")]


def rows(shown):
    """The cells of the table that a notebook is handed, row by row."""
    html = ET.fromstring(shown._repr_html_())
    assert not set(re.findall(r"color:\w+", shown._repr_html_())) - {"color:inherit"}
    return [["".join(cell.itertext()) for cell in row] for row in html.iter("tr")]


def silent():
    raise AssertionError("a picture reads nothing")


def test_a_plan_shows_its_ops_in_order_with_the_lengths_that_are_known():
    plan = Pipeline(datasets.digits.train()).shuffle(seed=0).batch(64).firstn(3)
    assert rows(plan) == [
        ["digits.arrays('train')", "1,438 samples", "indexed"],
        ["↓ map_readers(scaled)", "1,438 samples", "mapped"],
        ["↓ shuffle(seed=0)", "1,438 samples", "mapped"],
        ["↓ batch(batch_size=64)", "23 batches", "mapped"],
        ["↓ firstn(n=3)", "3 batches", "mapped"],
    ]


def test_indexed_and_streamed_readers_look_different():
    found = Pipeline(arrays(x=np.arange(6))).shuffle().map(dict).batch(2)
    assert [how for *_, how in rows(found)] == ["indexed", "indexed", "mapped", "mapped"]
    kept = Pipeline(arrays(x=np.arange(6))).skip(1).filter(bool).cache()
    assert [how for *_, how in rows(kept)] == ["indexed"] * 2 + ["streamed"] * 2


def test_readers_side_by_side_have_a_rail_each():
    branch = firstn(arrays(label=np.zeros((6, 3))), 4)
    plan = compose(silent, branch, chain(silent, silent), check_alignment=False)
    assert [text for text, *_ in rows(plan)] == [
        "┌ silent",
        "├ arrays(label=float64[6, 3])",
        "│ ↓ firstn(n=4)",
        "├ ┌ silent",
        "│ ├ silent",
        "│ └ chain()",
        "└ compose(check_alignment=False)",
    ]


def test_both_spellings_show_the_same():
    fluent = Pipeline(silent).shuffle(3, seed=1).batch(2)
    nested = batch(jreader.shuffle(silent, 3, seed=1), 2)
    assert rows(fluent) == rows(nested)


def test_a_picture_reads_no_file(tmp_path):
    path = tmp_path / "damaged.npy"
    path.write_bytes(b"no array")
    assert rows(batch(jreader.npy(path), 2)) == [
        [f"npy('{path}')", "length unknown", "not read yet"],
        ["↓ batch(batch_size=2)", "length unknown", "not read yet"],
    ]


def test_a_file_that_was_read_shows_its_length(tmp_path):
    np.save(tmp_path / "squares.npy", np.arange(4) ** 2)
    reader = jreader.npy(tmp_path / "squares.npy")
    list(reader())
    assert rows(reader)[0][1:] == ["4 samples", "indexed"]


def test_names_are_text_not_markup():
    assert (
        rows(jreader.map_readers(lambda sample: sample, silent))[1][0] == "↓ map_readers(<lambda>)"
    )


def over_eight():
    return Mesh(np.array(jax.devices()[:8]), ("data",))


@pytest.mark.parametrize(
    ("where", "place", "shape"),
    [
        (dict, "on the default device", "64"),
        (lambda: {"sharding": "host"}, "on the host", "64"),
        (lambda: {"sharding": jax.devices()[3]}, "on cpu:3", "64"),
        (lambda: {"sharding": over_eight()}, "on 8 devices, cpu:0 to 7", "64"),
        (lambda: {"pmap": True}, "a part for each of 8 devices, cpu:0 to 7", "8, 8"),
    ],
)
def test_a_loader_shows_its_fields_and_where_they_go(where, place, shape):
    loader = Pipeline(datasets.digits.train()).batch(64).load(FIELDS, **where())
    integer = "int64" if place == "on the host" else "int32"
    assert rows(loader)[-3:] == [
        ["↓ DataLoader(capacity=2)", "22 feeds", place],
        ["· image", f"float32[{shape}, 784]", ""],
        ["· label", f"{integer}[{shape}, 1]", ""],
    ]


def test_the_seeds_door_gives_each_place_a_batch_of_its_own():
    loader = DataLoader.from_generator(FIELDS, capacity=4)
    assert rows(loader) == [["DataLoader(capacity=4)", "no source"]]
    loader.set_sample_generator(datasets.digits.train(), batch_size=8, places=jax.devices()[:8])
    assert rows(loader)[-3:-1] == [
        ["↓ DataLoader(capacity=4)", "22 feeds", "a part for each of 8 devices, cpu:0 to 7"],
        ["· image", "float32[8, 8, 784]", ""],
    ]
    assert repr(loader) == (
        "DataLoader(batch(map_readers(scaled, digits.arrays('train')), batch_size=8, "
        "drop_last=True), capacity=4)"
    )


def test_a_loader_whose_batches_are_not_known_shows_names_alone():
    loader = DataLoader.from_generator({"image": 0}).set_batch_generator(silent)
    assert rows(loader) == [
        ["silent", "length unknown", "streamed"],
        ["↓ DataLoader(capacity=2)", "length unknown", "on the default device"],
        ["· image", "", ""],
    ]
