"""What Paddle's tests of its reader decorators check, and its pages on them say, of jreader."""

from __future__ import annotations

import random
import threading
from itertools import product

import numpy as np
import pytest
from programs import PATIENCE

from jreader import (
    ComposeNotAligned,
    DataLoader,
    batch,
    buffered,
    cache,
    chain,
    compose,
    epochs,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    text,
    xmap_readers,
)

differs = pytest.mark.differs
TEN = [*range(10)]


def ten():
    yield from TEN


def twenty():
    yield from TEN * 2


def failing():
    raise ValueError("no such image")
    yield


class TestMapReaders:
    def test_words_become_their_numbers(self):
        numbers = {"h": 0, "i": 1}
        assert list(map_readers(numbers.__getitem__, lambda: iter("hi"))()) == [0, 1]

    def test_several_readers_are_mapped_side_by_side_up_to_the_shortest(self):
        added = map_readers(lambda a, b: a + b, ten, lambda: iter(range(3)))
        assert list(added()) == [0, 2, 4]

    @differs
    def test_an_end_that_the_function_raises_is_an_error(self):
        def ending(sample):
            if sample == 2:
                raise StopIteration
            return sample

        items = map_readers(ending, ten)()
        assert [next(items), next(items)] == [0, 1]
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(items)


class TestBuffered:
    @pytest.mark.parametrize("size", range(20))
    def test_every_size_gives_every_sample_in_order(self, size):
        assert list(buffered(ten, size)()) == TEN

    def test_the_rest_is_read_while_the_consumer_is_busy(self):
        done = threading.Event()

        def reader():
            yield from TEN
            done.set()

        items = buffered(reader, 10)()
        assert next(items) == 0
        assert done.wait(PATIENCE)

    @differs
    def test_a_buffer_of_nothing_reads_nothing_ahead(self):
        drawn = []
        items = buffered(lambda: (drawn.append(n) or n for n in TEN), 0)()
        assert (next(items), drawn) == (0, [0])

    @differs
    def test_an_error_of_the_source_arrives_after_its_good_samples(self):
        items = buffered(chain(ten, failing), 3)()
        assert [next(items) for _ in TEN] == TEN
        with pytest.raises(ValueError, match="no such image"):
            next(items)

    @differs
    def test_samples_may_be_bare_arrays(self):
        rows = list(buffered(lambda: iter(np.eye(3)), 2)())
        assert np.array_equal(rows, np.eye(3))


class TestCompose:
    def test_samples_of_two_readers_become_pairs(self):
        assert list(compose(ten, ten)()) == [(n, n) for n in TEN]

    @pytest.mark.parametrize("readers", [(twenty, ten), (ten, twenty)])
    def test_a_longer_reader_is_an_error_after_ten_rows(self, readers):
        rows = []
        with pytest.raises(ComposeNotAligned):
            rows.extend(compose(*readers)())
        assert len(rows) == 10

    @pytest.mark.parametrize("readers", [(twenty, ten), (ten, twenty)])
    def test_or_its_end_is_left_out_where_alignment_is_not_checked(self, readers):
        assert len(list(compose(*readers, check_alignment=False)())) == 10

    @differs
    def test_a_misspelled_keyword_is_refused(self):
        with pytest.raises(TypeError, match="check_alignement"):
            compose(ten, check_alignement=False)

    @differs
    def test_samples_that_are_none_are_aligned(self):
        assert list(compose(lambda: [None, None], lambda: "ab")()) == [(None, "a"), (None, "b")]


class TestChain:
    def test_one_reader_follows_another(self):
        assert list(chain(ten, ten)()) == TEN * 2

    @differs
    def test_a_reader_is_opened_when_its_turn_comes(self):
        opened = []
        items = chain(*(lambda n=n: opened.append(n) or [n] for n in range(3)))()
        assert (next(items), opened) == (0, [0])


class TestShuffle:
    @pytest.mark.parametrize("size", [10, 100])
    def test_a_buffer_loses_nothing(self, size):
        assert sorted(shuffle(ten, size)()) == TEN

    @differs
    @pytest.mark.parametrize("size", [0, 1])
    def test_a_buffer_of_one_keeps_the_order_and_says_so(self, size):
        with pytest.warns(UserWarning, match="seed=0"):
            kept = shuffle(ten, size)
        assert list(kept()) == TEN

    @differs
    def test_no_global_generator_is_asked(self):
        random.seed(3)
        state, dealt = random.getstate(), list(shuffle(ten, 10, seed=5)())
        assert random.getstate() == state
        random.seed(4)
        assert list(shuffle(ten, 10, seed=5)()) == dealt


class TestFirstnAndCache:
    def test_a_reader_is_cut_off_or_ends_by_itself(self):
        assert [len(list(firstn(ten, n)())) for n in (0, 3, 10, 20)] == [0, 3, 10, 10]

    @differs
    def test_not_one_sample_more_is_pulled(self):
        drawn = []
        list(firstn(lambda: (drawn.append(n) or n for n in TEN), 3)())
        assert drawn == [0, 1, 2]

    @differs
    @pytest.mark.parametrize("n", [-1, None, "3", 2.5])
    def test_what_is_no_count_is_refused(self, n):
        with pytest.raises((TypeError, ValueError), match="firstn"):
            firstn(ten, n)

    @differs
    def test_a_cache_reads_on_its_first_pass_and_once(self):
        opened = []
        kept = cache(lambda: opened.append(1) or iter(TEN))
        assert opened == []
        assert list(kept()) == list(kept()) == TEN
        assert opened == [1]

    @differs
    def test_one_sample_again_and_again_is_spelled_with_epochs(self):
        fake = firstn(epochs(cache(firstn(ten, 1))), 100)
        assert list(fake()) == [0] * 100

    @differs
    def test_lines_of_a_file_are_a_reader_without_a_pipe(self, tmp_path):
        (tmp_path / "records").write_text("".join(f"{n}\n" for n in range(5)))
        assert list(text(tmp_path / "records")()) == ["0", "1", "2", "3", "4"]


class TestXmapReaders:
    @pytest.mark.parametrize(
        ("order", "threads", "size"), [*product((True, False), (1, 4, 16), (1, 4, 16))]
    )
    def test_every_pass_maps_every_sample(self, order, threads, size):
        reader = xmap_readers(lambda n: n + 1, ten, threads, size, order)
        for _ in range(3):
            found = list(reader())
            assert (found if order else sorted(found)) == [n + 1 for n in TEN]

    @differs
    @pytest.mark.parametrize("threads", [1, 4])
    def test_an_error_of_the_mapper_arrives(self, threads):
        items = xmap_readers(lambda n: 1 // (n - 5), ten, threads, 2, order=True)()
        assert [next(items) for _ in range(5)] == [1 // (n - 5) for n in range(5)]
        with pytest.raises(ZeroDivisionError):
            next(items)

    @differs
    @pytest.mark.parametrize("arguments", [(0, 4), (-1, 4), (4, 0)])
    def test_no_threads_and_no_buffer_are_refused(self, arguments):
        with pytest.raises(ValueError, match="xmap_readers"):
            xmap_readers(str, ten, *arguments)


class TestMultiprocessReader:
    """What is sent refers to nothing of this module, which a worker would have to import."""

    @pytest.mark.parametrize("use_pipe", [True, False])
    def test_readers_together_give_what_each_has(self, use_pipe):
        samples = [[[n], [n + 1, n + 2], n + 3] for n in range(30)]
        readers = [samples[part::3].__iter__ for part in range(3)]
        found = list(multiprocess_reader(readers, use_pipe=use_pipe, queue_size=100)())
        assert sorted(found) == samples

    @differs
    def test_types_of_samples_survive_a_pipe(self):
        samples = [(1, np.float32(2)), {3: b"4"}, {5}]
        found = list(multiprocess_reader([lambda: samples])())
        assert found == samples
        assert [type(sample) for sample in found] == [tuple, dict, set]

    @differs
    def test_a_flag_where_a_size_is_needed_is_refused(self):
        with pytest.raises(TypeError, match="queue_size"):
            multiprocess_reader([ten], 100, False)  # noqa: FBT003  # as Paddle's test gives it

    def test_two_of_them_fill_the_batches_of_a_loader_in_every_epoch(self):
        def images():
            yield from (([n / 40] * 10,) for n in range(40))

        loader = DataLoader.from_generator({"image": 0}, capacity=2)
        loader.set_sample_generator(multiprocess_reader([images, images]), batch_size=4)
        for _ in range(2):
            assert [feed["image"].shape for feed in loader()] == [(4, 10)] * 20

    @differs
    def test_an_error_in_one_keeps_its_type_on_the_way_to_the_loop(self):
        def images():
            raise ValueError("no such image")
            yield

        loader = DataLoader.from_generator(capacity=2)
        loader.set_sample_generator(multiprocess_reader([images], use_pipe=False), 4)
        with pytest.raises(ValueError, match="no such image"):
            next(loader())


class TestBatch:
    @pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
    def test_a_short_end_is_kept_or_dropped(self, drop_last, sizes):
        assert [len(samples) for samples in batch(ten, 4, drop_last)()] == sizes

    @pytest.mark.parametrize("size", [0, -1])
    def test_a_size_that_is_not_positive_is_refused(self, size):
        with pytest.raises(ValueError, match="batch_size"):
            batch(ten, size)

    @differs
    @pytest.mark.parametrize("size", [2.9, "3", True])
    def test_a_size_that_is_no_whole_number_is_refused(self, size):
        with pytest.raises(TypeError, match="batch_size"):
            batch(ten, size)

    @differs
    @pytest.mark.parametrize("drop_last", [0, None, np.bool_(False)])  # noqa: FBT003  # the point
    def test_whatever_is_false_keeps_the_end(self, drop_last):
        assert [len(samples) for samples in batch(ten, 4, drop_last)()] == [4, 4, 2]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOnes:
    @pytest.fixture(scope="class")
    def paddle(self):
        paddle = pytest.importorskip("paddle")
        return pytest.importorskip("paddle.reader"), paddle.batch

    SAMPLES = (TEN, [(n, (n, str(n))) for n in range(7)], [[n, None] for n in range(3)], [])
    OURS = (compose, chain, map_readers, buffered, firstn, cache, xmap_readers, batch)

    @pytest.mark.parametrize("samples", SAMPLES, ids=len)
    @pytest.mark.parametrize("op", OURS, ids=lambda op: op.__name__)
    def test_an_op_gives_what_theirs_gives(self, paddle, op, samples):
        theirs = paddle[1] if op is batch else getattr(paddle[0], op.__name__)
        reader = samples.__iter__
        for arguments in {
            compose: [(reader,), (reader, reader)],
            chain: [(reader, ten), ()],
            map_readers: [(repr, reader), (lambda a, b: (a, b), reader, ten)],
            buffered: [(reader, 1), (reader, 100)],
            firstn: [(reader, n) for n in (0, 2, 50)],
            cache: [(reader,)],
            xmap_readers: [(repr, reader, 3, 2, True)],
            batch: [(reader, 3), (reader, 3, True)],
        }[op]:
            assert list(op(*arguments)()) == list(theirs(*arguments)())
