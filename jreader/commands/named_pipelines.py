"""Resolve `module:name`, as a user types it, to a pipeline, a reader or a loader."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from jreader.linting.linter import fed_of
from jreader.pipelines import Pipeline
from jreader.readers import Node, Reader, described


class CommandFailed(Exception):
    """A command prints this error on one line and exits with 1."""


def pipeline_named(target: str) -> Any:
    """Return the pipeline, reader or loader named `module:name` or `file.py:name`.

    The name may also be a function without arguments that returns one; a function that yields or
    returns samples is a reader itself.

    >>> pipeline_named("jreader.datasets:digits")
    Traceback (most recent call last):
    jreader.commands.named_pipelines.CommandFailed: 'digits' of jreader.datasets is not a \
pipeline, reader or loader, nor a function that returns one: it is a module.

    Raises:
        CommandFailed: There is none; the message explains why.
    """
    value = attribute(target)
    where, _, name = target.rpartition(":")
    try:
        found = _pipeline(value)
    except Exception as error:
        raise CommandFailed(f"{name}() raised {in_one_line(error)}") from error
    if found is None:
        kind = type(value).__name__
        needs = f"the {kind} {described(value)} needs arguments" if callable(value) else ""
        raise CommandFailed(
            f"{name!r} of {where} is not a pipeline, reader or loader, nor a function that returns "
            f"one: {needs or f'it is {_article(kind)} {kind}'}."
        )
    return found


def attribute(target: str) -> Any:
    """Return the object that `module:name` names, of any kind.

    Raises:
        CommandFailed: The module or name does not exist, or the module raises.
    """
    where, _, name = target.rpartition(":")
    value: Any = _imported(where)
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise CommandFailed(f"{where} has no {part!r}{_others(value)}") from None
    return value


def tokenizer(target: str) -> Callable[[Any], str]:
    """Return the decoder of that name, which turns tokens into text: a function, or its `decode`.

    Raises:
        CommandFailed: The name is neither.
    """
    value = attribute(target)
    decode = getattr(value, "decode", value)
    if not callable(decode):
        raise CommandFailed(
            f"{target} is not a function of a list of ints, and has no decode(ints)"
        )
    made: Callable[[Any], str] = decode
    return made


def _imported(where: str) -> ModuleType:
    is_file = where.endswith(".py") or "/" in where
    if is_file and not Path(where).is_file():
        raise CommandFailed(f"there is no file {where!r} in {Path.cwd()}")
    folder = Path(where).parent if is_file else Path()
    sys.path.insert(0, str(folder.absolute()))
    try:
        return _of_file(Path(where)) if is_file else importlib.import_module(where)
    except (Exception, SystemExit) as error:
        if not is_file and isinstance(error, ModuleNotFoundError) and _is_missing(where, error):
            raise CommandFailed(
                f"there is no module {where!r} in {Path.cwd()}, nor is one installed"
            ) from None
        raise CommandFailed(f"{where} raised {in_one_line(error)}") from error


def _is_missing(module: str, error: ModuleNotFoundError) -> bool:
    """Return whether the missing import is a module itself, or one of its parent packages."""
    return bool(error.name) and f"{module}.".startswith(f"{error.name}.")


def _of_file(path: Path) -> ModuleType:
    """Import a file under its stem, so that worker processes can import it, too."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CommandFailed(f"{path} is not a Python file: its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _others(value: Any) -> str:
    """List the pipelines and loaders that a module has instead."""
    own = {
        name: part
        for name, part in vars(value).items()
        if not name.startswith("_") and (isinstance(part, Node) or is_loader(part))
    }
    return f": it has {', '.join(sorted(own))}" if own else ""


def _pipeline(value: Any) -> Any:
    """Return the pipeline or loader that a value is or returns; None if it is neither."""
    if is_loader(value) or isinstance(value, Node):
        return value
    if not _needs_no_arguments(value):
        return None
    if inspect.isgeneratorfunction(value):
        return Pipeline(value)
    made = value()
    if is_loader(made) or isinstance(made, Node):
        return made
    if inspect.isgeneratorfunction(made):
        return Pipeline(made)
    samples = isinstance(made, Iterable) and not isinstance(made, (str, bytes, dict))
    return Pipeline(value) if samples else None


def _needs_no_arguments(value: Any) -> bool:
    if not callable(value) or isinstance(value, type):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):  # needs arguments, or has no signature
        return False
    return True


def is_loader(value: Any) -> bool:
    """Return whether a value is a loader, without importing jax."""
    loaders = sys.modules.get("jreader.loaders")
    return loaders is not None and isinstance(value, loaders.DataLoader)


def reader_of(subject: Any) -> Reader[Any]:
    """Return the reader of a loader's batches; a reader returns itself."""
    return fed_of(subject).plan


def in_one_line(error: BaseException) -> str:
    """Return an error in one line, with the user's line that raised it, and its notes.

    >>> in_one_line(ValueError("two  words"))
    'ValueError: two words'
    """
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_users_file(frame.filename)]
    if own:
        said = f"{said} ({own[-1].filename}:{own[-1].lineno})"
    notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]  # not tracebacks
    return "; ".join([said, *notes])


_PACKAGE = str(Path(__file__).parents[1])
_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))  # inside the stdlib's


def _is_users_file(file: str) -> bool:
    """Return whether a file belongs neither to jreader nor to Python's library."""
    if file.startswith((_PACKAGE, "<frozen")):
        return False
    return file.startswith(_INSTALLED) or not file.startswith(_LIBRARY)


def _article(kind: str) -> str:
    return "an" if kind[0] in "aeiou" else "a"
