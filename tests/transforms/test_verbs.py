"""The verbs: what Paddle's documentation and tests promise, and what jreader promises beyond it."""

from __future__ import annotations

import linecache
import threading
from itertools import count, islice, product

import jax
import numpy as np
import pytest

import jreader
from jreader import (
    ComposeNotAligned,
    ReaderError,
    batch,
    buffered,
    cache,
    chain,
    compose,
    epochs,
    filter,  # noqa: A004  # the field's word
    firstn,
    flat_map,
    map_batches,
    map_readers,
    multiprocess_reader,
    shard,
    shuffle,
    skip,
    start,
    xmap_readers,
)


def ten():
    return range(10)


def counting(samples):
    """A reader, and the list of what was drawn from it so far."""
    drawn = []

    def reader():
        for sample in samples:
            drawn.append(sample)
            yield sample

    return reader, drawn


class TestCreators:
    """A reader is any function without arguments that gives an iterable."""

    @pytest.mark.parametrize(
        "reader",
        [
            lambda: [0, 1, 2],
            lambda: iter((0, 1, 2)),
            lambda: (n for n in range(3)),
            lambda: np.arange(3),
            range(3).__iter__,
            jreader.arrays([0, 1, 2]),
        ],
    )
    def test_whatever_can_be_called_and_iterated_is_read(self, reader):
        assert list(map_readers(int, reader)()) == [0, 1, 2]

    def test_a_creator_closes_over_its_data(self):
        def uniform(width, height, label):
            def reader():
                while True:
                    yield np.zeros(width * height), label

            return reader

        image, label = next(uniform(2, 3, 7)())
        ((first, second),) = list(batch(firstn(uniform(2, 3, 7), 2), 2)())
        assert (image.shape, label, first[1], second[1]) == ((6,), 7, 7, 7)

    def test_rows_of_an_array_and_lines_of_a_file_are_samples(self, tmp_path):
        (tmp_path / "words").write_text("one\ntwo\n")
        rows = list(jreader.arrays(np.eye(2))())
        assert [row.tolist() for row in rows] == [[1, 0], [0, 1]]
        assert list(jreader.text(tmp_path / "words")()) == ["one", "two"]


class TestMapReaders:
    def test_it_takes_one_sample_of_each_reader_and_ends_with_the_shortest(self):
        assert list(map_readers(max, lambda: [1, 5, 9], lambda: [4, 2])()) == [4, 5]
        assert list(map_readers(str.upper, lambda: "ab")()) == ["A", "B"]

    def test_it_is_lazy(self):
        reader, drawn = counting(range(5))
        assert next(map_readers(str, reader)()) == "0"
        assert drawn == [0]


class TestBuffered:
    @pytest.mark.parametrize("size", range(20))
    def test_every_size_gives_every_sample_in_order(self, size):
        reader = buffered(ten, size)
        assert [list(reader()) for _ in range(3)] == [[*range(10)]] * 3

    def test_nothing_is_read_before_the_first_sample_is_asked_for(self):
        reader, drawn = counting(range(5))
        items = buffered(reader, 2)()
        assert drawn == []
        assert list(items) == drawn

    def test_a_new_pass_is_independent_of_one_under_way(self):
        reader = buffered(ten, 3)
        first = reader()
        head = list(islice(first, 4))
        assert list(reader()) == head + list(first)


class TestCompose:
    """Tuples are laid into the row, one level deep; everything else stays whole."""

    @pytest.mark.parametrize(
        ("samples", "row"),
        [
            (((1, 2), 3, (4, 5)), (1, 2, 3, 4, 5)),
            (([1, 2], 3), ([1, 2], 3)),
            (([1, 2], (3, 4)), ([1, 2], 3, 4)),
            ((((1, 2), 3), 4), ((1, 2), 3, 4)),
            ((None, (None, 1)), (None, None, 1)),
            (((), 1), (1,)),
        ],
    )
    def test_only_tuples_are_flattened_and_one_level_only(self, samples, row):
        assert list(compose(*[lambda sample=sample: [sample] for sample in samples])()) == [row]

    @pytest.mark.parametrize("lengths", [(5, 2), (2, 5), (3, 2, 3), (3, 3, 2), (0, 1), (4, 2, 0)])
    def test_readers_that_are_not_aligned_are_an_error_after_the_aligned_rows(self, lengths):
        items = compose(*[lambda n=n: range(n) for n in lengths])()
        for place in range(min(lengths)):
            assert next(items) == (place,) * len(lengths)
        with pytest.raises(ComposeNotAligned, match=f"reader {lengths.index(min(lengths))}.*ended"):
            next(items)
        assert list(items) == []

    def test_not_aligned_is_a_value_error_and_a_reader_error(self):
        assert issubclass(ComposeNotAligned, ValueError)
        assert issubclass(ComposeNotAligned, ReaderError)

    def test_none_is_a_legal_sample(self):
        assert list(compose(lambda: [None] * 2, lambda: [None] * 2)()) == [(None, None)] * 2

    def test_no_readers_give_no_rows(self):
        assert list(compose()()) == list(compose(check_alignment=False)()) == []

    def test_noise_without_end_is_composed_with_images(self):
        def noise():
            yield from (np.full(2, n) for n in count())

        def images():
            yield from (np.full(4, n, np.uint8) for n in range(5))

        for readers in [(noise, images), (images, noise)]:
            rows = list(compose(*readers, check_alignment=False)())
            assert [int(left[0] + right[0]) for left, right in rows] == [0, 2, 4, 6, 8]
        with pytest.raises(ComposeNotAligned, match=r"reader 1.*noise.*goes on"):
            list(compose(images, noise)())


class TestChain:
    def test_one_reader_follows_another(self):
        assert list(chain(ten, lambda: "ab", list)()) == [*range(10), "a", "b"]
        assert list(chain()()) == []

    def test_the_second_reader_is_called_only_when_the_first_has_ended(self):
        called = []
        items = chain(*[lambda n=n: called.append(n) or [n, n] for n in range(3)])()
        seen = [(sample, tuple(called)) for sample in items]
        assert [calls for _, calls in seen[::2]] == [(0,), (0, 1), (0, 1, 2)]
        assert [calls for _, calls in seen[1::2]] == [(0,), (0, 1), (0, 1, 2)]


class TestShuffle:
    @pytest.mark.parametrize("size", [0, 1])
    def test_windows_of_nothing_and_of_one_keep_the_order_with_a_warning(self, size):
        with pytest.warns(UserWarning, match=r"keeps the order\. Give buf_size=1000, or ") as told:
            plan = shuffle(ten, size, seed=3)
        assert told[0].filename == __file__
        assert linecache.getline(__file__, told[0].lineno).strip().startswith("plan = shuffle")
        assert list(plan()) == list(jreader.at_epoch(plan, 2)()) == [*range(10)]

    @pytest.mark.parametrize("seed", [0, 1])
    def test_a_seed_that_is_taken_for_the_size_is_guessed(self, seed):
        rows = jreader.Pipeline(jreader.arrays(np.arange(10)))
        with pytest.warns(UserWarning, match=rf"keeps the order: was seed={seed} meant\?"):
            rows.shuffle(seed)

    @pytest.mark.parametrize("size", [2, 5, 10, 100, None])
    def test_every_window_holds_what_it_held(self, size):
        dealt = list(shuffle(jreader.arrays(np.arange(10)), size, seed=3)())
        width = size or 10
        windows = range(0, 10, width)
        assert [sorted(dealt[at : at + width]) for at in windows] == [
            [*range(at, min(at + width, 10))] for at in windows
        ]
        assert dealt != [*range(10)]

    @pytest.mark.parametrize("key", [jax.random.key(5), jax.random.PRNGKey(5), np.int64(5), 5])
    def test_equal_seeds_deal_equal_passes(self, key):
        assert list(shuffle(ten, 10, key)()) == list(shuffle(ten, 10, seed=key)())
        assert list(shuffle(ten, 10, key)()) != list(shuffle(ten, 10, seed=6)())

    def test_typed_and_legacy_keys_are_one_seed(self):
        typed, legacy = jax.random.key(2**33 + 1), jax.random.PRNGKey(2**33 + 1)
        assert list(shuffle(ten, 10, typed)()) == list(shuffle(ten, 10, legacy)())

    def test_without_a_seed_each_pass_has_another_order(self):
        assert len({tuple(shuffle(ten, 10)()) for _ in range(5)}) > 1

    def test_after_batch_it_deals_batches(self):
        batches = list(shuffle(batch(ten, 3), 10, seed=0)())
        assert sorted(batches) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


class TestFirstn:
    @pytest.mark.parametrize("n", [0, 1, 3, 5, 9])
    def test_it_pulls_exactly_n(self, n):
        reader, drawn = counting(range(5))
        assert list(firstn(reader, n)()) == drawn == [*range(min(n, 5))]

    def test_it_ends_a_reader_without_end(self):
        assert list(firstn(count, np.int64(3))()) == [0, 1, 2]

    def test_firstn_of_what_is_found_by_index_and_has_no_end_has_a_length(self):
        endless = jreader.mix({"a": jreader.arrays(np.arange(5))}, seed=0, stop="repeat")
        assert len(jreader.Pipeline(firstn(endless, 20)).batch(4).load()) == 5
        assert len(jreader.Pipeline(firstn(epochs(jreader.arrays(np.arange(3))), 8))) == 8


class TestCache:
    def test_the_source_is_read_once_and_not_before_the_first_pass(self):
        reader, drawn = counting(range(5))
        kept = cache(reader)
        assert drawn == []
        assert [list(kept()) for _ in range(3)] == [[*range(5)]] * 3
        assert drawn == [*range(5)]

    def test_a_partial_first_pass_is_not_kept(self):
        reader, drawn = counting(range(5))
        kept = cache(reader)
        assert list(islice(kept(), 2)) == [0, 1]
        assert list(kept()) == [*range(5)]
        assert drawn == [0, 1, *range(5)]

    def test_two_passes_at_once_read_once(self):
        reader, drawn = counting(range(5))
        kept = cache(reader)
        assert list(zip(kept(), kept(), strict=True)) == [(n, n) for n in range(5)]
        assert drawn == [*range(5)]

    def test_passes_of_many_threads_read_once(self):
        reader, drawn = counting(range(200))
        kept, together, seen = cache(reader), threading.Barrier(8), []

        def read():
            items = kept()
            together.wait()
            seen.append(list(items))

        crowd = [threading.Thread(target=read) for _ in range(8)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        assert seen == [[*range(200)]] * 8
        assert drawn == [*range(200)]

    def test_an_error_while_it_fills_is_not_kept(self):
        reads = []

        def reader():
            reads.append("begun")
            yield 1
            if len(reads) == 1:
                raise KeyError
            yield 2

        items = (kept := cache(reader))()
        assert next(items) == 1
        with pytest.raises(KeyError):
            next(items)
        assert list(kept()) == list(kept()) == [1, 2]
        assert len(reads) == 2

    def test_a_pass_closed_twice_leaves_the_others_alone(self):
        kept = cache(ten)
        one, other = start(kept), start(kept)
        assert (next(one.items), next(other.items)) == (0, 0)
        one.close()
        one.close()
        assert list(other.items) == [*range(1, 10)]


class TestXmapReaders:
    @pytest.mark.parametrize("order", [True, False])
    def test_every_number_of_threads_and_every_buffer_gives_every_sample(self, order):
        for threads, size, _ in product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16), range(3)):
            found = list(xmap_readers(lambda n: n * 2, ten, threads, size, order)())
            assert (found if order else sorted(found)) == [*range(0, 20, 2)]

    def test_threads_work_side_by_side(self):
        together = threading.Barrier(4)
        reader = xmap_readers(lambda n: together.wait() >= 0 and n, lambda: range(4), 4, 1)
        assert sorted(reader()) == [0, 1, 2, 3]

    def test_unordered_samples_come_as_they_get_ready(self):
        later = threading.Event()
        reader = xmap_readers(lambda n: n or (later.wait() and n), lambda: range(2), 2, 2)
        items = reader()
        assert next(items) == 1
        later.set()
        assert list(items) == [0]


class TestMultiprocessReader:
    @pytest.mark.parametrize("use_pipe", [True, False])
    def test_two_npz_files_are_read_in_two_processes(self, tmp_path, use_pipe):
        for part in range(2):
            image = np.full((5, 4), part, np.float32)
            np.savez(tmp_path / f"{part}.npz", image=image, label=np.arange(5) + part * 10)

        def file(path):
            def reader():
                with np.load(path) as data:
                    yield from zip(data["image"], data["label"], strict=True)

            return reader

        readers = [file(tmp_path / f"{part}.npz") for part in range(2)]
        samples = list(multiprocess_reader(readers, use_pipe=use_pipe)())
        labels = [int(label) for _, label in samples]
        if use_pipe:
            assert labels == [0, 10, 1, 11, 2, 12, 3, 13, 4, 14]
        assert [label for label in labels if label < 10] == [0, 1, 2, 3, 4]
        assert [label for label in labels if label >= 10] == [10, 11, 12, 13, 14]
        assert all(image.dtype == np.float32 and image.shape == (4,) for image, _ in samples)

    def test_readers_that_have_ended_lose_their_turn(self):
        readers = [lambda: [0, 1, 2], lambda: [10], list, lambda: [100, 101]]
        assert list(multiprocess_reader(readers)()) == [0, 10, 100, 1, 101, 2]


class TestBatch:
    @pytest.mark.parametrize("drop_last", [False, 0, None, np.False_, ""])
    def test_what_is_false_keeps_the_last_batch(self, drop_last):
        assert list(batch(ten, 4, drop_last)()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    @pytest.mark.parametrize("drop_last", [True, 1, np.True_])
    def test_what_is_true_drops_a_short_last_batch_only(self, drop_last):
        assert list(batch(ten, 4, drop_last=drop_last)()) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert len(list(batch(ten, 5, drop_last=drop_last)())) == 2

    def test_each_batch_is_a_list_of_its_own(self):
        first, second = batch(lambda: [1, 1], 1)()
        assert type(first) is list
        assert first == second
        assert first is not second

    def test_map_batches_maps_columns(self):
        pairs = batch(lambda: [(1, 2), (3, 4)], 2)
        (mapped,) = map_batches(lambda columns: (columns[0] * 10, columns[1]), pairs)()
        assert list(mapped) == [(10, 2), (30, 4)]


class TestBeyondTheSeeds:
    def test_filter_keeps_what_is_true(self):
        assert list(filter(lambda n: n % 3 == 0, ten)()) == [0, 3, 6, 9]

    def test_flat_map_lays_out_many_samples_of_one(self):
        assert list(flat_map(range, lambda: [2, 0, 3])()) == [0, 1, 0, 1, 2]

    @pytest.mark.parametrize("n", [0, 4, 10, 11])
    def test_skip_and_firstn_are_the_two_parts(self, n):
        assert [*firstn(ten, n)(), *skip(ten, n)()] == [*range(10)]

    @pytest.mark.parametrize("parts", [1, 3, 11])
    def test_shards_deal_every_sample_once(self, parts):
        dealt = [list(shard(ten, parts, index)()) for index in range(parts)]
        assert dealt == [[*range(index, 10, parts)] for index in range(parts)]

    def test_epochs_are_endless_without_a_number(self):
        assert list(islice(epochs(lambda: "ab")(), 5)) == [*"ababa"]
        assert list(epochs(lambda: "ab", 2)()) == [*"abab"]
        assert list(epochs(ten, 0)()) == []

    def test_endless_epochs_of_nothing_are_an_error(self):
        made = epochs(list)
        with pytest.raises(ReaderError, match=rf"{__file__}:\d+, would never end"):
            next(made())
        assert list(epochs(list, 1000)()) == []
