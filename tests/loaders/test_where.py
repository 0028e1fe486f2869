"""The steps that hold a sample: what `loader.samples` says of all steps is the judge."""

from __future__ import annotations

import numpy as np
import pytest
from block_sources import Blocks
from held_rows import cut_of_documents
from hypothesis import assume, given
from hypothesis import strategies as st
from movers import fast, moving, source_rows
from seen import through_json

from jreader import (
    NotResumable,
    Pipeline,
    arrays,
    chain,
    compose,
    map_readers,
    mix,
    npy,
    ragged,
    shuffle,
)
from jreader.readers.columns import column_of
from jreader.readers.trees import named_leaves

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*leaves out .* tokens of"),
    pytest.mark.filterwarnings("ignore::jreader.LintWarning"),  # of random plans
]


def seen_in(loader, epochs, number=0):
    """Every (sample, epoch, step, row), as `loader.samples` says step by step."""
    every = set()
    for epoch in epochs:
        for step in range(len(loader)):
            samples = loader.samples(step, epoch=epoch)
            for row, held in enumerate(source_rows(samples, number)):
                every |= {(sample, epoch, step, row) for sample in held}
    return sorted(every)


sizes = st.one_of(st.integers(1, 5), st.just({0: 2, 3: 5, 4: 1}))


@given(moving, sizes, st.sampled_from(["drop", "pad", "keep"]), st.data())
def test_every_step_that_holds_a_sample_is_found_and_no_other(recipe, size, last, data):
    loader = Pipeline(fast(recipe)).firstn(60).batch(size).load(sharding="host", last=last)
    if not len(loader):
        return
    columns = list(named_leaves(loader.samples(0).columns))
    number = data.draw(st.integers(0, len(columns) - 1))
    field, column = columns[number]
    assume(not cut_of_documents(column))
    asked = np.arange(len(column_of(column).source))
    found = loader.where(asked, epochs=range(3), field=field)
    assert sorted({*found}) == seen_in(loader, range(3), number)


COUNT = 50


def indexed(seed=1, size=4, **options):
    return Pipeline(arrays(n=np.arange(COUNT) * 3)).shuffle(seed=seed).batch(size).load(**options)


def seen_by(feeds, epoch=0, first=0):
    """The (sample, epoch, step, row) of feeds that were given."""
    steps = ((step, (feed["n"] // 3).tolist()) for step, feed in enumerate(feeds, first))
    return sorted((n, epoch, step, row) for step, feed in steps for row, n in enumerate(feed))


class TestCursors:
    def test_steps_before_a_cursor_and_after_it_make_the_run(self):
        loader = indexed()
        feeds = loader.epoch(1)
        before = seen_by([next(feeds) for _ in range(5)], epoch=1)
        cursor = through_json(feeds.cursor)
        after = seen_by(feeds, epoch=1, first=5)
        assert sorted(loader.where(range(COUNT), [1], until=cursor)) == before
        assert sorted(loader.where(range(COUNT), [1], since=cursor)) == after
        assert {epoch for _, epoch, _, _ in indexed().where(7, until=cursor)} <= {0, 1}
        assert {epoch for _, epoch, _, _ in indexed().where(7, range(9), since=cursor)} >= {2, 8}

    def test_a_cursor_knows_the_order_of_an_epoch_that_was_drawn_for_it(self):
        feeds = indexed(seed=None).epoch(2)
        before = seen_by([next(feeds) for _ in range(5)], epoch=2)
        cursor, other = through_json(feeds.cursor), indexed(seed=None)
        assert sorted(other.where(range(COUNT), [2], until=cursor)) == before
        with pytest.raises(ValueError, match="draws new numbers in each pass, and epoch 0 is not"):
            other.where(7, until=cursor)

    def test_the_epoch_under_way_is_known_without_a_seed(self):
        loader = indexed(seed=None)
        feeds = loader.epoch(0)
        given_ = [next(feeds)]
        found = loader.where(range(COUNT), [0])
        assert sorted(found) == seen_by([*given_, *feeds])

    def test_after_another_batch_size_steps_count_on(self):
        feeds = indexed(size=4).epoch(0)
        for _ in range(3):
            next(feeds)
        loader = indexed(size=2)
        rest = loader.epoch(0, at=through_json(feeds.cursor))
        after = seen_by(rest, first=3)
        assert sorted(loader.where(range(COUNT), [0], since=through_json(feeds.cursor))) == after
        with pytest.raises(ValueError, match=r"batches of 4 .* have 2, from step 3 on"):
            loader.where(range(COUNT), [0], until=through_json(feeds.cursor))

    @pytest.mark.parametrize("size", [20, {0: 20, 2: 24}])
    def test_a_cursor_after_a_short_last_step_counts_as_others(self, size):
        plan = Pipeline(arrays(n=np.arange(COUNT) * 3)).shuffle(seed=1).batch(size)
        feeds = plan.load(sharding="host", last="keep").epoch(0)
        given_ = [next(feeds) for _ in range(-(-COUNT // 20))]
        loader = plan.load(sharding="host", last="keep")
        assert sorted(loader.where(range(COUNT), until=feeds.cursor)) == seen_by(given_)

    def test_after_several_batch_sizes_earlier_steps_are_refused(self):
        feeds = indexed(size=4).epoch(0)
        for _ in range(3):
            next(feeds)
        feeds = indexed(size=2).epoch(0, at=feeds.cursor)
        next(feeds)
        loader = indexed(size=2)
        with pytest.raises(ValueError, match="of several sizes, and here they have 2, from step 4"):
            loader.where(range(COUNT), [0], until=feeds.cursor)
        with (
            loader.epoch(0, at=feeds.cursor),
            pytest.raises(ValueError, match="several sizes, and here they have 2, from step 4"),
        ):
            loader.samples(3)

    def test_a_run_without_an_end_is_asked_up_to_a_cursor(self):
        plan = Pipeline(arrays(n=np.arange(10) * 3)).shuffle(seed=1).epochs().batch(4)
        loader = plan.load()
        feeds = iter(loader)
        given_ = [next(feeds) for _ in range(9)]
        with pytest.raises(ValueError, match=r"epoch 0 has no end, .* until=loader.state_dict"):
            loader.where(3)
        assert sorted(loader.where(range(10), until=loader.state_dict())) == seen_by(given_)

    def test_a_cursor_of_another_plan_is_refused(self):
        with pytest.raises(NotResumable, match="another plan"):
            indexed(seed=2).where(7, until=indexed().state_dict())


CHANGES = {100: [1, 3], 150: [1, 0], 200: [5, 1]}


class TestSources:
    WEB, CODE = arrays(n=np.arange(30)), arrays(n=np.arange(9) + 100)

    def test_a_sample_is_counted_in_the_source_that_is_named(self):
        loader = Pipeline(mix({"web": self.WEB, "code": self.CODE}, [2, 1], seed=0)).batch(4).load()
        for sample, epoch, step, row in loader.where(range(9), range(2), source="code"):
            assert loader.samples(step, epoch).sources[row] == "code"
            assert loader.samples(step, epoch).rows["n"][row] == sample + 30
        assert list(loader.where(3, [0], source="code")) == [
            (3, *place) for _, *place in loader.where(33, [0])
        ]

    @pytest.mark.parametrize("seed", [1, None])
    def test_a_source_below_a_cache_in_memory_is_counted_as_without_it(self, seed):
        both = mix({"web": shuffle(self.WEB, seed=seed), "code": self.CODE}, [2, 1], seed=seed)
        loader = Pipeline(both).cache().batch(4).load()
        next(feeds := loader.epoch(0))
        for sample, epoch, step, row in loader.where(range(9), [0], source="code"):
            assert loader.samples(step).sources[row] == "code"
            assert loader.samples(step, epoch).rows["n"][row] == sample + 30
        feeds.close()

    def test_a_cache_on_disk_is_one_source_and_tells_of_several(self, tmp_path):
        both = mix({"web": self.WEB, "code": self.CODE}, [2, 1], seed=0)
        for _ in range(2):  # samples are found by their number once all are written
            loader = Pipeline(both).cache(tmp_path).batch(4).load()
            feeds = list(loader.epoch(1))
        for step, feed in enumerate(feeds):
            told = loader.samples(step, epoch=1).sources
            assert (told == "code").tolist() == (feed["n"] >= 100).tolist()
        with pytest.raises(ValueError, match=r"no sample of .* lies in 'code'"):
            loader.where(3, [0], source="code")

    @pytest.mark.parametrize("stop", ["first", "all", "once"])
    def test_weights_that_change_are_followed(self, stop):
        both = mix([arrays(np.arange(300)), arrays(np.arange(70))], seed=0, stop=stop, at=CHANGES)
        loader = Pipeline(both).batch(16).load(sharding="host", last="keep")
        assert sorted(loader.where(range(370), range(2))) == seen_in(loader, range(2))

    def test_readers_without_names_have_numbers(self):
        loader = Pipeline(chain(self.WEB, self.CODE)).batch(10).load(drop_last=False)
        for source in (1, "1"):  # a command has texts alone
            assert list(loader.where([8, 0], source=source)) == [(8, 0, 3, 8), (0, 0, 3, 0)]

    def test_what_there_is_is_listed_of_a_source_that_there_is_not(self):
        loader = Pipeline(mix({"web": self.WEB, "code": self.CODE}, seed=0)).batch(4).load()
        for call in (loader.where, loader.without):
            with pytest.raises(ValueError, match=r"source='cod', and the plan has \['web', 'code'"):
                call(3, source="cod")

    def test_fields_that_come_from_several_sources_are_named(self):
        both = compose(shuffle(self.WEB, seed=1), self.WEB)
        loader = Pipeline(both).batch(10).load(feed_list=None)
        assert list(loader.where(13, field=1)) == [(13, 0, 1, 3)]
        (place,) = loader.where(13)
        assert loader.samples(place[2]).rows[0]["n"][place[3]] == 13

    def test_records_of_a_file_are_counted_in_it(self, tmp_path):
        for name, count in [("a", 20), ("b", 30)]:
            np.save(tmp_path / f"{name}.npy", np.arange(count * 3).reshape(count, 3))
        paths = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
        loader = Pipeline(npy(paths)).shuffle(seed=3).batch(8).load()
        for step, feed in enumerate(loader):
            files = loader.samples(step).files
            assert [row for _, _, at, row in loader.where(files, [0]) if at == step] == list(
                range(8)
            )
            assert len(feed) == 8
        (in_file,), (in_all,) = loader.where(4, [0], source=paths[1]), loader.where(24, [0])
        assert in_file[1:] == in_all[1:]
        with pytest.raises(ValueError, match=r"no sample of .* lies in 'c.npy': name a file"):
            loader.where(4, source="c.npy")
        with pytest.raises(IndexError, match=r"has the number 30, and source '.*b.npy' has 30"):
            loader.where(30, source=paths[1])

    def test_rows_in_memory_lie_in_no_file(self):
        with pytest.raises(ValueError, match="does not say in which files its rows lie"):
            indexed().where(3, source="a.npy")

    @pytest.mark.parametrize(
        ("asked", "given_", "told"),
        [
            (3, {"source": 4}, r"source=4, and the plan has one source: name"),
            (3, {"field": "m"}, r"field='m', and the fields are \['n'\]"),
            (0.5, {}, "needs the number of a sample, or a list or an array of numbers, not 0.5"),
            ([50], {}, "has the number 50, and the source has 50 samples"),
            (-1, {}, "has the number -1, and the source has 50 samples"),
            ([[1], [2, 3]], {}, r"needs the number of a sample, .* not \[\[1\], \[2, 3\]\]"),
            (3, {"epochs": 2}, r"type epochs=\[2\] for that one, or epochs=range\(2\)"),
            (3, {"epochs": [-1]}, r"each of epochs=... needs a whole number of at least 0"),
            (3, {"epochs": "01"}, r"each of epochs=... needs a whole number of at least 0"),
        ],
    )
    def test_what_there_is_not_is_said(self, asked, given_, told):
        with pytest.raises((ValueError, TypeError, IndexError), match=told):
            indexed().where(asked, **given_)


def negative(row):
    return {"n": -row["n"]}


class TestPlans:
    def test_maps_of_samples_do_not_matter(self):
        plan = map_readers(
            negative, shuffle(map_readers(negative, arrays(n=np.arange(50))), seed=1)
        )
        loader = Pipeline(plan).batch(4).load()
        assert list(loader.where(range(9))) == list(indexed().where(range(9)))

    @pytest.mark.parametrize("stop", ["first", "all", "once"])
    def test_mixtures_of_maps_are_in_the_order_in_which_they_are_read(self, stop):
        web, code = (
            map_readers(dict, shuffle(arrays(n=np.arange(begin, begin + 25) * 3), seed=2))
            for begin in (0, 25)
        )
        inner = mix([web, mix([code], seed=3, stop=stop)], [2, 1], seed=1, stop=stop)
        loader = Pipeline(inner).batch(4).load(sharding="host")
        for epoch in range(3):
            found = sorted(loader.where(range(COUNT), [epoch]))
            assert found == seen_by(loader.epoch(epoch), epoch)

    def test_epochs_without_an_end_are_asked_up_to_where_the_plan_ends(self):
        endless = mix([arrays(n=np.arange(9) * 3)], seed=0, stop="repeat")
        loader = Pipeline(endless).epochs(2).firstn(20).batch(4).load(sharding="host")
        assert sorted(loader.where(range(9), [0])) == seen_by(loader.epoch(0))

    def test_a_plan_whose_epochs_go_on_is_asked_by_its_steps(self):
        plan = Pipeline(arrays(n=np.arange(10) * 3)).shuffle(seed=1).epochs().batch(4)
        loader = plan.load(steps_per_epoch=3)
        for ask in (loader.samples, loader.where):
            with pytest.raises(ValueError, match="parts of one pass: leave steps_per_epoch out"):
                ask(1)

    def test_a_plan_that_is_read_in_order_says_what_to_type(self):
        loader = Pipeline(arrays(n=np.arange(50))).filter(bool).batch(4).load()
        with pytest.raises(TypeError, match=r"loader.where\(indices\) needs an indexed plan"):
            loader.where(3)

    def test_it_prints_what_it_found(self):
        assert repr(indexed().where([3], [0, 1])) == (
            "Occurrences(sample=array([3, 3]), epoch=array([0, 1]), step=array([10,  4]), "
            "row=array([0, 3]))"
        )

    def test_nothing_is_found_of_a_sample_that_the_plan_leaves_out(self):
        loader = Pipeline(arrays(n=np.arange(50))).skip(10).batch(4).load()
        assert list(loader.where(range(10), range(5))) == []
        assert len(loader.where(10, range(5))) == 5

    @pytest.mark.parametrize("last", ["drop", "pad"])
    def test_rows_of_lanes_are_those_of_their_batches(self, last):
        plan = Pipeline(Blocks([3, 5, 2, 7, 1, 4, 6, 5, 3], 0).reader())
        loader = plan.shuffle(seed=1, blocks=4, lanes=2).batch(8).load(last=last, sharding="host")
        assert sorted(loader.where(range(36), range(3))) == seen_in(loader, range(3))

    def test_several_batches_make_a_feed(self):
        loader = indexed().chunk(3)
        assert sorted(loader.where(range(COUNT), range(2))) == seen_in(loader, range(2))


def tokens_of(row):
    return row["tokens"]


class TestDocuments:
    ENDS = np.cumsum([0, *np.random.default_rng(0).integers(0, 60, 80)])
    TEXTS = ragged(np.arange(ENDS[-1]), ENDS)

    @pytest.mark.parametrize(
        "plan",
        [
            lambda texts: texts.windows(32, stride=20),
            lambda texts: texts.windows(9, across=False).shuffle(seed=1),
            lambda texts: texts.pack(64, seed=1).map(tokens_of),
            lambda texts: texts.pack(32, seed=1, longer="split").map(tokens_of),
            lambda texts: texts.pack(32, seed=1, split="always").map(tokens_of),
        ],
    )
    def test_every_token_of_every_feed_is_one_of_a_document_that_is_found(self, plan):
        loader = plan(Pipeline(self.TEXTS)).batch(4).load(sharding="host", last="keep")
        for epoch in range(2):
            found, found_in = loader.where(range(80), [epoch]), {}
            for place in zip(found, found.begin, found.end, strict=True):
                found_in.setdefault(place[0][2:], []).append(place)
            for step, feed in enumerate(loader.epoch(epoch)):
                for row, tokens in enumerate(np.asarray(feed)):
                    left = np.ones(len(tokens), bool)
                    for (document, *_), begin, end in found_in.get((step, row), []):
                        first, last = self.ENDS[document : document + 2]
                        assert left[begin:end].all()
                        assert (tokens[begin:end] >= first).all()
                        assert (tokens[begin:end] < last).all()
                        left[begin:end] = False
                    assert not tokens[left].any()  # padding, or the token 0 of document 0

    @pytest.mark.parametrize("last", ["drop", "pad", "keep"])
    def test_rows_of_buckets_are_found(self, last):
        plan = Pipeline(arrays(text=self.TEXTS, id=np.arange(80)))
        loader = plan.bucket([16, 64], batch_size=6, seed=1).load(sharding="host", last=last)
        assert sorted(loader.where(range(80), range(3), field="id")) == seen_in(loader, range(3), 1)
        cursor = loader.state_dict()
        feeds = loader.epoch(0)
        next(feeds), next(feeds)
        cursor = through_json(feeds.cursor)
        before, after = loader.where(range(80), [0], until=cursor), loader.where(5, since=cursor)
        assert {step for _, _, step, _ in before} == {0, 1}
        assert {step for _, epoch, step, _ in after if not epoch} <= set(range(2, 99))
