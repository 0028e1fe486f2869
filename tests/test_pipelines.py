"""The builder, and what every op says of itself: its plan, its signature, and what it refuses."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
from chat_templates import CHATML, TOKENIZER
from graphs import OPS, PROCESSES, tagged

import jreader
from jreader import (
    Node,
    Pipeline,
    batch,
    cache,
    firstn,
    shuffle,
)
from jreader.pipelines.methods import methods_of
from jreader.readers import described


def ten():
    return range(10)


def half(sample):
    return sample / 2


VALID = {
    "Pipeline": (ten,),
    "batch": (ten, 3),
    "bucket": (ten, (4, 8), 2),
    "buffered": (ten, 2),
    "cache": (ten,),
    "chain": (ten, ten),
    "chat": (ten, TOKENIZER, CHATML),
    "compose": (ten, ten),
    "epochs": (ten, 2),
    "filter": (half, ten),
    "firstn": (ten, 3),
    "flat_map": (half, ten),
    "group_by": (half, ten),
    "interleave": (ten, ten),
    "map_batches": (half, ten),
    "map_readers": (half, ten, ten),
    "map_samples": (half, ten),
    "mix": ([ten, ten],),
    "multiprocess_reader": ([ten, ten],),
    "padded_batch": (ten, 3),
    "pack": (ten, 8, "always"),
    "read": (half, ten, 2),
    "shard": (ten, 2, 1),
    "shuffle": (ten, 3),
    "skip": (ten, 2),
    "unbatch": (ten,),
    "sliding_window": (ten, 4, 2),
    "windows": (ten, 4),
    "xmap_readers": (half, ten, 2, 3),
}

WRITTEN = {
    "Pipeline": "Pipeline(ten)",
    "batch": "batch(ten, batch_size=3)",
    "bucket": "bucket(ten, bounds=(4, 8), batch_size=2)",
    "buffered": "buffered(ten, size=2)",
    "cache": "cache(ten)",
    "chain": "chain(ten, ten)",
    "chat": f"chat(ten, tokenizer=(encode, decode), template={described(CHATML)})",
    "compose": "compose(ten, ten)",
    "epochs": "epochs(ten, n=2)",
    "filter": "filter(half, ten)",
    "firstn": "firstn(ten, n=3)",
    "flat_map": "flat_map(half, ten)",
    "group_by": "group_by(half, ten)",
    "interleave": "interleave(ten, ten)",
    "map_batches": "map_batches(half, ten)",
    "map_readers": "map_readers(half, ten, ten)",
    "map_samples": "map_samples(half, ten)",
    "mix": "mix([ten, ten])",
    "multiprocess_reader": "multiprocess_reader(ten, ten)",
    "padded_batch": "padded_batch(ten, batch_size=3)",
    "pack": "pack(ten, size=8, split='always')",
    "read": "read(half, ten, lanes=2)",
    "shard": "shard(ten, num_shards=2, index=1)",
    "shuffle": "shuffle(ten, buf_size=3)",
    "skip": "skip(ten, n=2)",
    "unbatch": "unbatch(ten)",
    "sliding_window": "sliding_window(ten, size=4, stride=2)",
    "windows": "windows(ten, size=4)",
    "xmap_readers": "xmap_readers(half, ten, process_num=2, buffer_size=3)",
}


SIZED = [
    ("batch", 1, lambda size: jreader.batch(ten, size)),
    ("buffered", 0, lambda size: jreader.buffered(ten, size)),
    ("epochs", 0, lambda size: jreader.epochs(ten, size)),
    ("firstn", 0, lambda size: jreader.firstn(ten, size)),
    ("shard", 1, lambda size: jreader.shard(ten, size, 0)),
    ("shard", 0, lambda size: jreader.shard(ten, 9, size)),
    ("shuffle", 0, lambda size: jreader.shuffle(ten, size)),
    ("shuffle", 0, lambda seed: jreader.shuffle(ten, 3, seed)),
    ("pack", 1, lambda size: jreader.pack(ten, size)),
    ("pack", 1, lambda window: jreader.pack(ten, 8, window=window)),
    ("pack", 0, lambda seed: jreader.pack(ten, 8, seed=seed)),
    ("rebatch", 1, lambda size: jreader.rebatch(ten, size)),
    ("skip", 0, lambda size: jreader.skip(ten, size)),
    ("sliding_window", 1, lambda size: jreader.sliding_window(ten, size)),
    ("sliding_window", 1, lambda stride: jreader.sliding_window(ten, 2, stride)),
    ("xmap_readers", 1, lambda size: jreader.xmap_readers(half, ten, size, 3)),
    ("xmap_readers", 1, lambda size: jreader.xmap_readers(half, ten, 2, size)),
    ("map_samples", 0, lambda size: jreader.map_samples(half, ten, threads=size)),
    ("map_samples", 0, lambda size: jreader.map_samples(half, ten, processes=size)),
    ("map_samples", 1, lambda size: jreader.map_samples(half, ten, threads=2, window=size)),
    ("map_samples", 0, lambda size: jreader.map_samples(half, ten, max_errors=size)),
    ("map_samples", 0, lambda seed: jreader.map_samples(half, ten, rng=True, seed=seed)),
    ("mix", 0, lambda seed: jreader.mix([ten], seed=seed)),
    ("multiprocess_reader", 1, lambda size: jreader.multiprocess_reader([ten], queue_size=size)),
    ("at_epoch", 0, lambda epoch: jreader.at_epoch(ten, epoch)),
]


class TestPlans:
    """What every op promises before anything is read."""

    def test_every_op_is_under_these_tests(self):
        ops = {op.__name__ for op in {*OPS, *PROCESSES}} & set(jreader.__all__)
        assert VALID.keys() == WRITTEN.keys() == ops

    @pytest.mark.parametrize("name", VALID)
    def test_a_plan_is_printed_as_it_was_written(self, name):
        assert repr(getattr(jreader, name)(*VALID[name])) == WRITTEN[name]

    @pytest.mark.parametrize("name", VALID)
    def test_a_misspelled_keyword_is_a_type_error(self, name):
        with pytest.raises(TypeError, match="check_alignement"):
            getattr(jreader, name)(*VALID[name], check_alignement=False)

    @pytest.mark.parametrize("name", VALID)
    @pytest.mark.parametrize("wrong", [[1, 2], None, iter([1]), "abc", 5])
    def test_what_is_no_reader_is_refused_where_it_is_given(self, name, wrong):
        op = getattr(jreader, name)
        for place, valid in enumerate(VALID[name]):
            if valid is ten or isinstance(valid, list):
                arguments = list(VALID[name])
                arguments[place] = [ten, wrong] if isinstance(valid, list) else wrong
                with pytest.raises(TypeError, match=rf"^{name}\(.* needs a reader.*(Pass|Type) "):
                    op(*arguments)

    @pytest.mark.parametrize(
        ("data", "typed"),
        [
            (np.zeros((2, 3)), r"arrays\(x\)"),
            ({"x": np.zeros(2)}, r"arrays\(\*\*columns\)"),
            ([1, 2], r"source\(samples\)"),
            ("rows.parquet", r"parquet\(path\)"),
            (type("Dataset", (), {"__module__": "datasets.arrow_dataset"})(), "huggingface"),
        ],
    )
    def test_data_that_are_no_reader_raise_with_the_reader_to_use(self, data, typed):
        with pytest.raises(TypeError, match=rf"needs a reader.*{typed}"):
            Pipeline(data)

    @pytest.mark.parametrize("name", [name for name in VALID if half in VALID[name]])
    def test_what_is_no_function_is_refused_where_it_is_given(self, name):
        with pytest.raises(TypeError, match=rf"^{name}\(.* needs a function of one sample"):
            getattr(jreader, name)("half", *VALID[name][1:])

    @pytest.mark.parametrize(("name", "least", "made"), SIZED)
    def test_what_is_no_size_is_refused_where_it_is_given(self, name, least, made):
        for wrong in (least - 1, -7):
            with pytest.raises(ValueError, match=rf"\b{name}\b.* needs .*, not {wrong}\.$"):
                made(wrong)
        for wrong in (2.5, 2.0, "3", True, np.True_, np.array([1, 2]), 1j):
            with pytest.raises(TypeError, match=rf"\b{name}\b.* needs "):
                made(wrong)

    def test_numpy_integers_are_sizes(self):
        assert list(firstn(ten, np.uint8(2))()) == [0, 1]
        assert len(list(batch(ten, np.int64(5))())) == 2

    def test_lists_of_readers_are_lists(self):
        for wrong in ([], ten, {ten}, None):
            with pytest.raises(
                TypeError, match=r"^multiprocess_reader\(.* needs a list of readers"
            ):
                jreader.multiprocess_reader(wrong)
        with pytest.raises(TypeError, match=r"^map_readers\(.* at least one reader"):
            jreader.map_readers(half)

    def test_a_shard_lies_below_the_number_of_shards(self):
        with pytest.raises(ValueError, match=r"^shard\(.* count from 0 to 2"):
            jreader.shard(ten, 3, 3)

    def test_a_whole_shuffle_needs_a_known_length(self):
        with pytest.raises(ValueError, match=r"needs a buf_size: .*buf_size=1000"):
            shuffle(lambda: iter("abc"))

    @pytest.mark.parametrize(
        "seed", [1.5, "7", True, np.True_, np.zeros(2), np.zeros((2, 2), np.uint32)]
    )
    def test_a_seed_is_an_int_or_one_key(self, seed):
        with pytest.raises(TypeError, match=r"^seed of shuffle\("):
            shuffle(ten, 3, seed)

    def test_a_reader_that_gives_nothing_to_iterate_is_named(self):
        def nothing():
            return None

        with pytest.raises(TypeError, match=r"^nothing returned None, which cannot be iterated"):
            list(firstn(nothing, 2)())

    @pytest.mark.parametrize(
        ("given", "error", "says"),
        [
            (3, TypeError, "arrays with a row for each"),
            (np.float32(1), TypeError, "arrays with a row for each"),
            ({"a": None}, ValueError, "an array"),
        ],
    )
    def test_what_a_map_of_batches_gives_has_rows(self, given, error, says):
        with pytest.raises(error, match=f"columns need {says}") as caught:
            list(jreader.map_batches(lambda columns: given, batch(lambda: [1, 2], 2))())
        assert "given by <lambda> in map_batches" in caught.value.__notes__[-1]


class TestPipeline:
    """Every op once more, from left to right."""

    def test_both_spellings_mix(self):
        inside = Pipeline(firstn(Pipeline(ten).skip(1), 4)).map(half)
        assert list(batch(inside, 3)()) == [[0.5, 1, 1.5], [2]]
        assert list(Pipeline(ten).compose(inside.firstn(10), check_alignment=False).skip(3)) == [
            (3, 2.0)
        ]

    def test_it_can_be_iterated_and_called_again_and_again(self):
        pipeline = Pipeline(ten).filter(lambda n: n % 2).chain(lambda: [99])
        assert list(pipeline) == list(pipeline()) == list(pipeline) == [1, 3, 5, 7, 9, 99]

    def test_every_method_gives_a_new_pipeline(self):
        pipeline = Pipeline(ten)
        made = pipeline.shuffle(seed=0, buf_size=4).map(half).batch(2)
        assert (list(pipeline), repr(pipeline)) == ([*range(10)], "Pipeline(ten)")
        assert type(made) is Pipeline
        with pytest.raises(FrozenInstanceError):
            pipeline.reader = ten

    def test_printing_shows_the_plan(self):
        plan = (
            Pipeline(ten)
            .shuffle(4, seed=0)
            .map(half)
            .filter(bool)
            .map(tagged, threads=2, rng=True, seed=3, on_error="skip")
            .xmap(half, 2, 3, order=True)
            .compose(ten, check_alignment=False)
            .batch(2, drop_last=True)
            .epochs()
        )
        assert str(plan) == (
            "Pipeline(ten).shuffle(buf_size=4, seed=0).map(half).filter(bool)"
            ".map(tagged, threads=2, rng=True, on_error='skip', seed=3)"
            ".xmap(half, process_num=2, buffer_size=3, order=True)"
            ".compose(ten, check_alignment=False).batch(batch_size=2, drop_last=True).epochs()"
        )

    def test_peek_disturbs_nothing(self):
        drawn = []
        pipeline = Pipeline(cache(lambda: (drawn.append(n) or n for n in range(5)))).map(half)
        under_way = iter(pipeline)
        assert next(under_way) == 0
        assert pipeline.peek() == pipeline.peek() == 0
        assert [*under_way] == [0.5, 1, 1.5, 2]
        assert drawn == [*range(5)]

    def test_peek_draws_one_sample_and_lets_go(self):
        closed = []

        def source():
            try:
                yield from range(5)
            finally:
                closed.append(True)

        assert Pipeline(source).skip(1).peek() == 1
        assert closed == [True]

    def test_there_is_nothing_to_peek_at_in_an_empty_reader(self):
        with pytest.raises(ValueError, match=r"Pipeline\(ten\).skip\(n=10\) is empty"):
            Pipeline(ten).skip(10).peek()

    @pytest.mark.parametrize(
        "handed_on",
        [
            lambda batches: batches,
            lambda batches: batches.shuffle(4).filter(len).firstn(3).skip(1).shard(1, 0),
            lambda batches: batches.cache().prefetch(2).epochs(2),
            lambda batches: Pipeline(firstn(batches, 2)),
            lambda batches: batches.map_batches(lambda columns: columns),
        ],
    )
    def test_a_map_after_batch_is_refused_with_advice(self, handed_on):
        batches = handed_on(Pipeline(ten).batch(2))
        with pytest.raises(TypeError, match=r"\.map_batches\(fn\).*\.map\(fn\) before \.batch"):
            batches.map(half)
        assert list(batches.flat_map(list).map(half))

    def test_every_op_of_one_reader_is_a_method(self):
        made = {op.__name__ for op in methods_of(Pipeline) if inspect.isclass(op)}
        of_several = {"map_readers", "mix"}
        assert made - of_several == VALID.keys() - {"Pipeline", "multiprocess_reader", *of_several}


class TestPipe:
    def test_an_op_of_ones_own_chains(self):
        def twice(reader, times):
            return lambda: (sample for sample in reader() for _ in range(times))

        assert list(Pipeline(ten).pipe(twice, times=2).firstn(4)) == [0, 0, 1, 1]

    def test_a_plan_with_an_op_of_ones_own_prints_as_it_was_written(self):
        @dataclass(frozen=True, eq=False, repr=False)
        class every(Node):
            reader: object
            n: int

        plan = Pipeline(ten).skip(1).pipe(every, 3).firstn(2)
        assert repr(plan) == "Pipeline(ten).skip(n=1).pipe(every, n=3).firstn(n=2)"

    @pytest.mark.parametrize("op", [3, "shuffle"])
    def test_what_is_no_op_is_refused(self, op):
        with pytest.raises(TypeError, match=r"pipe\(op, ...\) needs an op"):
            Pipeline(ten).pipe(op)

    def test_an_op_that_gives_no_reader_is_refused(self):
        with pytest.raises(TypeError, match="needs a reader"):
            Pipeline(ten).pipe(lambda reader: list(reader()))
