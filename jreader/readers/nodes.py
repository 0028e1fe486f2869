"""`Reader`, the contract, and `Node`, the class that every op extends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field
from functools import cached_property, partial
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from jreader.errors import place_of_caller
from jreader.hints import check_keywords
from jreader.readers.declarations import (
    cached_by_class,
    convert_fields,
    declared,
    declared_names,
    names_by,
)
from jreader.readers.messages import described
from jreader.readers.overrides import op_stands_for
from jreader.readers.passes import Pass, Position

if TYPE_CHECKING:
    from jreader.readers.planes import Plane
    from jreader.readers.seeds import Draws

T = TypeVar("T")
K = TypeVar("K")

Reader: TypeAlias = Callable[[], Iterable[T]]
"""A function that can be called without arguments and iterated: each call begins one pass."""


class Node(Generic[T]):
    """An op: a frozen dataclass that is itself a reader.

    A new op extends it, declares its arguments as fields, and defines `start(at)`. It defines
    `length()` too if the number of samples is known, and `plane()` if it only reorders or selects
    samples. Epochs and draws reach the readers in its fields, which may be in tuples.

    >>> from jreader.readers import op, start
    >>> @op
    ... class doubled(Node[T]):
    ...     reader: Reader[T]
    ...     def start(self, at):
    ...         return start(self.reader, at).mapped(lambda item: 2 * item)
    >>> list(doubled(lambda: "abc")())
    ['aa', 'bb', 'cc']
    """

    pinned: bool = False
    """True if epochs and draws stop here: its samples stay the same, pass after pass."""
    from_reader: ClassVar[Literal["", "all", "some", "each"]] = ""
    """How its samples relate to those of its field `reader`: "all" or "some" of them, unchanged;
    "each", if it makes one from each; "" otherwise."""
    unit: ClassVar[str] = "samples"
    """What `length` counts."""
    in_cursor: ClassVar[Literal["always", "in place", "counted", "never"]] = "always"
    """When a cursor names the op. "never": it makes one sample from each of its reader,
    at the same position. "counted": only if an op above counts its samples. "in place": always, but
    its samples keep the indices that they have in its reader."""
    moves: Literal["", "rows", "keys", "samples"] = ""
    """How it commutes with other ops (`mapped_rows.py`): "rows", if it reorders or selects
    samples by index alone; "samples", if it maps each by itself, or hands it on; "keys", if it puts
    a key beside each."""
    shown_call: ClassVar[str] = ""
    """The call as errors show it, if its fields do not say it."""
    made_at: str

    # An editor shows the docstring of `__new__` or `__init__` for a call, if there is one, instead
    # of that of the op: so they have none (tests/test_hovering.py).
    def __new__(cls, /, *_args: Any, **kwargs: Any) -> Self:  # noqa: D102  # an editor would show it
        if kwargs:
            check_keywords(cls.__name__, cls.__init__, kwargs)
        self = super().__new__(cls)
        vars(self)["made_at"] = place_of_caller()  # errors name the user's line
        return self

    def __post_init__(self) -> None:
        """Check and convert the arguments (`declarations`)."""
        convert_fields(self)
        vars(self).update(self.check_arguments())
        vars(self).pop("input_readers", None)  # cached before a field changed

    def check_arguments(self) -> Mapping[str, Any]:
        """Raise if arguments do not fit each other; return the fields that change.

        Each argument has been checked by itself.
        """
        return {}

    def __call__(self) -> Iterator[T]:
        """Begin a pass and return its items."""
        from jreader.readers.starting import items_of  # noqa: PLC0415  # starting imports this module

        return items_of(self)

    def __bool__(self) -> bool:
        """Always true: `__len__` alone would make an empty reader false."""
        return True

    def __len__(self) -> int:
        """Return the number of samples in a pass, if it is known."""
        known = self.length()
        if known is None:
            raise TypeError(
                f"the length of {self!r} is not known before it is read. To train for a number of "
                "steps, type loader.steps(n); to count the samples, sum(1 for _ in pipeline)."
            )
        return known

    def start(self, at: Position) -> Pass[T]:
        """Begin a pass at a position, or at the beginning if `at` is None; called by `start`."""
        raise NotImplementedError(f"{type(self).__name__} must define start(self, at)")

    def length(self) -> int | None:
        """Return the number of samples in a pass; None if it is unknown or endless.

        By default, ops that hand on all samples of `reader`, or make one from each, have its
        length.
        """
        return length(vars(self)["reader"]) if self.from_reader in ("all", "each") else None

    def may_be_endless(self) -> bool | Callable[[list[bool]], bool]:
        """Return whether a pass may never end; or a function of the same for its readers."""
        return any

    def plane(self) -> Plane | None:
        """Return the index plane of an op that only reorders or selects samples; else None."""
        return None

    def lookup(self) -> Callable[[int], T] | None:
        """Return a function that finds a sample by index, if its readers have one; else None."""
        return None

    def over_rows(self, rows: Reader[Any]) -> Node[Any] | None:
        """Return the op over other, indexed rows, if it moves rows or keys; else None."""
        return with_reader(self, rows) if self.moves == "rows" else None

    def beside_key(self) -> Node[Any]:
        """Return the op over samples with keys beside them, if it moves samples."""
        return self

    def lazily(self) -> Node[Any] | None:
        """Return an op with the same samples and positions, or None if it has no lazy form.

        Its samples compute their fields on access (`made_rows.py`).
        """
        return None

    def resolved(self, draws: Draws) -> Mapping[str, Any]:
        """Return the fields that a pass fills with numbers it draws, such as a missing seed."""
        missing = "seed" in names_by(type(self)) and getattr(self, "seed", 0) is None
        return {"seed": draws.seed()} if missing else {}

    @cached_property
    def input_readers(self) -> tuple[Reader[Any], ...]:
        """The readers below: all ops in its fields, and the values of `reader` and `readers`."""
        found: list[Reader[Any]] = []
        for name in names_by(type(self)):
            value = getattr(self, name, ())  # a subclass with its own `__init__` may set none
            if name in ("reader", "readers"):
                found += value if isinstance(value, tuple) else (value,)
            elif isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple):
                found += [part for part in value if isinstance(part, Node)]
        return tuple(found)

    def changed(self, new: Mapping[str, Any]) -> Self:
        """Return a copy with other values of some fields; the op itself if none differs.

        Not `dataclasses.replace`: it calls `__init__` by keyword, which `chain(*readers)` cannot
        take.
        """
        for name, value in new.items():
            if getattr(self, name) is not value:
                break
        else:
            return self
        copy = object.__new__(type(self))
        vars(copy).update(self.__getstate__(), **new)
        return copy

    @property
    def lazy_length(self) -> bool:
        """True if its length is unknown until files are read."""
        return False

    @property
    def stores(self) -> bool:
        """True if it is streamed while its folder is incomplete, then indexed (`growing.py`)."""
        return False

    def wrapped(self) -> Reader[T] | None:
        """Return the reader inside, if it only adds methods to it, like a pipeline; else None."""
        return None

    def layout(self) -> str:
        """Return a cursor line for the layout of the data, if the order depends on it; else ""."""
        return ""

    def cursor_extra(self) -> str:
        """Return text that a cursor adds after the arguments of the op; else ""."""
        return ""

    def remote_sizes(self) -> list[str]:
        """Return the names and sizes of its files on other machines, as a cursor stores them."""
        return []

    def local_sizes(self) -> Sequence[int] | None:
        """Return the sizes of its files, 0 for those on other machines; None if unknown."""
        return None

    def file_paths(self) -> Sequence[str]:
        """Return the files that its samples are read from; none if it reads no files itself."""
        return ()

    def revision(self) -> str:
        """Return the name and version that the publisher gives the data; else ""."""
        return ""

    def batches(self, size: int, at: Position) -> Pass[Sequence[T]] | None:
        """Return a pass over runs of `size` samples, if cheaper than one by one; else None."""
        plane = plane_of(self)
        return None if plane is None else plane.batches(size, at)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the arguments, but not what a pass has cached, such as open files."""
        if "__dataclass_fields__" not in vars(type(self)):  # not a dataclass: its attributes count
            return {name: value for name, value in vars(self).items() if not _gathered(self, name)}
        kept = (*names_by(type(self)), "made_at")
        return {name: value for name, value in vars(self).items() if name in kept}

    def __repr__(self) -> str:
        """Return the plan as it was written."""
        return f"{type(self).__name__}({', '.join(self.written())})"

    def _repr_html_(self) -> str:
        """Return the plan as a notebook shows it, without reading anything."""
        from jreader.readers.plan_lines import lines_of, table  # noqa: PLC0415  # plan_lines imports this module

        return table(lines_of(self))

    def notes(self) -> tuple[str, ...]:
        """Return notes on the op for a table of the plan, besides its length."""
        return ()

    def written(self, *but: object) -> Iterator[str]:
        """Yield the arguments as in a call, except for some: functions unnamed, others by name."""
        left_out = [*map(id, but)]
        for field in declared(self):
            if not hasattr(self, field.name):
                continue
            value = getattr(self, field.name)
            parts = value if isinstance(value, tuple) and all(map(callable, value)) else (value,)
            if all(map(callable, parts)):
                yield from map(described, without_ids(parts, left_out))
            elif field.init and not _is_default(field, value):
                yield f"{field.name}={described(value)}"


def without_ids(parts: Iterable[T], left_out: list[int]) -> Iterator[T]:
    """Yield the parts without those of these ids; an id that is listed twice drops two parts."""
    for part in parts:
        if id(part) in left_out:
            left_out.remove(id(part))
        else:
            yield part


def field_names(node: Node[Any]) -> tuple[str, ...]:
    """Return the names of the set fields: a subclass with its own `__init__` may set none."""
    names = names_by(type(node))
    if all(map(hasattr, repeat(node), names)):
        return names
    return tuple(name for name in names if hasattr(node, name))


def _gathered(node: Node[Any], name: str) -> bool:
    """Return whether a pass cached an attribute, so that the user did not set it."""
    return isinstance(getattr(type(node), name, None), cached_property)


def arguments(node: Node[Any]) -> list[tuple[str, Any]]:
    """Return the fields that the user of an op gives, and their values."""
    names = tuple(filter(partial(hasattr, node), names_by(type(node), given=True)))
    return list(zip(names, map(getattr, repeat(node), names), strict=True))


def field_value(node: Node[Any], name: str, default: Any = None) -> Any:
    """Return the value of a field, such as the seed; ignores attributes that are not fields."""
    return getattr(node, name, default) if name in declared_names(node) else default


def _is_default(field: Field[Any], value: object) -> bool:
    if isinstance(value, str):  # an unpickled one is another object
        return value == field.default
    return field.default is not MISSING and value is field.default


@cached_by_class
def overridden_pass(kind: type) -> Literal["", "__iter__", "__call__"]:
    """Return the method by which a subclass overrides the pass of an op without `start`, or ""."""
    if not issubclass(kind, Node) or op_stands_for(kind, "start", "__call__", "__iter__"):
        return ""
    return "__iter__" if op_stands_for(kind, "__iter__", "__call__") else "__call__"


def with_reader(node: Node[Any], reader: Reader[Any]) -> Node[Any]:
    """Return a copy of an op with one reader, over another reader."""
    (before,) = node.input_readers
    for name in field_names(node):
        if (value := getattr(node, name)) is before:
            return node.changed({name: reader})
        if isinstance(value, tuple) and value and value[0] is before:
            return node.changed({name: (reader,)})
    raise TypeError(f"{node!r} has no field that holds its reader")


@cached_by_class
def declares(kind: type, name: str) -> bool:
    """Return whether an attribute or method of ops holds: no subclass overrides only the pass."""
    return op_stands_for(kind, name, "start", "__call__", "__iter__")


def plane_of(reader: Reader[Any]) -> Plane | None:
    """Return the plane of a reader, as `planes.indexed` returns it; else None."""
    if isinstance(reader, Node) and declares(type(reader), "plane"):
        return reader.plane()
    return None


def children(node: Node[Any]) -> Iterator[Node[Any]]:
    """Return the ops that an op reads, in the order of its arguments, without plain functions."""
    return (part for part in node.input_readers if isinstance(part, Node))


def ops_of(reader: Reader[Any], *, pinned: bool = True, most: int = sys.maxsize) -> list[Node[Any]]:
    """Return the ops of a plan, from its last one down to its sources.

    It does not recurse, and neither may other walks of a whole plan: a plan may have more ops than
    Python's recursion limit.

    >>> from jreader import batch, shuffle
    >>> [type(op).__name__ for op in ops_of(batch(shuffle(lambda: "abc", 3), 2))]
    ['batch', 'shuffle']

    Args:
        reader: Any reader.
        pinned: Whether to include ops below those that epochs and draws do not pass.
        most: The number of ops to stop at.
    """
    found: list[Node[Any]] = []
    left = [reader]
    while left and len(found) < most:
        op = left.pop()
        if isinstance(op, Node):
            found.append(op)
            if pinned or not op.pinned:
                left += reversed(op.input_readers)
    return found


def sources_first(top: K, below: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Return `top` and all that lies below, each after what lies below it, without recursion.

    >>> list(sources_first(7, lambda n: [n // 2 - 1, n // 2] if n > 2 else []))
    [2, 0, 1, 3, 7]
    """
    found, left = [], [top]
    while left:
        found.append(left.pop())
        left += below(found[-1])
    return reversed(found)


def trampoline(walk: Callable[[Any], Generator[Iterable[Any], list[T], T]], top: Any) -> T:
    """Run a recursive walk without recursion: it yields arguments, and is sent their results.

    >>> def total(number):
    ...     below = yield [number - 1] if number else []
    ...     return sum(below, start=number)
    >>> trampoline(total, 4), trampoline(total, 100_000)
    (10, 5000050000)
    """
    nothing: Iterator[Any] = iter(())
    results: Any = None  # a walk begins when it is sent None
    begun = [(walk(top), nothing, results)]
    while True:
        current, arguments, results = begun[-1]
        for argument in arguments:
            begun.append((walk(argument), nothing, None))
            break
        else:
            try:
                begun[-1] = current, iter(current.send(results)), []
            except StopIteration as ended:
                begun.pop()
                if not begun:
                    result: T = ended.value
                    return result
                begun[-1][2].append(ended.value)


def unwrapped(reader: Reader[T]) -> Reader[T]:
    """Return the reader inside pipelines, which only add methods to it."""
    while isinstance(reader, Node) and declares(type(reader), "wrapped"):
        inner: Reader[T] | None = reader.wrapped()
        if inner is None:
            break
        reader = inner
    return reader


def readers_below(reader: Reader[Any]) -> Sequence[Reader[Any]]:
    """Return the readers that a reader reads; none if it is a plain function."""
    return reader.input_readers if isinstance(reader, Node) else ()


def lazy_length(reader: Reader[Any]) -> bool:
    """Return whether the length of a reader is unknown until files are read."""
    return any(map(attrgetter("lazy_length"), ops_of(reader)))


def origin(reader: Reader[Any], *how: str) -> Reader[Any]:
    """Return the reader below ops that only hand on its samples, as `Node.from_reader` says.

    >>> from jreader import batch, firstn
    >>> origin(firstn(batch(lambda: "abc", 2), 1), "all", "some")
    batch(<lambda>, batch_size=2)
    """
    while isinstance(reader, Node) and reader.from_reader in how:
        if not declares(type(reader), "from_reader"):
            break
        reader = field_value(reader, "reader")
    return reader


def unit_of(reader: Reader[Any]) -> str:
    """Return the unit of a reader's length: "samples", "batches", or the "rows" of `pack`."""
    made = origin(reader, "all", "some")
    return made.unit if isinstance(made, Node) else "samples"


def below_keys(reader: Reader[Any]) -> Reader[Any]:
    """Return the reader of the samples that an op puts keys beside; any other reader unchanged."""
    keyed = isinstance(reader, Node) and reader.moves == "keys"
    return readers_below(reader)[0] if keyed else reader


def length(reader: Reader[Any]) -> int | None:
    """Return the number of samples of a pass; None if it is not known before it is read.

    >>> from jreader import filter, firstn
    >>> length(firstn(range(10).__iter__, 3)) is None, length(lambda: "abc") is None
    (True, True)
    """
    if isinstance(reader, Node) and op_stands_for(type(reader), "length", "__len__"):
        return reader.length()
    if isinstance(reader, type):  # its `__len__` is that of its instances
        return None
    try:
        return len(reader)  # type: ignore[arg-type]  # or it raises
    except (TypeError, NotImplementedError, RuntimeError, StopIteration):  # it has none
        return None


def may_not_end(reader: Reader[Any]) -> bool:
    """Return whether a pass may never end: no reader below has a length, and no op cuts it off.

    >>> from jreader import firstn
    >>> may_not_end(lambda: "abc"), may_not_end(firstn(lambda: "abc", 2)), may_not_end(range(3))
    (True, False, False)
    """
    return trampoline(_may_not_end, reader)


def _may_not_end(reader: Reader[Any]) -> Generator[Sequence[Reader[Any]], list[bool], bool]:
    if not isinstance(reader, Node) or not reader.input_readers:
        return length(reader) is None
    rule = reader.may_be_endless()
    return rule if isinstance(rule, bool) else rule((yield reader.input_readers))
