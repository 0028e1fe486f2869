"""The contract, and the one class that every op extends."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    Self,
    TypeAlias,
    TypeVar,
)

from tqdm import tqdm

from jreader.errors import NotResumable, noted, place_of_caller, warn
from jreader.readers.messages import Refusal, described
from jreader.readers.openings import epoch_of_caller, opened
from jreader.readers.overrides import stands_for
from jreader.readers.passes import Pass, Position, counted
from jreader.readers.pictures import Line, table, under

if TYPE_CHECKING:
    from jreader.readers.planes import Plane

T = TypeVar("T")
S = TypeVar("S")

Reader: TypeAlias = Callable[[], Iterable[T]]
"""A function that can be called without arguments and iterated: each call begins one pass."""


class Node(Generic[T]):
    """An op: a frozen dataclass that is itself a reader.

    A new op extends it, declares its arguments as fields, checks them in `__post_init__`, and
    defines `start(at)`; `length()` too where the number of samples is known, and `plane()` where it
    only moves samples. Fields that hold readers (or tuples of them) are found by themselves, so
    epochs and draws reach them.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, eq=False, repr=False)
    ... class doubled(Node[T]):
    ...     reader: Reader[T]
    ...     def start(self, at):
    ...         return start(self.reader, at).mapped(lambda item: 2 * item)
    >>> list(doubled(lambda: "abc")())
    ['aa', 'bb', 'cc']
    """

    pinned: ClassVar[bool] = False
    """Whether epochs stop here, and draws: what lies below keeps those of its field `draw`."""
    from_reader: ClassVar[Literal["", "all", "some", "each"]] = ""
    """Whether its samples are those of its field `reader`, as they are: all of them, or some; or
    "each", if it makes one of each."""
    unit: ClassVar[str] = "samples"
    """What it is that `length` counts."""
    in_cursor: ClassVar[Literal["always", "counted", "never"]] = "always"
    """Whether a cursor names it: "never", if it is one for one, at the place of its reader;
    "counted", if that is so and only its size is its own, and no op above counts what it gives."""
    cursor_ignores: ClassVar[tuple[str, ...]] = ()
    """Its fields that neither order nor count samples: a cursor goes on with others."""
    unread: bool = False  # whether to ask for its length would read a file
    made_at: str

    def __new__(cls, /, *_args: Any, **_kwargs: Any) -> Self:
        """Remembers the user's line, so that an error can name it; no op has to think of it."""
        self = super().__new__(cls)
        object.__setattr__(self, "made_at", place_of_caller())
        return self

    def __call__(self) -> Iterator[T]:
        """Begins a pass and gives its items."""
        own = own_pass(self)
        if own is None or own.__name__ == "__call__":  # asked for by `super()`
            return native(self)
        return iter(own())

    def __bool__(self) -> bool:
        """A reader is true, also an empty one: `__len__` alone would make it false."""
        return True

    def __len__(self) -> int:
        """The number of samples of a pass, where it is known."""
        known = self.length()
        if known is None:
            raise TypeError(f"the length of {self!r} is not known before it is read")
        return known

    def start(self, at: Position) -> Pass[T]:
        """Begins a pass at a position (None: the beginning); called by `start`."""
        raise NotImplementedError(f"{type(self).__name__} must define start(self, at)")

    def length(self) -> int | None:
        """The number of samples of a pass; None where it is not known or has no end."""
        return None

    def plane(self) -> Plane | None:
        """Where its samples are, for an op that does not look into them (`planes`); else None."""
        return None

    def lookup(self) -> Callable[[int], T] | None:
        """What finds the sample of an index without a pass, where its readers can; or None."""
        return None

    def batches(self, size: int, at: Position) -> Pass[Sequence[T]] | None:
        """A pass in runs of `size` samples, where that is cheaper than one by one; else None."""
        plane = plane_of(self)
        return None if plane is None else plane.batches(size, at)

    def __getstate__(self) -> dict[str, Any]:
        """What the plan says travels; what a pass has gathered (a cache, open files) does not."""
        kept = {name: getattr(self, name) for name in _names(self)}
        if "__dataclass_fields__" not in vars(type(self)):  # it has attributes, not fields
            kept |= {name: value for name, value in vars(self).items() if _own(self, name)}
        return kept | {"made_at": self.made_at}

    def __repr__(self) -> str:
        """The plan as it was written."""
        return f"{type(self).__name__}({', '.join(self.written())})"

    def _repr_html_(self) -> str:
        """The plan as a notebook shows it; nothing is read for it."""
        return table(self.drawn())

    def drawn(self) -> list[Line]:
        """The plan op by op, in the order that samples pass through them."""
        ups = list(inputs(self))
        call = f"{type(self).__name__}({', '.join(self.written(*ups))})" if ups else repr(self)
        return under([drawn(up) for up in ups], Line(call, _known(self)))

    def written(self, *but: object) -> Iterator[str]:
        """The arguments as they were written, but for some: functions by place, others by name."""
        for field in _fields(self):
            value = getattr(self, field.name)
            parts = value if isinstance(value, tuple) and all(map(callable, value)) else (value,)
            if all(map(callable, parts)):
                left = (part for part in parts if not any(part is each for each in but))
                yield from map(described, left)
            elif field.init and not _is_default(field, value):
                yield f"{field.name}={described(value)}"


def _fields(node: Node[Any]) -> list[Field[Any]]:
    """Those that it has: a subclass with an `__init__` of its own may set none of them."""
    return [field for field in _declared(node) if hasattr(node, field.name)]


def _declared(node: Node[Any]) -> tuple[Field[Any], ...]:
    kind: Any = type(node)
    return _declared_by(kind)


@lru_cache(256)  # each pass asks for them, several times for each op
def _declared_by(kind: type) -> tuple[Field[Any], ...]:
    return fields(kind) if is_dataclass(kind) else ()


def _names(node: Node[Any]) -> list[str]:
    return [field.name for field in _fields(node)]


def _own(node: Node[Any], name: str) -> bool:
    """Whether an attribute is the user's, not what a pass has gathered."""
    return name != "shelf" and not isinstance(getattr(type(node), name, None), cached_property)


def arguments(node: Node[Any]) -> Iterator[tuple[str, Any]]:
    """The fields of an op that its user gives, and their values."""
    return ((field.name, getattr(node, field.name)) for field in _fields(node) if field.init)


def _is_default(field: Field[Any], value: object) -> bool:
    if isinstance(value, str):  # one that has travelled is another object
        return value == field.default
    return field.default is not MISSING and value is field.default


def start(reader: Reader[T], at: Position = None) -> Pass[T]:
    """A pass over `reader`, from the beginning or from a position of an earlier pass.

    A plain function keeps no place of its own: it is read again, from its beginning, up to there.

    >>> from jreader import shuffle
    >>> reader = shuffle(lambda: "abcdef", buf_size=3, seed=7)
    >>> first = start(reader)
    >>> head = [next(first.items), next(first.items)]
    >>> rest = start(reader, first.position())
    >>> head + list(rest.items) == list(reader())
    True

    Args:
        reader: Any reader.
        at: A position that `Pass.position` gave, also after JSON.

    Raises:
        NotResumable: The position lies in an op that hands samples over in order of arrival, or
            the reader is shorter than it was.
    """
    if isinstance(at, Refusal):
        raise NotResumable(at)
    return _begun(reader, at)


def native(reader: Node[T]) -> Iterator[T]:
    """The items of a pass by the `start` of an op, though a subclass overrides its `__iter__`.

    It is what that subclass gets of `super().__iter__()`.
    """
    if epoch_of_caller() and any(True for _ in _varying(reader)):
        warn(
            f"a plain function iterates {reader!r}, made at {reader.made_at}, by itself, so no "
            f"epoch reaches it: its shuffles and random maps do the same in every epoch (or, "
            f"without a seed, what no cursor finds again). Build on it instead of around it, as in "
            f".map(fn), .filter(fn) or .flat_map(fn); for one order that is meant, .cache() it."
        )
    return _begun(reader, None, inherited=True).items


def own_pass(reader: Reader[T]) -> Callable[[], Iterable[T]] | None:
    """The `__iter__` or `__call__` of a subclass that knows more than the `start` it inherits."""
    kind = type(reader)
    if not isinstance(reader, Node) or stands_for(kind, "start", "__call__", "__iter__"):
        return None
    name = "__iter__" if stands_for(kind, "__iter__", "__call__") else "__call__"
    own: Callable[[], Iterable[T]] = getattr(reader, name)
    return own


def declares(reader: Node[Any], name: str) -> bool:
    """Whether what a class says of itself by an attribute is still so: no pass was overridden."""
    return stands_for(type(reader), name, "start", "__call__", "__iter__")


def plane_of(reader: Reader[Any]) -> Plane | None:
    """The plane of a reader, as `planes.indexed` gives it."""
    return reader.plane() if isinstance(reader, Node) and declares(reader, "plane") else None


def lookup_of(reader: Reader[T]) -> Callable[[int], T] | None:
    """What finds the sample of an index; None where samples have to be read to be found.

    >>> from jreader import arrays, map_readers, shuffle
    >>> find = lookup_of(map_readers(float, shuffle(arrays([10, 20, 30]), seed=0)))
    >>> find(2), find(0), lookup_of(lambda: "abc")
    (10.0, 20.0, None)
    """
    plane = plane_of(reader)
    if plane is not None:
        return plane.nth
    return reader.lookup() if isinstance(reader, Node) and declares(reader, "lookup") else None


def in_batches(reader: Reader[T], size: int, at: Position) -> Pass[Sequence[T]] | None:
    """A pass in runs of `size` samples, where that is cheaper than one by one; else None."""
    if not isinstance(reader, Node):
        return None
    if declares(reader, "batches"):
        return reader.batches(size, at)
    return Node.batches(reader, size, at)


def _begun(reader: Reader[T], at: Position, *, inherited: bool = False) -> Pass[T]:
    if not isinstance(reader, Node):
        return _replayed(reader, at or 0)
    if waits(reader):
        drawn, inner = at or (_drawn(reader), None)
        for node, draw in zip(_pinned(reader), drawn[1:] if _several(drawn) else (), strict=False):
            node.keep(draw)
        up = _begun(seeded(reader, drawn), inner, inherited=inherited)
        return Pass(up.items, lambda: (drawn, up.position()), up.close)
    own = None if inherited else own_pass(reader)
    if own is not None:
        return _replayed(own, at or 0)
    plane = plane_of(reader)
    try:
        return reader.start(at) if plane is None else plane.samples(at)
    except StopIteration as stopped:
        raise RuntimeError(
            f"{reader!r} raised StopIteration when a pass over it was begun"
        ) from stopped
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration) and not hasattr(error, "__notes__"):
            noted(error, f"raised in {reader!r}, made at {reader.made_at}")
        raise


def _replayed(reader: Reader[T], done: int) -> Pass[T]:
    """A pass over a plain function, which has to be read again up to the place."""
    if not isinstance(done, int):
        raise NotResumable(
            f"{done!r} is no place in {described(reader)}, whose samples are counted: give a "
            f"position of a pass over it, or start at the beginning (at=None)."
        )
    source, close = opened(reader)
    owner = reader.__self__ if getattr(reader, "__name__", "") == "__iter__" else reader  # type: ignore[attr-defined]  # a method's
    said = length(owner)
    parts: list[Iterator[T]] = [_skipped(reader, source, done)] if done else []
    parts.append(source)
    if said is not None:
        parts.append(_judged(owner, said, place_of_caller(), lambda: count()))  # noqa: PLW0108  # below
    items, count = counted(chain(*parts) if len(parts) > 1 else source, done)
    return Pass(items, count, close)


def _judged(
    reader: Reader[Any], said: int, place: str, count: Callable[[], int]
) -> Iterator[NoReturn]:
    """Comes after the last sample, and tells of a length that is not their number."""
    if count() != said:
        warn(
            f"{described(reader)} says that it has {said} samples, and gave {count()} in this "
            f"pass: len(loader), shuffles of the whole and the steps of an epoch follow what it "
            f"says. Mend its __len__, or leave it out.",
            place,
        )
    yield from ()


def _skipped(reader: Reader[T], source: Iterator[T], done: int) -> Iterator[NoReturn]:
    items, count = counted(islice(source, done))
    for _ in tqdm(items, "reading up to the position", done, leave=False, delay=1):
        pass
    if count() < done:
        raise NotResumable(
            f"cannot go on after sample {done} of {described(reader)}: it gave {count()} samples. "
            f"Start at the beginning (at=None), or give it the data it had."
        )
    yield from ()


def rewritten(
    reader: Reader[T], change: Callable[[Node[Any]], Mapping[str, Any] | Node[Any]]
) -> Reader[T]:
    """The same plan with some fields changed, or whole ops; unchanged parts are shared."""
    if not isinstance(reader, Node):
        return reader
    changed = change(reader)
    if isinstance(changed, Node):
        return changed
    new = dict(changed)
    if reader.pinned:
        return _with_fields(reader, {name: new[name] for name in new if name == "draw"})
    for name, value in [(name, getattr(reader, name)) for name in _names(reader)]:
        if isinstance(value, Node):
            new[name] = rewritten(value, change)
        elif isinstance(value, tuple) and any(isinstance(part, Node) for part in value):
            new[name] = tuple(rewritten(part, change) for part in value)
            if all(map(lambda a, b: a is b, new[name], value)):
                new[name] = value
    return _with_fields(reader, new)


def _with_fields(node: Node[T], new: Mapping[str, Any]) -> Node[T]:
    """A copy of `node` with these fields, or `node` where nothing differs.

    Not `dataclasses.replace`: it calls `__init__` by keyword, which `chain(*readers)` cannot take.
    """
    if all(getattr(node, name) is value for name, value in new.items()):
        return node
    copy = object.__new__(type(node))
    shared = {"shelf": vars(node)["shelf"]} if "shelf" in vars(node) else {}
    for name, value in {**node.__getstate__(), **shared, **new}.items():
        object.__setattr__(copy, name, value)
    return copy


def children(node: Node[Any]) -> Iterator[Node[Any]]:
    """The ops that an op reads, in the order of its arguments; plain functions are left out."""
    return (part for part in inputs(node) if isinstance(part, Node))


def seeded_below(node: Node[Any]) -> int:
    """An op's place in its plan: the number of seeded ops from it down to its sources.

    Counted from below, so that an op put on top of a plan does not change the order inside it.
    """
    below = max(map(seeded_below, children(node)), default=0)
    return below + hasattr(node, "seed")


def inputs(node: Node[Any]) -> Iterator[Reader[Any]]:
    """What an op reads: the ops in its fields, and the functions in those named for readers."""
    for name in _names(node):
        value = getattr(node, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Node) or name in ("reader", "readers"):
                yield part


def drawn(reader: Reader[Any]) -> list[Line]:
    """What a notebook shows of any reader."""
    if isinstance(reader, Node):
        return reader.drawn()
    return [Line(described(reader), _known(reader))]


def _known(reader: Reader[Any]) -> tuple[str, ...]:
    """How many samples there are, if that is known without reading, and how they come."""
    number = None if unread(reader) else length(reader)
    unit = getattr(origin(reader, "all", "some"), "unit", "samples")
    return "length unknown" if number is None else f"{number:,} {unit}", "streamed"


def unread(reader: Reader[Any]) -> bool:
    """Whether to ask for its length would read a file."""
    return isinstance(reader, Node) and (reader.unread or any(map(unread, children(reader))))


def origin(reader: Reader[Any], *how: str) -> Reader[Any]:
    """Where samples come from that ops only hand on, as `Node.from_reader` says.

    >>> from jreader import batch, firstn
    >>> origin(firstn(batch(lambda: "abc", 2), 1), "all", "some")
    batch(<lambda>, batch_size=2)
    """
    while (
        isinstance(reader, Node) and reader.from_reader in how and declares(reader, "from_reader")
    ):
        (reader,) = (getattr(reader, name) for name in _names(reader) if name == "reader")
    return reader


def _unseeded(node: Node[Any]) -> Iterator[Node[Any]]:
    """The ops of a pass that wait for a draw; a pinned op waits for all below it."""
    if node.pinned:
        if getattr(node, "draw", 0) is None and any(map(waits, children(node))):
            yield node
        return
    if drawn_by(node, "seed", 0) is None:
        yield node
    for child in children(node):
        yield from _unseeded(child)


def drawn_by(node: Node[Any], name: str, default: Any = None) -> Any:
    """The seed, or the epoch, of an op; an attribute that is no field is its user's."""
    own = any(field.name == name for field in _declared(node))
    return getattr(node, name, default) if own else default


def _varying(node: Node[Any]) -> Iterator[Node[Any]]:
    """The random ops that epochs would vary, and that are as they were written."""
    if node.pinned:
        return
    if "seed" in _names(node) and drawn_by(node, "epoch", 1) == 0:
        yield node
    for child in children(node):
        yield from _varying(child)


def waits(reader: Reader[Any]) -> bool:
    """Whether each pass draws anew: its position is then (what was drawn, position)."""
    return isinstance(reader, Node) and any(True for _ in _unseeded(reader))


def _pinned(reader: Reader[Any]) -> list[Any]:
    """The pinned ops of a pass that wait for a draw, each as often as it is read."""
    waiting = _unseeded(reader) if isinstance(reader, Node) else ()
    return [node for node in waiting if node.pinned]


def _drawn(reader: Reader[Any]) -> Position:
    """A draw for a pass; with pinned ops, beside those that they keep, drawn now if need be."""
    draw, pinned = secrets.randbits(52), _pinned(reader)
    return (draw, *(node.keep(secrets.randbits(52)) for node in pinned)) if pinned else draw


def _several(drawn: Position) -> bool:
    return isinstance(drawn, (tuple, list))


def seeded(reader: Reader[T], drawn: Position) -> Reader[T]:
    """The plan with every `seed=None` resolved, each differently, by what `start` drew."""
    first, *others = drawn if _several(drawn) else [drawn]
    turn, kept = iter(range(sys.maxsize)), iter(others)

    def resolved(node: Node[Any]) -> dict[str, Any]:
        if node.pinned:
            waiting = any(True for _ in _unseeded(node))
            return {"draw": next(kept, first)} if waiting else {}
        return {"seed": first + (next(turn) << 64)} if drawn_by(node, "seed", 0) is None else {}

    return rewritten(reader, resolved)


def length(reader: Reader[Any]) -> int | None:
    """The number of samples of a pass; None where it is not known.

    >>> from jreader import filter, firstn
    >>> length(firstn(range(10).__iter__, 3)) is None, length(lambda: "abc") is None
    (True, True)
    """
    if isinstance(reader, Node) and stands_for(type(reader), "length", "__len__"):
        return reader.length()
    if isinstance(reader, type):  # that of its instances
        return None
    try:
        return len(reader)  # type: ignore[arg-type]  # or it raises
    except (TypeError, NotImplementedError, RuntimeError):  # Paddle's way to say no
        return None
