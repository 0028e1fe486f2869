"""`FileReader`: what readers of files share: paths that a user types, and how they are shown."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from jreader.readers import Node, set_fields
from jreader.readers.declarations import declared, declared_names
from jreader.sources.file_checks import FileNode
from jreader.sources.files.file_parts import Which, part_in
from jreader.sources.files.named_files import Paths, files_named, written

T = TypeVar("T")


class FileReader(FileNode[T]):
    """A reader of the files that paths, folders and patterns stand for.

    The `__init__` of a format has the arguments that its users type, and hands them to `keep`.

    Attributes:
        call: The call, as errors name it.
        suffixes: What the files of a folder end in.
        far: Whether files elsewhere can be read, too.
        part: Which part of its only file it reads, where a format can; None for all files as a
            whole.
    """

    call: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    far: ClassVar[bool] = True
    paths: tuple[str, ...]
    part: Which | None = None

    def keep(self, paths: Paths | tuple[Paths, ...], **given: Any) -> None:
        """Sets the fields, each checked by the function that it was declared with; opens no file.

        Raises:
            TypeError: A path is neither a str nor a path, or another argument is of no use.
            FileNotFoundError: A path names no file, or a folder or a pattern has none.
        """
        if "part" in declared_names(self):
            paths, given["part"] = part_in(paths)
        given["paths"] = files_named(self.call, paths, self.suffixes, far=self.far)
        set_fields(self, **given)
        check_given(self, self.call)

    def shown(self) -> dict[str, Any]:
        """The arguments behind the paths, as a user would type them."""
        return typed_arguments(self)

    def __repr__(self) -> str:
        """The call that makes this reader; of many files, the first and the last."""
        more = [f"{name}={value!r}" for name, value in self.shown().items()]
        return f"{type(self).__name__}({', '.join([written(self.paths, self.part), *more])})"


def check_given(node: Node[Any], call: str) -> None:
    """Has fields that were given checked by the functions they were declared with."""
    for field in declared(node):
        convert, value = field.metadata.get("convert"), getattr(node, field.name)
        if convert is not None and value is not None:
            set_fields(node, **{field.name: convert(call, value)})


def typed_arguments(node: Node[Any]) -> dict[str, Any]:
    """The arguments that a user gave and that say what is read, but for the data themselves."""
    found = dict[str, Any]()
    for field in declared(node):
        value, unsaid = getattr(node, field.name), field.metadata.get("cursor") == "never"
        if value in (None, field.default, {}):
            continue
        if not unsaid and field.name not in ("paths", "part", "dataset"):
            name = "columns" if field.name == "names" else field.name
            found[name] = list(value) if isinstance(value, tuple) else value
    return found
