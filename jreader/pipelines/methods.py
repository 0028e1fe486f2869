"""How an op becomes a method of `Pipeline`: its arguments and its docstring are stated once.

`firstn = method(transforms.firstn)` is all that the class says of an op whose first argument is a
reader: `Concatenate` and `ParamSpec` carry the other arguments, so mypy, pyright and editors read
names, defaults and docstring where the op is defined. A `Callable` has no names for what it puts in
front, and no overloads: where a function comes before the reader (`map`, `filter`), or where the
type of a sample follows from it, the method is written out, with the first sentence of its
docstring only. `like` adds the rest at run time, for `help`, notebooks and Sphinx.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_ARGUMENT = re.compile(r"^ {4}(\*{0,2}\w+): .*\n?(?: {8}.*\n?)*", re.MULTILINE)


def like(*ops: Callable[..., Any]) -> Callable[[F], F]:
    """Gives a method the docstring of an op; of its arguments, those that the method takes.

    The docstring of the method, if it has one, stands for the first sentence of the op. A method
    that takes `**kwargs` gets the signature of the op too.

    Args:
        *ops: What the method makes; the first one is described.
    """
    op = ops[0]

    def described(method: F) -> F:
        known: Any = method
        signature = inspect.signature(method)
        if any(each.kind is Parameter.VAR_KEYWORD for each in signature.parameters.values()):
            signature = known.__signature__ = _without_reader(op)
            kinds = {each.name: each.annotation for each in signature.parameters.values()}
            known.__annotations__ = {**kinds, "return": signature.return_annotation}
        takes = {str(each).partition(":")[0] for each in signature.parameters.values()}
        takes = {name.partition("=")[0] for name in takes}
        known.__doc__ = _doc(inspect.getdoc(method), inspect.getdoc(op) or "", takes)
        known.__module__ = "jreader.pipelines"  # doctest runs the examples where the ops are
        known.ops = ops
        return method

    return described


@cache
def methods_of(kind: Any) -> dict[Any, str]:
    """The names of the methods of a class by what they make.

    >>> from jreader import Pipeline, buffered
    >>> methods_of(Pipeline)[buffered]
    'prefetch'
    """
    members = ((name, inspect.getattr_static(kind, name)) for name in dir(kind))
    return {op: name for name, method in members for op in getattr(method, "ops", ())}


def _without_reader(op: Callable[..., Any]) -> Signature:
    """The signature of an op as a method, which is given its reader as `self`."""
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
