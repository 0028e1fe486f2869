"""What torch's tests of its default collation check, of jreader; and through the real one."""

from __future__ import annotations

from collections import UserDict, namedtuple
from types import MappingProxyType
from typing import NamedTuple

import jax
import numpy as np
import pytest
from steps import told

from jreader import DataLoader, Dataset, FeedMismatch
from jreader.datasets import collate

differs = pytest.mark.differs


class CustomDict(dict):
    pass


class CustomList(list):
    pass


class Pair(NamedTuple):
    positive: object
    negative: object


class Labelled(NamedTuple):
    data: object
    label: object
    vector: object


class Box:
    """What a collate_fn makes, of no kind that is known."""

    def __init__(self, samples):
        self.samples = samples


def feeds(samples, **options):
    return list(DataLoader(samples, **{"batch_size": 2, **options}))


class TestDtypes:
    @differs
    @pytest.mark.parametrize(
        ("samples", "dtype"),
        [([1, 2, -1], "int32"), ([1.1, 2.3, -0.9], "float32"), ([True, False], "bool")],
    )
    def test_python_numbers_take_the_dtype_that_the_device_has(self, samples, dtype):
        (feed,) = feeds(samples, batch_size=3)
        assert feed.dtype == dtype
        assert np.allclose(feed, samples)

    @differs
    @pytest.mark.parametrize(
        ("dtype", "found"),
        [
            ("float64", "float32"),
            ("float32", "float32"),
            ("float16", "float16"),
            ("int64", "int32"),
            ("int32", "int32"),
            ("int16", "int16"),
            ("int8", "int8"),
            ("uint8", "uint8"),
        ],
    )
    def test_numpy_scalars_keep_theirs_but_for_64_bits(self, dtype, found):
        one = np.dtype(dtype).type(1)
        assert feeds([one] * 2)[0].dtype == found
        assert collate([one] * 2).dtype == dtype
        with jax.enable_x64(True):  # noqa: FBT003  # jax's signature
            assert feeds([one] * 2)[0].dtype == dtype

    def test_arrays_are_stacked(self):
        first, *_ = feeds([np.full((2, 3, 4), n) for n in range(100)], batch_size=12)
        assert first.shape == (12, 2, 3, 4)
        assert np.array_equal(first[:, 0, 0, 0], np.arange(12))

    def test_rows_of_a_mapped_file_are_stacked(self, tmp_path):
        mapped = np.memmap(tmp_path / "rows", int, "w+", shape=(4, 2))
        mapped[:] = np.arange(8).reshape(4, 2)
        assert collate(list(mapped)).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]

    @differs
    @pytest.mark.parametrize("value", [2j, np.datetime64("2020-01-02")], ids=str)
    def test_complex_numbers_and_dates_are_arrays_too(self, value):
        assert collate([value, value]).tolist() == [value, value]


class TestStructures:
    @pytest.mark.parametrize(
        ("samples", "collated"),
        [
            (["a", "b", "c"], ["a", "b", "c"]),
            ([{"a": 1, "b": 2}, {"a": 3, "b": 4}], {"a": [1, 3], "b": [2, 4]}),
            ([(1, 2, 3), (4, 5, 6)], ([1, 4], [2, 5], [3, 6])),
            ([Pair(1, -1), Pair(2, -2)], Pair([1, 2], [-1, -2])),
            ([range(2), range(2)], [[0, 0], [1, 1]]),
        ],
        ids=["strings", "dicts", "tuples", "named tuples", "ranges"],
    )
    def test_a_batch_has_the_structure_of_its_samples(self, samples, collated):
        assert told(collate(samples)) == collated

    @pytest.mark.parametrize(
        "mapping", [CustomDict, UserDict, MappingProxyType], ids=lambda kind: kind.__name__
    )
    def test_mappings_of_other_kinds_are_collated_by_key(self, mapping):
        found = collate([mapping({"a": 1, "b": 2}), mapping({"a": 3, "b": 4})])
        assert {key: column.tolist() for key, column in found.items()} == {"a": [1, 3], "b": [2, 4]}

    def test_lists_of_other_kinds_are_collated_by_place(self):
        found = collate([CustomList([1, 2, 3]), CustomList([4, 5, 6])])
        assert [column.tolist() for column in found] == [[1, 4], [2, 5], [3, 6]]

    @differs
    @pytest.mark.parametrize(
        ("sample", "kind"),
        [(CustomDict(a=1), dict), (UserDict(a=1), dict), (CustomList([1]), list)],
    )
    def test_containers_of_other_kinds_become_dicts_and_lists(self, sample, kind):
        assert type(collate([sample, sample])) is kind

    @pytest.mark.parametrize("turned", [1, -1])
    def test_lists_of_other_lengths_are_refused(self, turned):
        with pytest.raises(FeedMismatch, match="one structure"):
            collate([["X"], ["X", "X"]][::turned])

    def test_an_array_of_strings_is_its_strings(self):
        assert collate(np.array(["a", "b", "c"])) == ["a", "b", "c"]

    @differs
    @pytest.mark.parametrize(
        "samples",
        [np.array([object()] * 3), np.array([[[object()] * 3]]), [object(), object()]],
        ids=["row", "nested", "list"],
    )
    def test_objects_that_no_array_holds_are_refused_by_name(self, samples):
        with pytest.raises(FeedMismatch, match="object"):
            collate(samples)

    @differs
    def test_keys_that_later_samples_add_are_not_dropped_in_silence(self):
        with pytest.raises(FeedMismatch, match="one structure"):
            collate([{"a": 1}, {"a": 2, "b": 3}])

    @differs
    def test_an_empty_batch_is_refused_by_name(self):
        with pytest.raises(FeedMismatch, match="empty batch"):
            collate([])


class TestFeeds:
    def test_strings_stay_beside_numbers(self):
        samples = [(letter, place) for place, letter in enumerate("12345")]
        assert told(feeds(samples)) == [
            [["1", "2"], [0, 1]],
            [["3", "4"], [2, 3]],
            [["5"], [4]],
        ]

    @pytest.mark.parametrize("persistent", [False, True])
    def test_dicts_in_dicts_keep_their_keys(self, persistent):
        samples = [{"array": np.full((4, 2), n), "inner": {"number": n}} for n in range(4)]
        options = {"num_workers": 1, "persistent_workers": True} if persistent else {}
        for place, feed in zip((0, 2), feeds(samples, **options), strict=True):
            assert (set(feed), set(feed["inner"])) == ({"array", "inner"}, {"number"})
            assert feed["array"].shape == (2, 4, 2)
            assert told(feed["inner"]["number"]) == [place, place + 1]

    def test_named_tuples_are_kept_in_batches_and_without(self):
        samples = [Labelled(Pair(n, -n), str(n), np.ones(3)) for n in range(4)]
        for batch in feeds(samples):
            assert (type(batch), type(batch.data)) == (Labelled, Pair)
            assert isinstance(batch.data.positive, jax.Array)
            assert (batch.vector.shape, len(batch.label)) == ((2, 3), 2)
        for sample in feeds(samples, batch_size=None):
            assert (type(sample), type(sample.data), type(sample.data.positive)) == (
                Labelled,
                Pair,
                int,
            )

    @pytest.mark.parametrize("sample", [CustomDict(a=1, b=2), CustomList([1, 2, 3])], ids=repr)
    def test_samples_without_batches_are_equal_to_what_they_were(self, sample):
        assert feeds([sample], batch_size=None) == [sample]

    @pytest.mark.parametrize("workers", [0, 1])
    def test_what_a_collate_fn_makes_is_handed_over(self, workers):
        found = feeds([(n, n) for n in range(4)], collate_fn=Box, num_workers=workers)
        assert [type(each).__name__ for each in found] == ["Box", "Box"]
        assert [each.samples for each in found] == [[(0, 0), (1, 1)], [(2, 2), (3, 3)]]

    @differs
    def test_a_none_that_a_collate_fn_makes_is_refused(self):
        with pytest.raises(FeedMismatch, match="returned None"):
            feeds([1, 2], collate_fn=lambda samples: None)


Point = namedtuple("Point", "x y")  # noqa: PYI024  # both kinds are in use


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOne:
    @pytest.fixture(scope="class")
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize(
        "samples",
        [
            [1, 2, -1],
            [1.5, 2, 3],
            [True, False],
            ["a", "b"],
            [b"a", b"b"],
            [np.arange(3), np.arange(3, 6)],
            [(1, "a"), (2, "b")],
            [[1, [2.5]], [3, [4.5]]],
            [{"a": 1, "b": {"c": "d"}}, {"a": 2, "b": {"c": "e"}}],
            [Point(1, (2, 3)), Point(4, (5, 6))],
            [range(3), range(3, 6)],
            [UserDict(a=1), UserDict(a=2)],
            [MappingProxyType({"a": 1})] * 2,
            [CustomList([1, 2]), CustomList([3, 4])],
            [np.float32(1), np.float32(2)],
            [(np.zeros((2, 2)), 1, None)[:2]] * 3,
        ],
        ids=str,
    )
    def test_it_gives_the_same(self, torch, samples):
        def plain(value):
            if hasattr(value, "keys"):
                return {key: plain(value[key]) for key in value.keys()}  # noqa: SIM118  # any mapping
            if isinstance(value, (list, tuple)):
                return [plain(part) for part in value]
            return value.tolist() if hasattr(value, "tolist") else value

        theirs = torch.utils.data.default_collate(samples)
        assert plain(collate(samples)) == plain(theirs)

    @pytest.mark.parametrize(
        "samples",
        [[[1], [1, 2]], [object()], [{1}, {2}], [None, None], [np.zeros(2), np.zeros(3)]],
        ids=["lists", "objects", "sets", "None", "shapes"],
    )
    def test_what_it_refuses_is_refused(self, torch, samples):
        with pytest.raises((TypeError, RuntimeError)):
            torch.utils.data.default_collate(samples)
        with pytest.raises(FeedMismatch):
            collate(samples)


def test_a_data_set_of_ones_own_is_collated_like_a_list():
    class Letters(Dataset):
        def __getitem__(self, index):
            return "12345"[index], index

        def __len__(self):
            return 5

    assert told(feeds(Letters())) == told(feeds([(c, n) for n, c in enumerate("12345")]))
