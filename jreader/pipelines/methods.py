"""How an op becomes a method of `Pipeline`, with its arguments and docstring stated once.

`firstn = method(transforms.firstn)` is all that the class needs for an op whose first argument is a
reader: `Concatenate` and `ParamSpec` carry the other arguments, so mypy, pyright and editors read
names, defaults and docstring where the op is defined. A `Callable` has no names for the arguments
it puts in front, and no overloads. If a function comes before the reader (`map`, `filter`), or the
type of a sample follows from it, the method is written out, with only the first sentence of its
docstring. `like` adds the rest at run time, for `help`, notebooks and Sphinx.

Importing the class imports no op: what it names is a `LazyModule`, imported when one of
its ops is first called, or when its method is first looked at.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, update_wrapper
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any, TypeVar, cast, get_overloads

from jreader.hints import check_keywords

F = TypeVar("F", bound=Callable[..., Any])

_ARGUMENT = re.compile(r"^ {4}(\*{0,2}\w+): .*\n?(?: {8}.*\n?)*", re.MULTILINE)


class LazyModule:
    """A module that is imported when one of its functions is first called.

    >>> LazyModule("jreader.transforms").firstn(lambda: "abc", 2)
    firstn(<lambda>, n=2)
    """

    def __init__(self, module: str) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # doctest and copies ask for some
            raise AttributeError(name)
        return _LazyFunction(self, name)


class _LazyFunction:
    """A function of a module, before the import."""

    def __init__(self, room: LazyModule, name: str) -> None:
        self.room, self.name = room, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _imported_op(self)(*args, **kwargs)


def _imported_op(op: Any) -> Any:
    """Return an op; import its module first, which then gives the op directly."""
    if isinstance(op, _LazyFunction):
        room, name = op.room, op.name
        op = getattr(import_module(room.module), name)
        setattr(room, name, op)
    return op


class Method:
    """A method that becomes a function, with docstring and signature, at its first use.

    Args:
        body: The function, or an op, whose first argument is the pipeline.
        ops: The ops that it makes; the first one describes it.
        chains: Whether the result of the body becomes a pipeline.
    """

    def __init__(self, body: Any, ops: tuple[Any, ...], *, chains: bool = False) -> None:
        self.body, self.ops, self.chains = body, ops, chains

    @classmethod
    def made(cls, op: Any, *, chains: bool = False) -> Any:
        """Make an op a method."""
        return cls(op, (op,), chains=chains)

    def __set_name__(self, kind: Any, name: str) -> None:
        self.kind, self.name = kind, name

    def __get__(self, made: object, kind: type) -> Any:
        body, ops = _imported_op(self.body), [_imported_op(op) for op in self.ops]
        gives = self.kind if self.chains else None
        method = _with_checked_keywords(body, f"{self.kind.__name__}.{self.name}", gives)
        _describe(method, body, ops)
        setattr(self.kind, self.name, method)
        return method.__get__(made, kind)


def like(*ops: Callable[..., Any]) -> Callable[[F], F]:
    """Give a method the docstring of an op, with those arguments that the method takes.

    The docstring of the method, if it has one, replaces the first sentence. A method that takes
    `**kwargs` also gets the signature of the op.

    Args:
        *ops: The ops that the method makes; the first one describes it.
    """

    def described(body: F) -> F:
        return cast("F", Method(body, ops))

    return described


@cache
def methods_of(kind: Any) -> dict[Any, str]:
    """Return the names of the methods of a class, by the op that each makes.

    >>> from jreader import Pipeline, buffered
    >>> methods_of(Pipeline)[buffered]
    'prefetch'
    """
    members = ((name, getattr(kind, name)) for name in dir(kind) if not name.startswith("_"))
    return {op: name for name, method in members for op in getattr(method, "ops", ())}


def _with_checked_keywords(body: Any, call: str, gives: Any) -> Any:
    """Return a method that, for keywords of other libraries, says what to type instead."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check_keywords(call, method, kwargs)
        made = body(self, *args, **kwargs)
        return made if gives is None else gives(made)

    update_wrapper(method, body, updated=())
    method.__name__, method.__qualname__ = call.rpartition(".")[2], call
    return method


def _describe(method: Any, body: Any, ops: list[Any]) -> None:
    """Give a method what its ops define: signature, docstring, and where doctest runs it."""
    method.ops = ops
    if not ops:
        if overloads := get_overloads(body):  # the last one names all arguments
            method.__signature__ = inspect.signature(overloads[-1])
        return
    parameters = inspect.signature(body).parameters.values()
    if body in ops or any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        signature = method.__signature__ = _without_reader(ops[0])
        parameters = signature.parameters.values()
        kinds = {each.name: each.annotation for each in parameters}
        method.__annotations__ = {**kinds, "return": signature.return_annotation}
    own = None if body in ops else inspect.getdoc(body)
    takes = {re.split("[:=]", str(each))[0] for each in parameters}
    method.__doc__ = _doc(own, inspect.getdoc(ops[0]) or "", takes)
    method.__module__ = "jreader.pipelines"  # doctest runs the examples where the ops are


def _without_reader(op: Callable[..., Any]) -> Signature:
    """Return the signature of an op as a method, which gets its reader as `self`."""
    given = inspect.signature(op)
    own = [each for each in given.parameters.values() if each.name != "reader"]
    gives = "Pipeline" if inspect.isclass(op) else given.return_annotation
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    return Signature([itself, *own], return_annotation=gives)


def _doc(own: str | None, text: str, takes: set[str]) -> str:
    first, blank, rest = text.replace("`reader`", "the pipeline").partition("\n\n")
    before, title, after = rest.partition("Args:\n")
    entries, gap, end = after.partition("\n\n")
    kept = [each[0] for each in _ARGUMENT.finditer(f"{entries}\n") if each[1] in takes]
    arguments = f"{title}{''.join(kept)}{gap and chr(10)}" if kept else ""
    return f"{own or first}{blank}{before}{arguments}{end}".rstrip()
