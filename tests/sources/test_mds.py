"""`mds`: what MosaicML Streaming writes is read as it was written, or an error names the shard."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from mds_files import CODES, changed_index, write_mds
from seen import canonical
from widths import examples

import jreader
from jreader import DamagedData, NotResumable, Pipeline, Store, mds
from jreader.readers import start

TEXTS = [{"n": n, "text": f"sample {n}"} for n in range(11)]
COLUMNS = {"n": "int", "text": "str"}

VALUES = {
    "bytes": st.binary(max_size=9),
    "str": st.text(max_size=9),
    "int": st.integers(-(1 << 63), (1 << 63) - 1),
    "str_int": st.integers(-(10**30), 10**30),
    "str_float": st.floats(allow_nan=False),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside),
        max_leaves=4,
    ),
    "jpeg": st.binary(min_size=1, max_size=9),
    **{name: arrays_of.arrays(name, ()).map(lambda array: array[()]) for name in CODES},
    **{
        encoding: arrays_of.arrays(encoding.split(":")[1], shape)
        for encoding, shape in {
            "ndarray:int32": arrays_of.array_shapes(max_dims=3, max_side=5),
            "ndarray:float16:2,3": (2, 3),
            "ndarray:uint8": st.just((300, 2)),
        }.items()
    },
    "ndarray": st.sampled_from(sorted(CODES)).flatmap(
        lambda name: arrays_of.arrays(name, arrays_of.array_shapes(max_dims=3, max_side=5))
    ),
}


@st.composite
def sets(draw):
    """Columns of some encodings, and samples of these."""
    encodings = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    columns = {f"c{number}": encoding for number, encoding in enumerate(encodings)}
    sample = st.fixed_dictionaries({name: VALUES[kind] for name, kind in columns.items()})
    return columns, draw(st.lists(sample, min_size=1, max_size=7))


def folder_of(tmp_path_factory, **options):
    return write_mds(tmp_path_factory.mktemp("set") / "data", **options)


@pytest.fixture
def folder(tmp_path):
    return write_mds(tmp_path / "data", COLUMNS, TEXTS, hashes=["md5", "sha1"])


@examples(60)
@given(made=sets(), per_shard=st.integers(1, 4))
def test_samples_come_back_as_they_were_written(tmp_path_factory, made, per_shard):
    columns, samples = made
    more = {"per_shard": per_shard}
    reader = mds(folder_of(tmp_path_factory, columns=columns, samples=samples, **more))
    assert len(Pipeline(reader)) == len(samples)
    given = list(reader())
    assert canonical(given) == canonical(samples)
    for sample, written in zip(given, samples, strict=True):
        for name, value in written.items():
            assert type(sample[name]) is type(value)
            assert getattr(sample[name], "dtype", None) == getattr(value, "dtype", None)


def test_arrays_that_say_their_dtype_have_it(tmp_path):
    arrays = [np.ones((300, 2), name) for name in CODES]
    folder = write_mds(tmp_path, {"a": "ndarray"}, [{"a": array} for array in arrays])
    for found, written in zip(mds(folder, columns="a")(), arrays, strict=True):
        assert (found.dtype, found.tobytes()) == (written.dtype, written.tobytes())


def test_encodings_without_a_decoder_are_the_bytes_that_are_stored(tmp_path):
    columns = {"list": "list[jpeg]", "many": "jpeg_array", "object": "pkl", "raw": "pil"}
    picture = ("L", np.arange(6, dtype=np.uint8).reshape(2, 3))
    sample = {"list": [b"one", b"two"], "many": [b"one"], "object": {"a": 1}, "raw": picture}
    (found,) = mds(write_mds(tmp_path, columns, [sample]))()
    assert found["list"] == struct.pack("<4I", 0, 2, 3, 3) + b"onetwo"
    assert found["many"] == struct.pack("<2I", 1, 3) + b"one"
    assert found["raw"] == struct.pack("<3I", 3, 2, 1) + b"L" + bytes(range(6))
    assert pickle.loads(found["object"]) == {"a": 1}


def test_columns_are_read_as_they_are_named(folder):
    assert [*mds(folder, columns="text")()] == [sample["text"] for sample in TEXTS]
    (first, *_) = mds(folder, columns=["text", "n"])()
    assert list(first.items()) == [("text", "sample 0"), ("n", 0)]
    with pytest.raises(ValueError, match=r"00000\.mds.* has no column 'x': it has n, text"):
        next(iter(mds(folder, columns=["n", "x"])()))


def test_blocks_are_shards(folder):
    given = [sample["n"] for sample in Pipeline(mds(folder)).shuffle(seed=1, blocks=1)]
    assert sorted(given) == [*range(11)] != given
    shards = [n // 4 for n in given]
    assert len([n for n in range(11) if not n or shards[n] != shards[n - 1]]) == 3


def test_folders_are_one_sequence_also_of_other_columns(tmp_path):
    write_mds(tmp_path / "en", COLUMNS, TEXTS[:5])
    write_mds(tmp_path / "de", {"n": "int", "more": "str"}, [{"n": 5, "more": "x"}])
    assert [sample["n"] for sample in mds([tmp_path / "en", tmp_path / "de"])()] == [*range(6)]
    assert [*mds(f"{tmp_path}/**/index.json", columns="n")()] == [5, *range(5)]
    assert [*mds([tmp_path / "de", tmp_path / "de"])()] == [{"n": 5, "more": "x"}] * 2


def test_an_index_names_shards_in_folders_of_its_own(tmp_path):
    """As `merge_index` writes it."""
    shards = []
    for number, part in enumerate((TEXTS[:6], TEXTS[6:])):
        write_mds(tmp_path / str(number), COLUMNS, part)
        for shard in json.loads((tmp_path / str(number) / "index.json").read_text())["shards"]:
            shard["raw_data"]["basename"] = f"{number}/{shard['raw_data']['basename']}"
            shards.append(shard)
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    assert [*mds(tmp_path)()] == TEXTS
    with pytest.raises(ValueError, match=r"two of the indices name '.*/0/shard\.00000\.mds'"):
        mds(f"{tmp_path}/**/index.json")
    for number in (0, 1):  # as in the local copy that Streaming makes of a far set
        (tmp_path / str(number) / "index.json").unlink()
    assert [*mds(tmp_path)()] == TEXTS
    assert [*mds(tmp_path / "1" / "shard.00001.mds")()] == TEXTS[10:]


def test_single_shards_are_read_and_dealt_to_lanes(folder):
    names = sorted(str(path) for path in folder.glob("shard.*"))
    assert [*mds(names[1])()] == TEXTS[4:8]
    read = jreader.files(names).read(mds, lanes=3)
    assert [sample["n"] for sample in read][:6] == [0, 4, 8, 1, 5, 9]
    (folder / "other.mds").write_bytes(b"")
    with pytest.raises(DamagedData, match=r"other\.mds is .*not a shard that the nearest index"):
        next(iter(mds([names[0], folder / "other.mds"])()))
    (folder / "index.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"data/index\.json', which does not exist"):
        next(iter(mds(names[0])()))


def test_a_far_set_is_read_and_kept(folder, tmp_path, server):
    for path in folder.iterdir():
        server.files[f"data/{path.name}"] = path.read_bytes()
    reader = mds(f"{server.url}/data/index.json", store=Store(tmp_path / "kept"))
    assert [*reader()] == TEXTS
    for path in folder.glob("shard.*"):
        server.sent.pop(f"data/{path.name}")
    assert [*mds(f"{server.url}/data/index.json", store=Store(tmp_path / "kept"))()] == TEXTS
    assert not [name for name in server.sent if "shard" in name]


@examples(60)
@given(
    seed=st.integers(0, 1 << 30),
    cut=st.booleans(),
    columns=st.sampled_from([{"a": "ndarray", "b": "json"}, {"a": "ndarray:int32", "b": "str"}]),
)
def test_damage_is_an_error_that_names_the_shard_or_changes_values(
    tmp_path_factory, seed, cut, columns
):
    """Whichever byte changes: no other error, no other number of samples."""
    rng = random.Random(seed)
    samples = [{"a": np.arange(n + 1, dtype=np.int32), "b": "x" * n} for n in range(4)]
    folder = folder_of(tmp_path_factory, columns=columns, samples=samples)
    (path,) = folder.glob("shard.*")
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    if cut:
        del data[at:]
    else:
        data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    try:
        given = len(list(mds(folder)()))
    except DamagedData as error:
        assert path.name in str(error)  # noqa: PT017  # most changes are none
    else:
        assert (given, cut) == (4, False)


def test_a_wrong_sample_comes_after_the_good_ones_and_says_where_it_is(tmp_path):
    folder = write_mds(tmp_path, {"a": "str"}, [{"a": "one"}, {"a": "two"}, {"a": "six"}])
    path = folder / "shard.00000.mds"
    data = path.read_bytes()
    place = data.index(b"two")
    path.write_bytes(data.replace(b"two", b"\xff\xff\xff"))
    samples = iter(mds(folder)())
    assert next(samples) == {"a": "one"}
    with pytest.raises(
        DamagedData, match=rf"shard\.00000\.mds, at byte {place - 4:,}, is .*decode"
    ):
        next(samples)


def test_packed_shards_are_refused_and_read_where_they_are_unpacked_beside_their_index(
    tmp_path, server
):
    folder = write_mds(tmp_path, COLUMNS, TEXTS, compression="gz")
    with pytest.raises(
        NotImplementedError, match=r"mds\.gz is packed: unpack it to shard\.00000\.mds"
    ):
        mds(folder)
    for path in folder.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    assert [*mds(folder)()] == TEXTS
    for path in folder.iterdir():
        server.files[f"data/{path.name}"] = path.read_bytes()
    assert [*mds(f"{server.url}/data/index.json")()] == TEXTS


WRONG_INDICES = {
    "another format": (lambda shard: shard.update(format="csv"), "no MDS shard in 'shard.00000"),
    "a name outside": (
        lambda shard: shard["raw_data"].update(basename="../shard.00000.mds"),
        "no MDS shard in '../shard",
    ),
    "an absolute name": (
        lambda shard: shard["raw_data"].update(basename="/etc/passwd"),
        "no MDS shard in '/etc/passwd'",
    ),
    "no samples": (lambda shard: shard.update(samples=0), "no MDS shard"),
    "no number": (lambda shard: shard.update(samples="many"), "'str' object"),
    "half a sample": (lambda shard: shard.update(samples=2.5), "'float' object"),
    "a number as a name": (lambda shard: shard["raw_data"].update(basename=3), "'int' object"),
    "a name of another": (
        lambda shard: shard["raw_data"].update(basename="shard.00001.mds"),
        "'shard.00001.mds', or has it twice",
    ),
    "a number as an encoding": (lambda shard: shard.update(column_encodings=[3, "str"]), "'int'"),
    "no file": (lambda shard: shard.pop("raw_data"), "raw_data"),
    "no columns": (lambda shard: shard.pop("column_names"), "column_names"),
    "a size too few": (lambda shard: shard["column_sizes"].pop(), "zip"),
    "no shape": (lambda shard: shard.update(column_encodings=["ndarray:int8:x", "str"]), "int"),
}


@pytest.mark.parametrize("name", WRONG_INDICES)
def test_an_index_of_something_else_is_an_error_where_the_reader_is_made(folder, name):
    change, said = WRONG_INDICES[name]
    changed_index(folder, lambda shards: change(shards[0]))
    with pytest.raises(DamagedData, match=r"index\.json is .*an index of MDS shards.*" + said):
        mds(folder)


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"shards": 3}', '{"shards": []}', '{"shards": [[]]}', "\0"]
)
def test_an_index_that_is_no_index_is_an_error_where_the_reader_is_made(tmp_path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(DamagedData, match="an index of MDS shards"):
        mds(tmp_path)


def test_a_shard_that_is_missing_is_named_where_the_reader_is_made(folder):
    path = next(folder.glob("shard.00001.*"))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        mds(folder)


@pytest.mark.parametrize("samples", [3, 5, 1 << 40])
def test_another_number_of_samples_than_the_index_has_is_an_error(folder, samples):
    changed_index(folder, lambda shards: shards[1].update(samples=samples))
    with pytest.raises(DamagedData, match=rf"00001\.mds.* does not begin with {samples:,} places"):
        list(mds(folder)())


def test_sizes_in_samples_are_bounded_by_the_sample(tmp_path):
    """Of a sample that says it has 4 GB, or an array of 2**64 numbers, no memory is taken."""
    folder = write_mds(tmp_path, {"a": "ndarray"}, [{"a": np.zeros((1, 1), np.uint64)}])
    path = folder / "shard.00000.mds"
    data = path.read_bytes()
    head = data[:-13]
    huge = bytes([64, 1 << 2 | 3]) + b"\xff" * 8
    for sample in (
        b"\xff\xff\xff\xff" + bytes(9),
        struct.pack("<I", 9) + huge[:9],
        struct.pack("<I", 9) + bytes([64, 63 << 2 | 3]) + bytes(7),
    ):
        path.write_bytes(head + sample)
        with pytest.raises(DamagedData, match=r"shard\.00000\.mds, at byte"):
            list(mds(folder)())


def test_a_sample_of_more_bytes_than_its_columns_have_is_an_error(tmp_path):
    folder = write_mds(tmp_path, {"a": "str"}, [{"a": "four"}])
    path = folder / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace(b"\4\0\0\0four", b"\3\0\0\0four"))
    with pytest.raises(DamagedData, match=r"shard\.00000\.mds, at byte .*its columns end at"):
        list(mds(folder)())


def test_a_cursor_is_refused_by_another_set_of_the_same_names_and_sizes(folder):
    def loader():
        return Pipeline(mds(folder, columns="n")).shuffle(seed=3).batch(2).load()

    feeds = loader().steps()
    next(feeds)
    other = [{**sample, "n": -sample["n"]} for sample in TEXTS]
    loader().steps(at=feeds.cursor)
    write_mds(folder, COLUMNS, other, hashes=["md5", "sha1"])
    with pytest.raises(NotResumable, match="mds"):
        loader().steps(at=feeds.cursor)


def test_a_pass_goes_on_where_it_was(folder):
    plan = Pipeline(mds(folder)).shuffle(seed=3, blocks=2)
    whole = [sample["n"] for sample in plan]
    first = start(plan, None)
    assert [next(first.items)["n"] for _ in range(5)] == whole[:5]
    position = first.position()
    first.close()
    assert [sample["n"] for sample in start(plan, position).items] == whole[5:]
