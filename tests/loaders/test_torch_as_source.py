"""Loaders of torch as sources: batches with names, epochs, and places that are found again."""

from __future__ import annotations

import gc
import json
import math
import multiprocessing
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from widths import examples

from jreader import DataLoader, NotResumable, Pipeline, start
from jreader.readers.torch_loaders import state_in, state_text

COUNT, SIZE = 11, 3
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = st.integers() | st.text() | st.binary()
STATES = st.recursive(
    PLAIN | st.binary() | st.integers(0, 255).map(lambda n: np.full(3, n, np.uint8)),
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


class Sampler:
    """Indices in an order of each epoch, as those of torch's DistributedSampler."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(np.random.default_rng(self.epoch).permutation(COUNT).tolist())


class Batches(NamedTuple):
    """What torch's BatchSampler tells."""

    sampler: Sampler

    def __iter__(self):
        order = list(self.sampler)
        return (order[low : low + SIZE] for low in range(0, COUNT, SIZE))


OF_TORCH = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader"})
OF_TORCHDATA = type("Loader", (), {"__module__": "torchdata.nodes.loader"})


class Loader(OF_TORCH):
    """A loader with the attributes of torch's."""

    collate_fn = dataset = None

    def __init__(self, sampler=None):
        self.sampler = sampler or Sampler()
        self.batch_sampler = Batches(self.sampler)

    def __iter__(self):
        for rows in self.batch_sampler:
            yield [np.array(rows) * 1.5, np.array(rows)]


class Shuffled(Sampler):
    generator = None


class Stateful(OF_TORCHDATA):
    """A loader that tells and takes its state, which is in no other place; it has no batches."""

    def __init__(self):
        self.number, self.done, self.loaded = -1, 0, False

    def __iter__(self):
        if not self.loaded:
            self.number, self.done = self.number + 1, 0
        self.loaded = False
        return self.rows(np.random.default_rng(self.number).permutation(COUNT))

    def rows(self, order):
        while self.done < COUNT:
            self.done += SIZE
            rows = order[self.done - SIZE : self.done]
            yield {"n": rows, "text": [str(row) for row in rows]}

    def state_dict(self):
        return {"number": (self.number,), b"done": np.array(self.done), 3: None}

    def load_state_dict(self, state):
        assert [*state] == ["number", b"done", 3]
        (self.number,), self.done, self.loaded = state["number"], int(state[b"done"]), True


def ids(feeds, name="y"):
    return [np.asarray(feed[name]).tolist() for feed in feeds]


def test_what_a_loader_yields_in_a_list_gets_names():
    loader = Pipeline(Loader()).load({"x": 0, "y": 1}, last="keep")
    for feed in loader:
        assert isinstance(feed["x"], jax.Array)
        assert np.asarray(feed["x"]).tolist() == (np.asarray(feed["y"]) * 1.5).tolist()
    assert ids(Pipeline(Loader).load(["x", "y"], last="keep")) == ids(
        DataLoader.from_generator(["x", "y"]).set_batch_generator(Loader)
    )


def test_a_stream_of_a_users_own_that_has_a_state_keeps_its_lists():
    class Stream:
        collate_fn = None

        def __iter__(self):
            return iter([[1, 2], [3, 4]])

        def state_dict(self):
            raise AssertionError

        load_state_dict = state_dict

    assert list(Pipeline(Stream)) == [[1, 2], [3, 4]]
    first = start(Stream)
    assert next(first.items) == [1, 2]
    assert list(start(Stream, first.position()).items) == [[3, 4]]


def test_two_fields_of_one_shape_are_no_two_samples():
    assert Pipeline(Loader()).peek().columns[1].tolist() == [*Sampler()][:SIZE]
    assert len(Pipeline(Loader()).peek()) == SIZE


def test_every_epoch_is_told_to_the_sampler():
    first, second = Pipeline(Loader()).epochs(2).unbatch().batch(COUNT)
    assert sorted(first.columns[1]) == sorted(second.columns[1]) == [*range(COUNT)]
    assert [first.columns[1].tolist(), second.columns[1].tolist()] == [
        np.random.default_rng(epoch).permutation(COUNT).tolist() for epoch in (0, 1)
    ]


@pytest.mark.parametrize("size", [1, 2, 4, 20])
def test_batches_are_cut_to_another_size_and_lose_nothing(size):
    plan = Pipeline(Loader()).rebatch(size)
    assert [len(batch) for batch in plan][:-1] == [size] * (-(-COUNT // size) - 1)
    assert [row for batch in plan for row in batch.columns[1].tolist()] == [*Sampler()]


@pytest.mark.parametrize("make", [Loader, Stateful])
def test_every_place_of_two_epochs_is_found_again(make):
    def loader():
        fields = {"y": "n"} if make is Stateful else {"y": 1}
        return Pipeline(make()).rebatch(2).load(fields, sharding="host", last="keep")

    whole, running = loader(), loader()
    expected = [ids(whole), ids(whole)]
    for epoch in range(2):
        for done, feed in enumerate(running, 1):
            assert feed["y"].tolist() == expected[epoch][done - 1]
            resumed = loader()
            resumed.load_state_dict(json.loads(json.dumps(running.state_dict())))
            assert ids(resumed) == expected[epoch][done:]


class Reused(Loader):
    """A loader whose collate_fn writes each batch to the memory of the one before."""

    def __init__(self):
        super().__init__()
        self.rows = np.zeros((SIZE, 100), np.float32)

    def __iter__(self):
        for rows in self.batch_sampler:
            self.rows[:] = rows[0]
            yield self.rows


@pytest.mark.parametrize("options", [{}, {"capacity": 0}, {"sharding": "host"}], ids=repr)
def test_a_batch_whose_memory_is_written_to_again_stays_as_it_came(options):
    feeds = list(Pipeline(Reused()).load(**options))
    assert [float(feed[0, 0]) for feed in feeds] == [rows[0] for rows in Batches(Sampler())]


def test_texts_are_a_column():
    assert Pipeline(Stateful()).peek()["text"].tolist() == [
        str(row) for row in np.random.default_rng(0).permutation(COUNT)[:SIZE]
    ]


def test_a_shuffle_that_comes_in_another_order_each_time_cannot_be_resumed():
    loader = Pipeline(Loader(Shuffled())).load(["x", "y"], last="keep")
    feeds = iter(loader)
    next(feeds)
    with pytest.raises(NotResumable, match="make it a StatefulDataLoader of torchdata"):
        loader.state_dict()


@examples(100)
@given(STATES)
def test_states_come_back_as_they_were(state):
    def told(part):
        if isinstance(part, np.ndarray):
            return str(part.dtype), part.tolist()
        if isinstance(part, dict):
            return [(key, told(value)) for key, value in part.items()]
        if isinstance(part, (list, tuple)):
            return type(part), [*map(told, part)]
        return type(part), part

    assert told(state_in(json.loads(json.dumps(state_text(state))))) == told(state)


def test_a_state_that_no_cursor_holds_is_refused():
    with pytest.raises(NotResumable, match="the state of a loader holds <object object"):
        state_text({"rng": object()})


def test_a_state_may_have_numbers_that_no_literal_writes():
    told = state_in(state_text({"best": -math.inf, "loss": math.nan}))
    assert told["best"] == -math.inf
    assert math.isnan(told["loss"])


class Numbered:
    """Samples as a map-style data set has them."""

    def __len__(self):
        return COUNT * 2

    def __getitem__(self, index):
        return {"x": np.full(2, index, "float32"), "y": index}


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
class TestTheRealOnes:
    @pytest.fixture(scope="class")
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def stateful(self, torch):
        data = pytest.importorskip("torchdata.stateful_dataloader")

        def make(**options):
            seeded = torch.Generator().manual_seed(0)
            return data.StatefulDataLoader(
                Numbered(), SIZE, shuffle=True, generator=seeded, **options
            )

        return make

    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("persistent", [False, True])
    def test_a_stateful_loader_goes_on_after_any_batch(self, stateful, workers, persistent):
        options = {"num_workers": workers, "persistent_workers": persistent and workers > 0}

        def loader():
            return Pipeline(stateful(**options)).load(sharding="host", last="keep")

        running = loader()
        whole = ids(loader())
        places = range(1, len(whole) + 1) if not workers else (1, 2, len(whole) - 1, len(whole))
        for done, _ in enumerate(running, 1):
            if done in places:
                cursor = json.loads(json.dumps(running.state_dict()))
                with loader() as resumed:
                    resumed.load_state_dict(cursor)
                    assert ids(resumed) == whole[done:]
                    assert sorted(chain(*ids(resumed))) == [*range(COUNT * 2)]

    def test_workers_end_when_a_pass_is_closed(self, torch):
        before = set(multiprocessing.active_children())
        loader = torch.utils.data.DataLoader(Numbered(), SIZE, num_workers=2)
        up = start(Pipeline(loader))
        next(up.items)
        assert len(set(multiprocessing.active_children()) - before) == 2
        up.close()
        gc.collect()
        assert set(multiprocessing.active_children()) <= before

    def test_tensors_become_arrays_over_their_memory(self, torch):
        loader = torch.utils.data.DataLoader(torch.arange(8.0).reshape(4, 2), 4)
        assert not Pipeline(loader).peek().columns.flags.owndata  # but the tensor does

    def test_what_a_collate_fn_of_yours_returns_is_copied(self, torch):
        shared = torch.zeros(2)
        loader = torch.utils.data.DataLoader(
            torch.arange(6.0), 2, collate_fn=lambda rows: shared.copy_(torch.stack(rows))
        )
        assert [feed.tolist() for feed in list(Pipeline(loader).load())] == [[0, 1], [2, 3], [4, 5]]

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int64", "bool"])
    def test_of_every_dtype(self, torch, dtype):
        values = torch.tensor([[1.0, 0.0], [2.0, -1.5]]).to(getattr(torch, dtype))
        (batch,) = Pipeline(torch.utils.data.DataLoader(list(values), 2))
        assert batch.columns.dtype == dtype
        assert batch.columns.astype(float).tolist() == values.to(torch.float64).tolist()

    @pytest.mark.parametrize(
        ("made", "says"),
        [
            (lambda torch: torch.ones(2, requires_grad=True), r"detach\(\)"),
            (lambda torch: torch.eye(2).to_sparse(), r"to_dense\(\)"),
            (lambda torch: torch.ones(2, device="meta"), r"cpu\(\)"),
        ],
        ids=["a gradient", "sparse", "elsewhere"],
    )
    def test_others_are_refused_with_what_to_call(self, torch, made, says):
        loader = torch.utils.data.DataLoader([0], 1, collate_fn=lambda _: made(torch))
        with pytest.raises((TypeError, RuntimeError), match=says):
            next(iter(Pipeline(loader).load()))

    def test_a_shuffled_loader_cannot_be_resumed_and_one_in_order_can(self, torch):
        for shuffle in (True, False):
            made = torch.utils.data.DataLoader(Numbered(), SIZE, shuffle=shuffle)
            loader = Pipeline(made).load(last="keep", sharding="host")
            feeds = iter(loader)
            next(feeds)
            refused = pytest.raises(NotResumable, match="StatefulDataLoader")
            with refused if shuffle else nullcontext():
                loader.state_dict()

    def test_nodes_of_torchdata_go_on_where_they_were(self, torch):
        nodes = pytest.importorskip("torchdata.nodes")

        def loader():
            rows = nodes.SamplerWrapper(torch.utils.data.SequentialSampler(range(COUNT)))
            each = nodes.ParallelMapper(rows, lambda n: {"y": n}, num_workers=2, method="thread")
            made = nodes.Mapper(nodes.Batcher(each, SIZE, drop_last=False), collate)
            plan = Pipeline(nodes.Loader(nodes.Prefetcher(made, 2)))
            return plan.rebatch(SIZE).load(sharding="host", last="keep")

        collate = torch.utils.data.default_collate
        running = loader()
        whole = ids(loader())
        for done, _ in enumerate(running, 1):
            resumed = loader()
            resumed.load_state_dict(running.state_dict())
            assert ids(resumed) == whole[done:]

    def test_a_loader_of_ours_is_stateful_to_torch(self, torch):
        checkpoints = pytest.importorskip("torch.distributed.checkpoint.stateful")
        assert isinstance(DataLoader(Numbered(), SIZE), checkpoints.Stateful)

    def test_the_class_for_torchtitan_goes_on_from_a_checkpoint(self, tmp_path, monkeypatch):
        pytest.importorskip("torchtitan.components.dataloader")
        checkpoint = pytest.importorskip("torch.distributed.checkpoint")
        page = Path(__file__).parents[2] / "docs" / "coming_from" / "pytorch.md"
        (block,) = (
            text
            for text in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
            if "BaseDataLoader" in text
        )
        np.arange(401, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
        room = ModuleType("titan")
        monkeypatch.setitem(sys.modules, "titan", room)  # its dataclass asks for it
        exec(compile(block, page, "exec", dont_inherit=True), vars(room))
        config = room.Data.Config(path=str(tmp_path / "tokens.bin"))

        def built(rank=0, config=config):
            return config.build(
                dp_rank=rank, dp_world_size=2, tokenizer=None, seq_len=8, local_batch_size=2
            )

        running = built()
        batches = iter(running)
        inputs, labels = next(batches)
        assert inputs["input"][:, 1:].tolist() == labels[:, :-1].tolist()
        checkpoint.save({"data": running}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
        resumed = built()
        checkpoint.load({"data": resumed}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
        again = iter(resumed)
        for _ in range(15):  # into the next epoch
            assert next(again)[1].tolist() == next(batches)[1].tolist()
        ends = [list(built(rank, replace(config, infinite=False))) for rank in (0, 1)]
        firsts = [inputs["input"][:, 0].tolist() for part in ends for inputs, _ in part]
        assert len(set(chain(*firsts))) == 44  # no window twice
