"""What `import jreader` gives: few names, each with a docstring and an example, and no jax."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import types
from pathlib import Path

import pytest

import jreader

PUBLIC = sorted(jreader.__all__)
WITH_JAX = ("jreader.devices", "jreader.loaders", "jreader.demo", "jreader.__main__")


def documented(name):
    """Where the docstring of a public name stands; None for a type alias."""
    value = getattr(jreader, name)
    return value if isinstance(value, (type, types.FunctionType, types.ModuleType)) else None


def needs_an_example(name):
    value = documented(name)
    plain = (type, types.FunctionType, types.ModuleType)
    return isinstance(value, plain) and not (inspect.isclass(value) and no_example(value))


def no_example(kind):
    """Exceptions and the shapes of what others give speak for themselves."""
    return issubclass(kind, (Exception, dict)) or kind is jreader.Pass


class TestNames:
    def test_all_is_sorted_and_short(self):
        assert jreader.__all__ == sorted(set(jreader.__all__))
        assert len(jreader.__all__) <= 60

    def test_all_is_what_there_is(self):
        """Rooms are found by import, not by name; only `datasets` is a room that is a name."""
        rooms = {room.name for room in pkgutil.iter_modules(jreader.__path__)} - {"datasets"}
        members = {name for name in vars(jreader) if not name.startswith("_")} - rooms
        assert members | set(jreader._LATER) == set(PUBLIC)
        assert set(dir(jreader)) == {*PUBLIC, "__version__"}

    @pytest.mark.parametrize("name", PUBLIC)
    def test_every_name_is_there_and_says_where_it_lives(self, name):
        value = getattr(jreader, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            home = sys.modules[value.__module__]
            assert value.__module__.startswith("jreader.")
            assert getattr(home, value.__name__) is value

    def test_a_name_that_is_not_there_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="module 'jreader' has no attribute 'shufle'"):
            _ = jreader.shufle

    @pytest.mark.parametrize("name", PUBLIC)
    def test_a_name_that_is_loaded_later_is_in_the_list_of_its_room(self, name):
        room = jreader._LATER.get(name)
        if room and room != "jreader.datasets":
            assert name in importlib.import_module(room).__all__


class TestDocstrings:
    @pytest.mark.parametrize("name", [name for name in PUBLIC if documented(name)])
    def test_the_first_line_is_one_sentence(self, name):
        first = inspect.getdoc(documented(name)).splitlines()[0]
        assert re.fullmatch(r"[A-Z`\[].*[.:]", first), first
        assert not re.search(r"[a-z]\. [A-Z]", first), "that is two sentences"

    @pytest.mark.parametrize("name", [name for name in PUBLIC if needs_an_example(name)])
    def test_it_has_an_example(self, name):
        assert ">>> " in inspect.getdoc(documented(name))

    def test_every_room_says_what_it_is_for(self):
        for room in pkgutil.walk_packages(jreader.__path__, "jreader."):
            if room.name != "jreader.__main__":
                assert (importlib.import_module(room.name).__doc__ or "").strip(), room.name


class TestImports:
    def test_importing_it_does_not_import_jax(self, python):
        script = "import sys, jreader; print('jax' in sys.modules, 'jaxlib' in sys.modules)"
        assert python(script).stdout.split() == ["False", "False"]

    def test_only_what_feeds_devices_imports_jax(self, python):
        library = Path(jreader.__file__).parent
        paths = [path.relative_to(library.parent) for path in library.rglob("*.py")]
        rooms = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
        without = [room for room in rooms if not room.startswith(WITH_JAX)]
        assert len(without) > 20
        script = f"""
            import importlib, sys
            for room in {sorted(without)}:
                importlib.import_module(room)
                assert "jax" not in sys.modules, room
        """
        python(script)

    def test_a_worker_process_does_not_import_jax(self):
        def source():
            yield "jax" in sys.modules, "jreader" in sys.modules

        assert list(jreader.multiprocess_reader([source])()) == [(False, True)]

    def test_importing_it_is_quick(self, python):
        """The goal is 0.15 s of work beyond NumPy; the limit is for a slow machine."""
        script = """
            import time, numpy
            began = time.process_time()
            import jreader
            print(time.process_time() - began)
        """
        took = min(float(python(script).stdout) for _ in range(5))
        assert took < 0.3
