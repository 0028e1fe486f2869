"""Hashes of values: equal in every process and on every host, and cheap.

What a function does follows from its code, its defaults, its closure, and the globals that it
reads: other functions, arrays, objects. All of it is hashed; functions and classes of libraries by
name. Of long arrays and containers only some parts are hashed (`excerpts`), and of large values
only so many parts, so that a hash takes a millisecond or two. Objects without readable parts (a
lock, a file, an object made in C) are hashed as their type; state that some of them hold all the
same (`hidden_state`) has its own hash. No hash depends on an address, or on the order of a set.
"""

from __future__ import annotations

import array
import functools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import fields
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from jreader.errors import assigned
from jreader.readers.bytecode import attributes_read, globals_read, instructions, names_in
from jreader.readers.declarations import cached_by_class
from jreader.readers.excerpts import SAMPLED, some_bytes, some_rows, some_text, spread
from jreader.readers.hidden_state import hidden_state
from jreader.readers.ragged import Ragged
from jreader.readers.streams_with_state import kinds_of_grain

_MAX_VALUES = 2000  # values per hash
_MAX_DEPTH = 64  # nested values: Python's own limit depends on the caller's depth
_MAX_TEXT = 1 << 16  # characters of a text that is hashed whole
_MAX_SET = 100_000  # items of a set
_MAX_DEVICE_ARRAY = 1 << 20  # bytes of an array on a device

_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(...))
_CONTAINERS = (dict, list, tuple, set, frozenset)  # of no module, without hidden state
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", "<frozen")
_STANDARD = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120  # a prefix of paths
_ANY_ERROR = suppress(Exception)  # stateless, so all walks share it
_OPTIONS = ("argparse.Namespace", "types.SimpleNamespace")
_OLD_MODULES = {  # modules renamed since cursors of this format were first written
    "jreader._worker.worker_info": "jreader._worker.rooms",
    "jreader.batches.plain_batches": "jreader.batches",
    "jreader.batches.stacked": "jreader.batches",
    "jreader.batches.windows_and_groups": "jreader.batches.sliding_windows",
    "jreader.datasets.batch_samplers": "jreader.datasets.batchsamplers",
    "jreader.datasets.combinators": "jreader.datasets.combined",
    "jreader.datasets.dataset": "jreader.datasets.mapped",
    "jreader.loaders.device_programs.as_function": "jreader.loaders.functions",
    "jreader.paddle.py_reader": "jreader.loaders.pyreaders",
    "jreader.paddle.training": "jreader.loaders.training",
    "jreader.readers.starting": "jreader.readers.nodes",
    "jreader.pipelines.pipeline": "jreader.pipelines",
    "jreader.sources.array_files": "jreader.sources.files",
    "jreader.sources.json_lines": "jreader.sources.lines",
    "jreader.sources.random_access": "jreader.sources.items",
    "jreader.sources.text_files": "jreader.sources.lines",
    "jreader.transforms.sample_rng": "jreader.transforms.keys",
    "jreader.workers.parallel_map": "jreader.workers.maps",
    "jreader.workers.processes.reader_processes": "jreader.workers.processes.reading",
}
_RENAMED_OPS = {"jreader.batches.windows_and_groups.sliding_window": "window"}  # the older name
_GRAIN_NOTES = ("has_child", "_transform_name")  # what Grain adds to its data as it reads them
_SKIPPED = {"__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__firstlineno__"}


_written = json.JSONEncoder().encode  # as `json.dumps`, with one call less


def dtype_text(dtype: Any) -> str:
    """Return the text of a dtype, of NumPy or jax."""
    # equal structured ones may be laid out as in C, or not; those of others may not be hashable
    plain = isinstance(dtype, np.dtype) and not dtype.names
    return _plain_dtype_text(dtype) if plain else str(dtype)


@functools.lru_cache(256)
def _plain_dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which costs NumPy seven calls."""
    return str(dtype)


def text_hash(*parts: object) -> str:
    """Return a short hash of values that JSON can write.

    >>> text_hash("a", 1) == text_hash("a", 1), len(text_hash())
    (True, 16)
    """
    return blake2b(_written(parts).encode(), digest_size=8).hexdigest()


def identity(value: Any, named: str = "", hidden: list[str] | None = None) -> str:
    """Return a short hash of a value and its parts.

    >>> identity({"b", "a"}) == identity({"a", "b"}), identity([1, 2]) == identity([2, 1])
    (True, False)
    >>> added = lambda k: lambda n: n + k
    >>> identity(added(1)) == identity(added(1)), identity(added(1)) == identity(added(2))
    (True, False)

    Args:
        value: Any value.
        named: The name of the value in lines of `hidden`.
        hidden: Gets a line for what the hash leaves out (`hidden_state`), if there is anything.
    """
    walk = _Walk()
    made = text_hash(walk.of(value))
    if hidden is not None and walk.hidden:
        hidden.append(f"in {named} {text_hash(*walk.hidden)}")
    return made


def modules_in(values: Iterable[Any]) -> set[str]:
    """Return the modules of the functions, classes and objects that hashes of values look at.

    >>> "numpy.linalg" in modules_in([functools.partial(np.linalg.norm, ord=1)])
    True
    """
    found = set[str]()
    for value in values:  # one walk each, as a walk looks at a limited number of parts
        walk = _Walk()
        walk.of(value)
        found |= walk.modules
    return found


def hashed(function: Callable[..., Any], hidden: list[str] | None = None) -> str:
    """Return the name of a function, or of a callable's class, and its hash, as `identity`.

    >>> hashed(len).partition(" ")[0]
    'len'
    """
    named = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{named} {identity(function, named, hidden)}"


def files_hash(paths: Sequence[str]) -> str:
    """Return a hash of some bytes of files: a copy has the same, wherever it is."""
    return text_hash(some_bytes(paths))


class _Walk:
    """A walk over values that visits each once."""

    def __init__(self, left: int = _MAX_VALUES, depth: int = 0) -> None:
        self.left, self.depth = left, depth
        self.seen: dict[int, tuple[int, Any]] = {}  # keep the values too, or their ids are reused
        self.hidden: list[str] = []
        self.modules: set[str] = set()

    def of(self, value: Any) -> Any:
        """Return a form of a value that JSON can write."""
        if type(value) in _SCALARS:
            return _scalar(value)
        if id(value) in self.seen:
            return ["again", self.seen[id(value)][0]]
        self.seen[id(value)] = len(self.seen), value
        kind = _path_in_cursors(type(value))
        if len(self.seen) > self.left or self.depth >= _MAX_DEPTH:
            return ["more", kind]
        if type(value) not in _CONTAINERS:
            self._note(value)
        self.depth += 1
        try:
            return [kind, *self._parts(value)]
        except Exception:  # a user's attribute raised: hash only the class
            return [kind]
        finally:
            self.depth -= 1

    def _note(self, value: Any) -> None:
        """Record the module of a value, and the state that its parts do not show."""
        with _ANY_ERROR:  # a user's attribute raised
            is_module = isinstance(value, ModuleType)
            self.modules.add(value.__name__ if is_module else str(value.__module__))
        with _ANY_ERROR:  # a user's attribute raised
            if (held := hidden_state(value)) is not None:
                self.hidden.append(identity(held))

    def _parts(self, value: Any) -> Iterable[Any]:
        is_array = hasattr(value, "dtype") and hasattr(value, "shape")
        if is_array and not isinstance(value, (type, Enum, np.generic, Ragged)):
            return self._array(value)
        for kinds, parts in _BY_KIND:
            if isinstance(value, kinds):
                return parts(self, value)
        if callable(inner := getattr(value, "__wrapped__", None)):  # jitted, or cached
            return [self.of(inner)]
        return self._object(value)

    def of_partial(self, value: functools.partial[Any]) -> Iterator[Any]:
        keywords = sorted(value.keywords.items())
        yield [self.of(value.func), *map(self.of, value.args), *map(self.of, keywords)]

    def of_built_in(self, value: Any) -> Iterator[Any]:
        owner = value.__self__
        yield [value.__qualname__, None if isinstance(owner, ModuleType) else self.of(owner)]

    def of_sequence(self, parts: Sequence[Any]) -> list[Any]:
        return [len(parts), [self.of(parts[index]) for index in spread(len(parts), SAMPLED)]]

    def of_mapping(self, mapping: Any) -> list[Any]:
        """Return the items, but read only those that are hashed: others may be in files."""
        keys = list(mapping)
        some = [keys[index] for index in spread(len(keys), SAMPLED)]
        known = isinstance(mapping, dict)  # calling a user's own cache would change it
        find = functools.partial(dict.__getitem__, mapping) if known else mapping.__getitem__
        return [len(keys), [[self.of(key), self.of(find(key))] for key in some]]

    def of_set(self, parts: Collection[Any]) -> Iterator[Any]:
        """Yield their number, and the values, if they are simple or few."""
        yield len(parts)
        if len(parts) <= _MAX_SET and all(type(part) in _SCALARS for part in parts):
            yield text_hash(sorted(map(repr, parts)))
        elif len(parts) <= SAMPLED:
            # one walk each, since a set has no order; they share the remaining budget
            left = (self.left - len(self.seen)) // len(parts)
            walks = [_Walk(left, self.depth) for _ in parts]
            yield sorted(text_hash(walk.of(part)) for walk, part in zip(walks, parts, strict=True))
            self.hidden += sorted(each for walk in walks for each in walk.hidden)
            self.left -= sum(left - walk.left + len(walk.seen) for walk in walks)

    def _array(self, array: Any) -> list[Any]:
        """Return dtype, shape, and a hash of some rows; on a device, of all, if they are few."""
        kind = [dtype_text(array.dtype), list(array.shape)]
        if not isinstance(array, np.ndarray) and array.nbytes > _MAX_DEVICE_ARRAY:
            return kind
        host = np.asarray(array)
        some = some_rows(host[None] if not host.ndim else host)
        if some.dtype.hasobject or some.dtype.kind == "T":
            return [*kind, self.of(some.ravel().tolist())]
        if some.dtype.names:  # padding between fields may hold any bytes
            return [*kind, [self.of(some[name]) for name in some.dtype.names]]
        return [*kind, blake2b(np.ascontiguousarray(some).tobytes(), digest_size=8).hexdigest()]

    def of_function(self, function: FunctionType) -> Iterator[Any]:
        yield [_module_in_cursors(function), function.__qualname__]
        code, inner = function.__code__, getattr(function, "__wrapped__", None)
        if _of_library(code.co_filename) or function.__module__.startswith("jreader."):
            yield self.of(inner) if callable(inner) else self._closed_over(function)
            return
        yield list(instructions(code))
        yield self._closed_over(function)
        known = function.__globals__
        for name in globals_read(code):
            if name in known:
                value = known[name]
                yield [name, self._value_read(value, name, code), *self._attributes(value, code)]

    def _closed_over(self, function: FunctionType) -> list[Any]:
        code = function.__code__
        cells = [
            self._value_read(cell.cell_contents, name, code)
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
            if _is_cell_set(cell)
        ]
        named = sorted((function.__kwdefaults__ or {}).items())
        return [*map(self.of, function.__defaults__ or ()), *cells, *map(self.of, named)]

    def _value_read(self, value: Any, name: str, code: CodeType) -> Any:
        """Return a value that a function reads; of options, which vary by run, only those read."""
        names = attributes_read(code, name) if _path_in_cursors(type(value)) in _OPTIONS else None
        if names is None:
            return self.of(value)
        return [[each, self.of(getattr(value, each, None))] for each in sorted(names)]

    def _attributes(self, module: Any, code: CodeType) -> Iterator[Any]:
        """Yield what a function reads from a user's module."""
        if not isinstance(module, ModuleType):
            return
        self.modules.update(f"{module.__name__}.{name}" for name in names_in(code))
        if module.__name__.partition(".")[0] == "jreader":
            return
        if not _of_library(getattr(module, "__file__", None)):
            names = sorted(names_in(code) & set(vars(module)))
            yield [[name, self.of(vars(module)[name])] for name in names]

    def of_class(self, kind: type) -> Iterator[Any]:
        yield _path_in_cursors(kind)
        if _of_library(_file(kind)):
            return
        yield [self.of(base) for base in kind.__bases__]
        for name, part in sorted(vars(kind).items()):
            if isinstance(part, (staticmethod, classmethod, property)):
                part = getattr(part, "__func__", None) or part.fget  # type: ignore[union-attr]  # noqa: PLW2901  # the wrapped function
            if isinstance(part, FunctionType) or not name.startswith("__"):
                yield [name, self.of(part)]

    def _object(self, value: Any) -> Iterator[Any]:
        """Yield the class and the attributes; of a library's object, only public ones."""
        kind = type(value)
        if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
            shown = repr(value)
            yield "" if " at 0x" in shown else _scalar(shown)
            return
        library = _of_library(_file(kind))
        if not library:
            yield self.of(kind)
        of_grain = not {"MapDataset", "IterDataset"}.isdisjoint(kinds_of_grain(value))
        private, left_out = library and not of_grain, ("made_at", *_GRAIN_NOTES * of_grain)
        for name, part in sorted(_attributes_of(value).items()):
            made = isinstance(getattr(kind, name, None), functools.cached_property)
            if name not in left_out and not made and not (private and name.startswith("_")):
                yield [name, self.of(part)]


_BY_KIND: tuple[tuple[Any, Callable[[_Walk, Any], Iterable[Any]]], ...] = (
    (type, _Walk.of_class),
    (Enum, lambda _, value: [value.name]),
    (np.generic, lambda _, value: [str(value.dtype), value.tobytes().hex()]),
    (Ragged, lambda walk, value: map(walk.of, (value.values, value.offsets))),
    ((dict, Mapping), _Walk.of_mapping),
    ((set, frozenset), _Walk.of_set),
    ((list, tuple, deque, bytearray, array.array), _Walk.of_sequence),
    ((range, slice, np.dtype, os.PathLike), lambda _, value: [str(value)]),
    (ModuleType, lambda _, value: [value.__name__]),
    (functools.partial, _Walk.of_partial),
    (FunctionType, _Walk.of_function),
    (MethodType, lambda walk, value: [[walk.of(value.__func__), walk.of(value.__self__)]]),
    ((BuiltinFunctionType, MethodWrapperType), _Walk.of_built_in),
)


def _scalar(value: Any) -> Any:
    if isinstance(value, (str, bytes)) and len(value) > _MAX_TEXT:
        value = len(value), some_text(value)
    written = repr(value)
    return written if len(written) <= SAMPLED else blake2b(written.encode()).hexdigest()


@cached_by_class
def name_in_cursors(kind: type) -> str:
    """Return the name of a class as cursors know it."""
    return _RENAMED_OPS.get(f"{kind.__module__}.{kind.__qualname__}", kind.__name__)


def _path_in_cursors(kind: type) -> str:
    name = name_in_cursors(kind) if kind.__qualname__ == kind.__name__ else kind.__qualname__
    return f"{_module_in_cursors(kind)}.{name}"


def _module_in_cursors(named: type | FunctionType) -> str:
    """Return the module of a class or function as cursors know it."""
    module = named.__module__
    return _script.get() if module == "__main__" else _OLD_MODULES.get(module, module)


_script = ContextVar("script", default="__main__")


def script_as_imported() -> AbstractContextManager[None]:
    """Hash functions of the running script as if it were imported, inside the block."""
    main: Any = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return assigned(_script, spec.name if spec else Path(file).stem if file else "__main__")


def _is_cell_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # raises if the cell is empty
    except ValueError:
        return False
    return True


def _of_library(file: str | None) -> bool:
    """Return whether code is from an installed package or from Python; if `file` is None, it is."""
    if file is None:
        return True
    return file.startswith(_STANDARD) or any(part in file for part in _LIBRARIES)


def _file(kind: type) -> str | None:
    """Return the file of a class; a notebook's cell has none, and is the user's."""
    if kind.__module__ == "__main__":
        return ""
    if kind.__module__.partition(".")[0] == "jreader":
        return None
    module = sys.modules.get(kind.__module__)
    return "" if module is None else getattr(module, "__file__", None)


def _attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object; of a data class, its fields."""
    if "__dataclass_fields__" in vars(type(value)):
        return {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    if type(value).__module__.partition(".")[0] == "jreader":
        return {}  # such as a loader, with all that it holds
    slots = {
        name: getattr(value, name)
        for kind in type(value).__mro__
        for name in (kind.__dict__.get("__slots__") or ())
        if name not in _SKIPPED and hasattr(value, name)
    }
    return {**slots, **getattr(value, "__dict__", {})}
