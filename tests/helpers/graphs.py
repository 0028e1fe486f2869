"""Random plans of every op that jreader has, for the laws.

Ops are found, not listed: whoever adds one finds it in here, and has to teach `ARGUMENTS` only a
parameter whose name is new and that is no whole number. A plan is drawn as a recipe, so that an
equal one can be built cold.
"""

from __future__ import annotations

import inspect
import pkgutil
import tempfile
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from block_sources import Blocks, lines_in_blocks
from byte_recordings import clips_recorded
from chat_templates import CHATML, TOKENIZER
from hypothesis import strategies as st
from kept_samples import FAST
from samples import kept_in_order
from seen import canonical
from videos import clips_filmed

import jreader
from jreader import datasets
from jreader.batches import gives_batches
from jreader.errors import FeedMismatch
from jreader.readers import Node, indexed, length, lookup_of
from jreader.readers.fingerprints import Adjustable
from jreader.readers.lanes import dealt_below
from jreader.readers.seeds import lacks_seed, seeded
from jreader.transforms import fixed_order, select
from jreader.workers import fetch_batches


def everything() -> set[type[Node]]:
    """Every op of the library."""
    for module in pkgutil.walk_packages(jreader.__path__, "jreader."):
        if module.name != "jreader.__main__":
            import_module(module.name)

    def below(kind: type) -> Iterator[type]:
        for child in kind.__subclasses__():
            if child.__module__.startswith("jreader."):
                yield child
                yield from below(child)

    named = {op for op in below(Node) if not op.__name__.startswith("_")}
    return named - {Adjustable}  # what ops extend, and no op


@cache  # plans are built by the ten thousands
def parameters(op: Any) -> Mapping[str, inspect.Parameter]:
    """What an op takes."""
    return inspect.signature(op).parameters


def sources(op: type[Node]) -> bool:
    """Whether an op reads no other reader."""
    return not {"reader", "readers"} & set(parameters(op))


PROCESSES = {jreader.multiprocess_reader}
CREATORS = sorted(filter(sources, everything()), key=lambda op: op.__name__)
OPS = sorted(everything() - set(CREATORS) - PROCESSES, key=lambda op: op.__name__)


def number(sample: Any) -> int:
    """A number for any sample, the same in every process."""
    return zlib.crc32(repr(canonical(sample)).encode())


def tagged(*samples: Any) -> Any:
    return ("mapped", *samples) if number(samples) % 2 else ["mapped", *samples]


def kept(sample: Any) -> bool:
    return number(sample) % 3 != 0


def several(sample: Any) -> Iterator[Any]:
    return (("part", sample, part) for part in range(number(sample) % 4))


def columns_of(columns: Any) -> Any:
    return columns


def drawn_for(sample: Any, rng: np.random.Generator | None = None) -> Any:
    return tagged(sample) if rng is None else ("drawn", sample, int(rng.integers(2**40)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "filter": kept,
    "group_by": kept,
    "map_samples": drawn_for,
    "flat_map": several,
    "read": several,
    "map_batches": columns_of,
}


def document_of(sample: Any) -> list[int]:
    """A list of numbers for any sample, of 0 to 8 of them."""
    return [number(sample) % 100] * (number(sample) % 9)


def chat_of(sample: Any) -> dict[str, Any]:
    """A chat for any sample."""
    turns = [("user", f"{number(sample)}?"), ("assistant", f"{number(sample) % 7}!")]
    return {"messages": [{"role": role, "content": said} for role, said in turns]}


small = st.integers(1, 5)
sizes = st.one_of(
    small,
    st.builds(
        lambda first, later: {0: first, **later}, small, st.dictionaries(small, small, max_size=2)
    ),
)
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(0, 12),
    "buf_size": st.one_of(st.none(), st.integers(0, 9)),
    "seed": st.sampled_from([0, 7, 2**40, None]),
    "blocks": st.one_of(st.none(), small),
    "lanes": small,
    "batch_size": small,
    "size": st.integers(0, 4),
    "drop_last": st.booleans(),
    "check_alignment": st.booleans(),
    "process_num": st.integers(1, 3),
    "buffer_size": small,
    "order": st.just(True),  # noqa: FBT003  # arrival order has a test of its own
    "use_pipe": st.just(True),  # noqa: FBT003  # likewise
    "queue_size": small,
    "timeout": st.sampled_from([0, 60]),
    "worker_init_fn": st.none(),
    "persistent": st.just(False),  # noqa: FBT003  # likewise
    "read_in_worker": st.just(False),  # noqa: FBT003  # likewise
    "prefetch": st.one_of(st.none(), small),
    "global_seed": st.one_of(st.none(), small),
    "threads": st.integers(0, 3),
    "processes": st.just(0),
    "executor": st.none(),
    "concurrency": st.just(0),
    "window": st.one_of(st.none(), small),
    "rng": st.booleans(),
    "on_error": st.sampled_from(["raise", "skip"]),
    "max_errors": st.integers(0, 3),
    "num_shards": st.integers(1, 4),
    "index": st.integers(0, 3),
    "steps": st.one_of(st.none(), st.integers(0, 4)),
    "short": st.sampled_from(["wrap", "pad", "error"]),
    "origin": st.integers(0, 3),
    "stride": st.one_of(st.none(), small),
    "weights": st.one_of(st.none(), st.lists(st.integers(0, 100), min_size=3, max_size=3)),
    "temperature": st.none(),
    "stop": st.sampled_from(["first", "all", "once", "repeat"]),
    "at": st.dictionaries(st.integers(1, 60), st.lists(small, min_size=3, max_size=3), max_size=2),
    "source": st.none(),  # of samples that are dicts; likewise
    "stacked": st.just(True),  # noqa: FBT003  # lists of samples have tests of their own
    "across": st.booleans(),
    "to": st.sampled_from(["longest", (3, 9), (9,)]),
    "multiple_of": st.none(),
    "pad": st.sampled_from([0, 5]),
    "fields": st.none(),
    "longer": st.just("truncate"),
    "padding_side": st.sampled_from(["right", "left", {"tokens": "left"}]),
    "same_length": st.booleans(),
    "axes": st.sampled_from([1, {"tokens": 1}]),
    "split": st.sampled_from(["never", "always"]),
    "bounds": st.sampled_from([(8,), (2, 8), (1, 3, 6)]),
    "tokens": st.none(),
    "by": st.none(),
    "divisible_by": st.just(1),
    "indices": st.lists(st.integers(0, 40), max_size=8),
    "path": st.none(),  # caches on disk have laws of their own
    "tokenizer": st.just(TOKENIZER),
    "template": st.just(CHATML),
    "turns": st.sampled_from(["all", "last"]),
    "tool_calls": st.booleans(),
    "variables": st.none(),
    "begin": st.sampled_from([None, 7]),
    "per_document": st.none(),  # `packs_of` gives some
    "truncation_side": st.just("right"),  # likewise
    "keep": st.sampled_from(
        [None, True]
    ),  # whether to keep bits, in a folder of its own (`bits_kept`)
}


@dataclass(frozen=True)
class Leaf:
    """A plain generator function; raises after `fails_after` samples, where that is a number."""

    kind: str
    count: int
    base: int
    fails_after: int | None = None

    def __call__(self) -> Iterator[Any]:
        for place in range(self.count):
            if place == self.fails_after:
                raise BoomError(place)
            yield SAMPLES[self.kind](self.base * 100 + place)
        if self.fails_after == self.count:
            raise BoomError(self.count)


class BoomError(Exception):
    """A source that fails."""


SAMPLES: dict[str, Callable[[int], Any]] = {
    "int": lambda n: n,
    "none": lambda n: None if n % 2 else n,
    "text": lambda n: "" if n % 3 else str(n),
    "tuple": lambda n: (n, str(n)),
    "array": lambda n: np.arange(n % 3 + 1) + n,
    "dict": lambda n: {"id": n, "row": np.full(2, n)},
    "error": lambda n: StopIteration(n) if n % 2 else KeyError(n),
}


@dataclass(frozen=True)
class Recipe:
    """How to build a plan."""

    op: type[Any] | None
    given: Mapping[str, Any]
    below: tuple[Recipe, ...] = ()
    leaf: Leaf | None = None

    def build(self, leaf_of: Callable[[Leaf], Any] = lambda leaf: leaf) -> Any:
        if self.leaf is not None:
            return leaf_of(self.leaf)
        if self.op is jreader.arrays:
            rows = np.arange(self.given["rows"])
            return jreader.arrays(*[rows * 10 + width for width in range(self.given["width"])])
        if self.op is Blocks:
            return Blocks(**self.given).reader()
        if self.op is jreader.ragged:
            offsets = np.cumsum([0, *self.given["lengths"]])
            return jreader.ragged(np.arange(offsets[-1]), offsets)
        if self.op in SAMPLERS or self.op in (
            lines_in_blocks,
            clips_recorded,
            clips_filmed,
            documents_with_fields,
        ):
            return self.op(**self.given)
        readers = [part.build(leaf_of) for part in self.below]
        return self._made(readers)

    def _made(self, readers: list[Any]) -> Any:
        op = self.op
        assert op is not None
        given = dict(self.given)
        if op is jreader.shuffle:
            given = shuffled(readers[0], self.below[0], **given)
        if op is jreader.shard:
            given["index"] %= given["num_shards"]
        if op is jreader.map_samples and not given.get("rng"):
            given["seed"] = None
        given |= fitting_lanes(op, given, readers) | bits_kept(given, readers)
        if op is fetch_batches:
            given["process_num"] = 0  # in processes it has tests of its own
        if op in (jreader.sliding_window, jreader.group_by) and gives_batches(readers[0]):
            readers[0] = jreader.unbatch(readers[0])
        if op in (jreader.mix, select, fixed_order):
            known = length(self.below[0].untold.build())
            return (
                mixed(readers, **given)
                if op is jreader.mix
                else by_number(op, readers[0], known, **given)
            )
        names = list(parameters(op))
        variadic = parameters(op).get("readers")
        first = [FUNCTIONS.get(op.__name__, tagged)] if names[0] in FUNCTION_NAMES else []
        if given.get("buf_size") in (0, 1):
            return kept_in_order(readers[0], given["buf_size"], given["seed"])
        if variadic is None:
            return op(*first, readers[0], **given)
        if variadic.kind is variadic.VAR_POSITIONAL:
            return op(*first, *readers, **given)
        return op(*first, readers, **given)

    @property
    def untold(self) -> Recipe:
        """The recipe whose filters do not tell how many samples they leave (`movers.told`)."""
        below = tuple(part.untold for part in self.below)
        return replace(self, op=getattr(self.op, "tells_of", self.op), below=below)

    @property
    def seeded(self) -> bool:
        """Whether two passes agree."""
        return self.given.get("seed", 0) is not None and all(part.seeded for part in self.below)


def fitting_lanes(op: Any, given: dict[str, Any], readers: list[Any]) -> dict[str, int]:
    """Arguments that fit: no more lanes than files, and batches that lanes divide."""
    if op is jreader.read and (files := length(readers[0])) is not None:
        return {"lanes": min(given["lanes"], max(files, 1))}
    if op in (jreader.batch, jreader.padded_batch) and (dealt := dealt_below(readers[0])):
        sizes = given["batch_size"]
        if isinstance(sizes, int):
            return {"batch_size": sizes * dealt.lanes}
        fitting = {step: size * dealt.lanes for step, size in sizes.items()}
        return {"batch_size": fitting if dealt.owned else fitting[0]}
    return {}


def bits_kept(given: dict[str, Any], readers: list[Any]) -> dict[str, Any]:
    """A folder for the bits of a filter: they are all there where samples are found by index."""
    if not given.get("keep") or lacks_seed(readers[0]):
        return dict.fromkeys(given.keys() & {"keep"})
    folder, reader = tempfile.mkdtemp(dir=FOLDERS.name), readers[0]
    if lookup_of(reader) is not None:
        # a plan whose samples do not fit one another fails in its law
        with warnings.catch_warnings(), suppress(FeedMismatch):
            warnings.simplefilter("ignore")
            deque(jreader.filter(kept, reader, folder)(), maxlen=0)
    return {"keep": folder}


FOLDERS = tempfile.TemporaryDirectory(dir=FAST)
"""Folders of the bits of this process, which are gone when it ends."""


def by_number(op: Any, reader: Any, known: int | None, **given: Any) -> Any:
    """Samples by their number, where a length is known, with indices below it; else as they are."""
    if known is None:
        return reader
    if op is select:
        given = {"indices": [index % known for index in given["indices"] if known]}
    return op(reader, **given)


def joined(reader: Any) -> Any:
    """The plan as one stream: what comes after it does not run inside its lanes, if it has any."""
    return jreader.chain(reader)


def documents_with_fields(lengths: list[tuple[int, int]]) -> Any:
    """Documents of two ragged fields and a label, found by number."""
    ends = np.cumsum([(0, 0), *lengths], axis=0)
    text, other = (jreader.ragged(np.arange(each[-1]), each) for each in ends.T)
    return jreader.arrays(text=text, other=other, label=np.arange(len(lengths)))


def documents(reader: Any) -> Any:
    """Lists of numbers, one for each sample."""
    return jreader.map_readers(document_of, reader)


def chats(reader: Any) -> Any:
    """Chats, one for each sample."""
    return jreader.map_readers(chat_of, reader)


def shuffled(
    reader: Any, recipe: Recipe, buf_size: Any, blocks: Any, lanes: int = 1, **given: Any
) -> dict[str, Any]:
    """The arguments of a shuffle: blocks where there are some, else a window if it needs one."""
    plane = indexed(seeded(reader, 0)) if blocks else None
    if plane is not None and plane.blocks is not None:
        return {**given, "buf_size": None, "blocks": blocks * lanes, "lanes": lanes}
    # the same whatever it is built of: rows of arrays tell more lengths than functions
    needed = buf_size is None and length(recipe.build()) is None
    return {**given, "buf_size": 6 if needed else buf_size, "blocks": None}


def mixed(readers: list[Any], weights: Any, at: Any, **given: Any) -> Any:
    """A mixture; of one without an end, the beginning, since some ops above may wait for an end."""
    many = len(readers)
    changes = {turn: each[:many] for turn, each in at.items()}
    # of a plan that became smaller, the sources that are left may be those of no weight
    weights = weights[:many] if weights and any(weights[:many]) else None
    made = jreader.mix(readers, weights, at=changes, **given)
    return jreader.firstn(made, 20) if given["stop"] == "repeat" else made


FUNCTION_NAMES = {"fn", "func", "mapper"}

leaf_recipes = st.builds(
    lambda kind, count, base: Recipe(None, {}, leaf=Leaf(kind, count, base)),
    st.sampled_from(sorted(SAMPLES)),
    st.integers(0, 14),
    st.integers(0, 9),
)
ragged_recipes = st.builds(
    lambda lengths: Recipe(jreader.ragged, {"lengths": lengths}),
    st.lists(st.integers(0, 9), max_size=14),
)
array_recipes = st.builds(
    lambda rows, width: Recipe(jreader.arrays, {"rows": rows, "width": width}),
    st.integers(0, 14),
    st.integers(1, 2),
)


block_recipes = st.builds(
    lambda sizes, base: Recipe(Blocks, {"sizes": sizes, "base": base}),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.integers(0, 9),
)


line_recipes = st.builds(
    lambda sizes, block: Recipe(lines_in_blocks, {"sizes": sizes, "block": block}),
    st.lists(st.integers(0, 9), min_size=1, max_size=14),
    st.integers(1, 40),
)

clip_recipes = st.builds(
    lambda counts, size, stride: Recipe(
        clips_recorded, {"counts": counts, "size": size, "stride": stride}
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
)
film_recipes = st.builds(
    lambda **given: Recipe(clips_filmed, given),
    films=st.integers(1, 2),
    size=st.integers(1, 3),
    stride=st.integers(1, 3),
    every=st.integers(1, 2),
)


rows, seeds, flags = st.integers(1, 14).map(range), ARGUMENTS["seed"], st.booleans()
SAMPLERS: dict[type[Node], dict[str, st.SearchStrategy[Any]]] = {
    datasets.SequenceSampler: {"data_source": st.integers(0, 14).map(range)},
    datasets.RandomSampler: {"data_source": rows, "replacement": flags, "seed": seeds},
    datasets.WeightedRandomSampler: {
        "weights": st.lists(st.integers(1, 9), min_size=4, max_size=9),
        "num_samples": st.integers(1, 4),
        "replacement": flags,
        "seed": seeds,
    },
    datasets.SubsetRandomSampler: {"indices": st.lists(st.integers(0, 99)), "seed": seeds},
    datasets.BatchSampler: {
        "dataset": rows,
        "shuffle": flags,
        "batch_size": small,
        "drop_last": flags,
        "seed": seeds,
    },
    datasets.DistributedBatchSampler: {
        "dataset": rows,
        "batch_size": small,
        "num_replicas": st.just(3),
        "rank": st.integers(0, 2),
        "shuffle": flags,
        "drop_last": flags,
        "seed": st.sampled_from([0, 2**40]),
    },
}
sampler_recipes = st.deferred(
    lambda: st.one_of(
        *[
            st.builds(Recipe, st.just(op), st.fixed_dictionaries(given))
            for op, given in SAMPLERS.items()
        ]
    )
)


def argument(op: type[Node], name: str) -> st.SearchStrategy[Any]:
    """What a parameter may be; of a whole number its declaration says enough."""
    if name == "batch_size" and op in (jreader.batch, jreader.padded_batch):
        return sizes
    least = next((each.metadata.get("least") for each in fields(op) if each.name == name), None)
    if name not in ARGUMENTS and least is not None:
        return st.integers(least, least + 4)
    assert name in ARGUMENTS, f"teach ARGUMENTS in tests/helpers/graphs.py what {name!r} may be"
    known = ARGUMENTS[name]
    return known.filter(lambda number: number is None or number >= least) if least else known


@st.composite
def op_recipes(draw: st.DrawFn, op: type[Node], below: st.SearchStrategy[Recipe]) -> Recipe:
    """A recipe for one op over drawn plans."""
    given = {}
    wanted = 1
    for name in parameters(op):
        if name == "readers":
            wanted = draw(st.integers(1, 3))
        elif name != "reader" and name not in FUNCTION_NAMES:
            given[name] = draw(argument(op, name))
    parts = tuple(draw(below) for _ in range(wanted))
    if op is jreader.interleave:
        given["stop"] = draw(st.sampled_from(["once", "first"]))
        given["order"] = draw(st.one_of(st.none(), orders_of(wanted)))
    if op is jreader.pack:
        given |= draw(packs_of(given["split"]))
    if op is jreader.chat:
        parts = (Recipe(chats, {}, parts),)
    if op in (jreader.pack, jreader.windows, jreader.padded_batch, jreader.bucket):
        parts = (draw(document_recipes(op, given, parts)),)
    if op is jreader.unbatch:
        given_to = {"batch_size": draw(sizes), "drop_last": draw(st.booleans())}
        parts = (Recipe(jreader.batch, given_to, parts),)
    if op is jreader.map_batches:
        rows = Recipe(jreader.arrays, {"rows": draw(st.integers(0, 14)), "width": 2})
        parts = (Recipe(jreader.batch, {"batch_size": draw(sizes)}, (rows,)),)
    return Recipe(op, given, parts)


def document_recipes(op: Any, given: Any, parts: tuple[Recipe, ...]) -> st.SearchStrategy[Recipe]:
    """Documents of the form that an op needs, found by number or made of samples."""
    if isinstance(given.get("size"), dict):
        return st.one_of(fields_recipes, st.just(Recipe(fields_of, {}, parts)))
    moved = op in (jreader.pack, jreader.windows)
    known = moved_ragged_recipes if moved else ragged_recipes
    return st.one_of(known, st.just(Recipe(documents, {}, parts)))


def orders_of(many: int) -> st.SearchStrategy[list[int]]:
    """Orders that name each of so many readers."""
    more = st.lists(st.integers(0, many - 1), max_size=3)
    return more.flatmap(lambda some: st.permutations([*range(many), *some]))


def packs_of(split: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of `pack` that go with `split`; "drop" may leave nothing, which is an error."""
    if split == "always":
        return st.just({"longer": "error", "documents": None, "size": 3})
    pieces = {"longer": st.just("split"), "documents": st.none(), "size": st.integers(2, 5)}
    cut = {
        "longer": st.just("truncate"),
        "truncation_side": st.sampled_from(["right", "left"]),
        "documents": small,
    }
    by_field = {
        "size": st.fixed_dictionaries({"text": st.integers(2, 9), "other": st.integers(2, 9)}),
        "per_document": st.sampled_from([None, ["label"]]),
    }
    return st.one_of(
        st.fixed_dictionaries(pieces),
        st.fixed_dictionaries({**cut, "size": st.integers(2, 9)}),
        st.fixed_dictionaries({**cut, **by_field}),
    )


def fields_of(reader: Any) -> Any:
    """Dicts of two lists of numbers and a label, one for each sample."""
    return jreader.map_readers(fields_of_sample, reader)


def fields_of_sample(sample: Any) -> dict[str, Any]:
    label = number(sample)
    return {"text": document_of(sample), "other": [label % 50] * (label % 5), "label": label % 7}


fields_recipes = st.builds(
    lambda lengths: Recipe(documents_with_fields, {"lengths": lengths}),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=14),
)
moved_ragged_recipes = st.recursive(
    ragged_recipes,
    lambda below: st.one_of(
        *[
            op_recipes(op, below)
            for op in (jreader.chain, jreader.skip, jreader.shard, jreader.shuffle, jreader.epochs)
        ]
    ),
    max_leaves=3,
)


@st.composite
def recipes(draw: st.DrawFn, depth: int = 4) -> Recipe:
    """Recipes of plans up to `depth` ops high.

    Composite, because its description is short: hypothesis would spell out the whole tree.
    """
    return draw(choices(depth))


@cache
def choices(depth: int) -> st.SearchStrategy[Recipe]:
    """What may be on top of a plan of that height."""
    if depth == 0:
        recorded = [clip_recipes, film_recipes][: 1 + bool(find_spec("av"))]  # PyAV is an extra
        files = st.one_of(line_recipes, *recorded)
        return st.one_of(leaf_recipes, array_recipes, block_recipes, files, sampler_recipes)
    below = recipes(depth=depth - 1)
    return st.one_of(below, *[op_recipes(op, below) for op in OPS])
