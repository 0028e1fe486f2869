"""What `write` writes, the readers of the formats give back: every tree that a format can hold."""

import json
import pickle
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from seen import canonical
from widths import examples

import jreader
from jreader import arrayrecord, arrow, npy, parquet, tar, write
from jreader.sources.stored_rows import reloaded

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None  # many short lives of files
SIZES = {"samples_per_shard": st.integers(1, 5), "threads": st.integers(1, 3)}
NUMBERS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
TIMES = ("M8[D]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]")
NEAR = {"allow_nan": False}


def alike(some, others):
    return canonical(list(some)) == canonical(list(others))


def elements(dtype):
    if np.dtype(dtype).kind in "Mm":  # within what a day of 32 bits can tell
        return st.integers(-(2**31), 2**31 - 1).map(lambda n: np.array(n, "i8").view(dtype)[()])
    return hnp.from_dtype(np.dtype(dtype), **NEAR)


def fixed(dtypes, least=0):
    """Arrays of one dtype and shape."""
    shapes = hnp.array_shapes(min_dims=least, max_dims=3, min_side=1, max_side=3)
    return st.tuples(st.sampled_from(dtypes), shapes).map(
        lambda kind: hnp.arrays(kind[0], kind[1], elements=elements(kind[0]))
    )


def of_any_length(dtypes):
    inner = hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=2) | st.just(())
    return st.tuples(st.sampled_from(dtypes), inner).map(
        lambda kind: st.integers(0, 3).flatmap(
            lambda many: hnp.arrays(kind[0], (many, *kind[1]), elements=elements(kind[0]))
        )
    )


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
plain = st.sampled_from(
    [st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)]
)
of_parquet = st.one_of(
    plain,
    st.sampled_from([texts, st.binary(max_size=5)]),
    fixed(NUMBERS + TIMES),
    of_any_length(NUMBERS + TIMES),
)


def structs_of(leaves):
    return st.recursive(
        st.dictionaries(texts, leaves, min_size=1, max_size=3),
        lambda below: st.dictionaries(texts, below, min_size=1, max_size=2),
        max_leaves=2,
    )


structs = structs_of(of_parquet)
structs_of_arrow = structs_of(of_parquet | fixed(["M8[s]"]) | of_any_length(["M8[s]"]))
of_npy = st.one_of(plain, fixed((*NUMBERS, *TIMES, "c16", ">i4", "M8[h]", [("a", "i4")])))


def drawn(kinds):
    """A strategy for trees whose leaves are strategies."""
    if isinstance(kinds, dict):
        return st.fixed_dictionaries({name: drawn(kind) for name, kind in kinds.items()})
    return st.tuples(*map(drawn, kinds)) if isinstance(kinds, tuple) else kinds


def samples_of(kinds):
    return kinds.flatmap(lambda tree: st.lists(drawn(tree), min_size=1, max_size=12))


def native(leaf):
    """Numbers of arrays are those of this machine, as NumPy has them."""
    return leaf[()] if isinstance(leaf, np.ndarray) and not leaf.ndim else leaf


def found_again(sample):
    return reloaded(jreader.readers.map_tree(native, sample))


@given(samples_of(structs), st.fixed_dictionaries(SIZES))
@example([{"a": {"b": np.array([[False]])}}], {"samples_per_shard": 1, "threads": 1})
@examples(300)
def test_parquet_gives_back_dicts_of_numbers_texts_and_arrays(samples, sizes):
    pytest.importorskip("pyarrow")
    with TemporaryDirectory(dir=FAST) as folder:
        paths = write(lambda: iter(samples), f"{folder}/x", "parquet", progress=False, **sizes)
        assert alike(parquet(paths)(), map(found_again, samples))


@given(samples_of(structs_of_arrow), st.fixed_dictionaries(SIZES))
@examples(150)
def test_arrow_gives_back_dicts_of_numbers_texts_and_arrays(samples, sizes):
    pytest.importorskip("pyarrow")
    with TemporaryDirectory(dir=FAST) as folder:
        paths = write(lambda: iter(samples), f"{folder}/x", "arrow", progress=False, **sizes)
        assert alike(arrow(paths)(), map(found_again, samples))


@given(
    samples_of(of_npy | st.lists(of_npy, min_size=2, max_size=3).map(tuple)),
    st.fixed_dictionaries(SIZES),
)
@examples(300)
def test_npy_gives_back_numbers_and_arrays_and_tuples_of_them(samples, sizes):
    with TemporaryDirectory(dir=FAST) as folder:
        paths = write(lambda: iter(samples), f"{folder}/x", "npy", progress=False, **sizes)
        if not isinstance(samples[0], tuple):
            assert alike(npy(paths)(), map(found_again, samples))
            return
        fields = [f"{folder}/x/{number}-*.npy" for number in range(len(samples[0]))]
        assert sorted(paths) == sorted(map(str, Path(folder, "x").iterdir()))
        assert alike(npy(*fields)(), map(found_again, samples))


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=12), st.fixed_dictionaries(SIZES))
@examples(150)
def test_arrayrecord_gives_back_bytes(samples, sizes):
    pytest.importorskip("array_record")
    with TemporaryDirectory(dir=FAST) as folder:
        paths = write(lambda: iter(samples), f"{folder}/x", "arrayrecord", progress=False, **sizes)
        assert list(arrayrecord(paths)()) == samples


trees = st.recursive(
    st.none() | st.integers() | texts | hnp.arrays("f4", 3, elements=elements("f4")),
    lambda below: st.dictionaries(texts, below, max_size=3) | st.lists(below, max_size=3),
    max_leaves=4,
)


@given(st.lists(trees, min_size=1, max_size=8), st.fixed_dictionaries(SIZES))
@examples(150)
def test_arrayrecord_gives_back_any_tree_that_a_function_encodes(samples, sizes):
    pytest.importorskip("array_record")
    with TemporaryDirectory(dir=FAST) as folder:
        paths = write(
            lambda: iter(samples),
            f"{folder}/x",
            "arrayrecord",
            encode=pickle.dumps,
            progress=False,
            **sizes,
        )
        assert alike(map(pickle.loads, arrayrecord(paths)()), samples)


extensions = st.from_regex(r"[a-z_0-9äß .-]{1,8}", fullmatch=True).filter(
    lambda name: name.rpartition(".")[2] not in ("npy", "json") and name == name.lower()
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3),
    max_leaves=4,
)
of_tar = st.dictionaries(
    extensions,
    st.one_of(st.binary(max_size=600), texts, st.integers(), st.floats(allow_nan=False)),
    min_size=1,
    max_size=3,
) | st.fixed_dictionaries(
    {"x.npy": hnp.arrays("f4", hnp.array_shapes(), elements=elements("f4"))},
    optional={"meta.json": json_values.filter(lambda value: not isinstance(value, str))},
)
keys = st.from_regex(r"([a-z.ä]{1,3}/){0,2}[a-z0-9ä_ -]{1,150}", fullmatch=True)


def decoded(name, content, like):
    if name.endswith("npy"):
        return np.load(BytesIO(content))
    if name.endswith("json"):
        return json.loads(content)
    if isinstance(like, str):
        return content.decode()
    return type(like)(content)


@given(
    st.lists(of_tar, min_size=1, max_size=8),
    st.none() | st.lists(keys, min_size=8, max_size=8, unique=True),
    st.fixed_dictionaries(SIZES),
)
@examples(300)
def test_tar_gives_back_the_bytes_of_every_field(samples, names, sizes):
    keyed = [
        {"__key__": names[n] if names else f"{n:09}", **sample} for n, sample in enumerate(samples)
    ]
    written = keyed if names else samples
    with TemporaryDirectory(dir=FAST) as folder:
        paths = write(lambda: iter(written), f"{folder}/x", "tar", progress=False, **sizes)
        again = [
            {
                name: value if name == "__key__" else decoded(name, value, like[name])
                for name, value in sample.items()
            }
            for sample, like in zip(tar(paths)(), keyed, strict=True)
        ]
        assert alike(again, keyed)
