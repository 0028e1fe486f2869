"""What `import jreader` gives: few names, each with a docstring and an example, and no jax."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import pkgutil
import re
import sys
import types
from functools import partial
from pathlib import Path

import jax
import jedi
import numpy as np
import pytest

import jreader
from jreader import DataLoader, Pipeline
from jreader.hints import known_words
from jreader.pipelines.methods import methods_of

WORDS = known_words()
PUBLIC = sorted(jreader.__all__)
OPS = [op for op in methods_of(Pipeline) if inspect.isclass(op)]
WITH_JAX = (
    *("jreader.devices", "jreader.loaders", "jreader.measuring", "jreader.paddle"),
    *("jreader.checkpoint", "jreader.demo", "jreader.__main__", "jreader.integrations"),
)


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


METHODS_OF_A_LOADER = [
    name
    for name, value in vars(DataLoader).items()
    if isinstance(value, (types.FunctionType, classmethod, property))
    and not name.startswith("_")
    and name not in ("next", "reset")  # which the example of `start` shows
]


class TestNames:
    def test_all_is_sorted_and_short(self):
        assert jreader.__all__ == sorted(set(jreader.__all__))
        assert len(jreader.__all__) <= 95

    def test_all_is_what_there_is(self):
        """Rooms are found by import, not by name; but `datasets` and `images` are names."""
        found = {room.name for room in pkgutil.iter_modules(jreader.__path__)}
        rooms = found - {"datasets", "images"}
        members = {name for name in vars(jreader) if not name.startswith("_")} - rooms
        assert members <= set(jreader._LATER) == set(PUBLIC)
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
    def test_a_name_is_in_the_list_of_its_room(self, name):
        room = jreader._LATER[name]
        if room not in ("jreader.datasets", "jreader.images", "jreader.sounds", "jreader.errors"):
            module = importlib.import_module(room)  # one of sources lists nothing: it is the room
            assert name in getattr(module, "__all__", vars(module))

    def test_type_checkers_find_each_name_in_the_same_room(self):
        tree = ast.parse(Path(jreader.__file__).with_suffix(".pyi").read_text())
        rooms = {
            name.asname: f"jreader.{name.name}" if part.module == "jreader" else part.module
            for part in tree.body
            if isinstance(part, ast.ImportFrom)
            for name in part.names
        }
        assert rooms == jreader._LATER, "each is `import name as name`, or checkers hide it"

    def test_the_programs_for_type_checkers_use_every_name(self):
        """So that `.ci/run` sees each of them with the eyes of a user of mypy or pyright."""
        typed = Path(__file__).parent / "typed"
        text = "\n".join(path.read_text() for path in typed.glob("*.py"))
        used = set(re.findall(r"\bjreader\.(\w+)", text)) | {"Pipeline", "DataLoader"}
        assert set(PUBLIC) - used == set()


class TestDocstrings:
    @pytest.mark.parametrize("name", [name for name in PUBLIC if documented(name)])
    def test_the_first_line_is_one_sentence(self, name):
        first = inspect.getdoc(documented(name)).splitlines()[0]
        assert re.fullmatch(r"[A-Z`\[].*[.:]", first), first
        assert not re.search(r"[a-z]\. [A-Z]", first), "that is two sentences"

    @pytest.mark.parametrize("name", [name for name in PUBLIC if needs_an_example(name)])
    def test_it_has_an_example(self, name):
        assert ">>> " in inspect.getdoc(documented(name))

    @pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
    def test_an_op_says_what_it_costs(self, kind):
        (cost,) = re.findall(
            r"^Cost: (.*?)(?:\n\n|\Z)", inspect.getdoc(kind), re.MULTILINE | re.DOTALL
        )
        assert re.search(r"[Rr]esum", cost), "and what it costs to go on from a position"

    @pytest.mark.parametrize("name", METHODS_OF_A_LOADER)
    def test_a_method_of_a_loader_has_an_example(self, name):
        assert ">>> " in inspect.getdoc(getattr(DataLoader, name))

    def test_every_room_says_what_it_is_for(self):
        for room in pkgutil.walk_packages(jreader.__path__, "jreader."):
            if room.name != "jreader.__main__":
                assert (importlib.import_module(room.name).__doc__ or "").strip(), room.name


class TestImports:
    def test_importing_it_does_not_import_jax(self, python):
        script = """
            import sys
            from jreader import Pipeline
            print("jax" in sys.modules, "jaxlib" in sys.modules)
        """
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

    def test_a_worker_process_imports_neither_jax_nor_what_it_does_not_use(self):
        def source():
            yield [room in sys.modules for room in ("jax", "jreader.pipelines", "jreader._worker")]

        assert list(jreader.multiprocess_reader([source])()) == [[False, False, True]]

    def test_importing_it_costs_a_few_imports_of_numpy(self, python):
        """Measured in one process, so that a busy machine slows both; 2.4 where it is quiet."""
        script = """
            import time
            began = time.process_time()
            import numpy
            between = time.process_time()
            from jreader import Pipeline, write  # and so all rooms that need no jax
            print((time.process_time() - between) / (between - began))
        """
        assert any(float(python(script).stdout) < 4 for _ in range(3))

    def test_a_pipeline_imports_the_ops_that_it_is_made_of(self, python):
        script = """
            import sys
            from jreader import Pipeline, arrays
            numbers = Pipeline(arrays([1, 2, 3]))
            print(sum(name.startswith("jreader") for name in sys.modules))
            numbers.shuffle(seed=0)
            print("jreader.transforms" in sys.modules, "jreader.batches" in sys.modules)
        """
        many, *rooms = python(script).stdout.split()
        assert int(many) <= 55
        assert rooms == ["True", "False"]

    def test_importing_it_imports_two_packages_of_others(self, python):
        script = """
            import sys
            before = {*sys.modules}
            from jreader import Pipeline, write
            print(*{name.partition(".")[0] for name in {*sys.modules} - before})
        """
        packages = {*python(script).stdout.split()} - sys.stdlib_module_names
        assert packages == {"cloudpickle", "jreader", "numpy"}


CALLED = [
    *("batch", "bucket", "cache", "chain", "chat", "check_lock", "compose", "element_spec"),
    *("epochs", "fill", "filter"),
    *(
        "firstn",
        "flat_map",
        "folds",
        "group_by",
        "interleave",
        "load",
        "lock",
        "map",
        "map_batches",
        "mix",
        "pack",
    ),
    *("padded_batch", "peek", "pipe", "prefetch", "prepare", "read", "reader", "rebatch"),
    *("shard", "shuffle", "skip", "sliding_window", "split", "unbatch", "windows", "write", "xmap"),
]


def ten():
    return range(10)


class TestEditors:
    """What a notebook completes, and what an editor knows without running anything."""

    def test_a_pipeline_shows_what_its_user_calls(self):
        shown = [name for name in dir(Pipeline(ten)) if not name.startswith("_")]
        assert shown == CALLED

    def test_a_notebook_completes_nothing_else(self):
        names = jedi.Interpreter("plan.", [{"plan": Pipeline(ten).skip(1)}]).complete()
        assert [each.name for each in names if not each.name.startswith("_")] == CALLED

    def test_an_op_shows_what_its_author_defines(self):
        assert {"start", "length", "plane"} <= set(dir(jreader.skip(ten, 1)))

    @pytest.mark.parametrize("at_run_time", [False, True], ids=["editor", "notebook"])
    @pytest.mark.parametrize("name", ["map", "load", "pipe"])
    def test_a_method_has_its_signature_and_its_docstring(self, name, at_run_time):
        code = f"Pipeline(list).{name}("
        if at_run_time:
            script = jedi.Interpreter(code, [{"Pipeline": Pipeline}])
        else:
            script = jedi.Script(f"from jreader import Pipeline\n{code}")
        signature = script.get_signatures()[-1]  # of the overloads: the one that names all
        expected = [*inspect.signature(getattr(Pipeline, name)).parameters][1:]
        assert [each.name.lstrip("*") for each in signature.params] == expected
        assert inspect.getdoc(getattr(Pipeline, name)).splitlines()[0] in signature.docstring()

    @pytest.mark.parametrize("name", [name for name in CALLED if name != "reader"])
    def test_what_is_called_is_explained_as_the_readers_of_a_pipeline_see_it(self, name):
        text = inspect.getdoc(getattr(Pipeline, name))
        assert re.fullmatch(r"[A-Z`\[].*[.:]", text.splitlines()[0])
        assert ">>> " in text
        assert not re.search(r"^ *reader:|`reader`", text, re.MULTILINE)


class TestMistakes:
    """Words of other libraries: what is said tells what to type."""

    @pytest.mark.parametrize("name", WORDS["methods"])
    def test_a_method_of_another_library_says_what_to_type(self, name):
        with pytest.raises(AttributeError, match=rf"^Pipeline has no '{name}': (type|leave) "):
            getattr(Pipeline(ten), name)

    def test_a_misspelled_one_is_corrected_by_python(self):
        with pytest.raises(AttributeError, match="'Pipeline' object has no attribute") as caught:
            _ = Pipeline(ten).shufle
        assert (caught.value.name, type(caught.value.obj)) == ("shufle", Pipeline)

    def test_what_is_not_there_is_asked_for_by_copies_and_pickles_without_harm(self):
        plan = Pipeline(ten).skip(3)
        assert not hasattr(plan, "take")
        for copied in (copy.copy(plan), copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            assert list(copied) == [*range(3, 10)]
        with pytest.raises(AttributeError, match="__deepcopy__"):
            _ = plan.__deepcopy__

    @pytest.mark.parametrize("name", WORDS["methods"])
    def test_what_it_says_to_type_is_there(self, name):
        advice = WORDS["methods"][name]
        said = set(re.findall(r"(?:^|[ )])\.(\w+)\(", advice))
        assert said <= {*CALLED, "steps"}
        of_jreader = set(re.findall(r"(?<![.\w])(\w+)\(", advice)) & set(jreader.__all__)
        plain = ("leave", "len(", "`for", "functools", "pip", ".element_spec")
        assert said or of_jreader or advice.startswith(plain)

    @pytest.mark.parametrize(
        ("method", "keyword"),
        [(method, each) for method, own in WORDS["keywords"].items() for each in own],
    )
    def test_a_keyword_of_another_library_says_what_to_type(self, method, keyword):
        here = Pipeline(ten) if hasattr(Pipeline, method) else partial(getattr(jreader, method), "")
        call = getattr(here, method, here)
        parameters = inspect.signature(call).parameters
        assert keyword not in parameters
        advice = WORDS["keywords"][method][keyword]
        assert set(re.findall(r"(?<![\w.(])(\w+)=(?!=)", advice.partition("(")[0])) <= {*parameters}
        called = rf"{method}\(.*\.\.\.\)"
        if hasattr(Pipeline, method):
            called = rf"Pipeline\.{method}\(\.\.\.\)"
        with pytest.raises(TypeError, match=rf"^{called} takes no {keyword}=: "):
            call(**{keyword: 2})

    @pytest.mark.parametrize("name", WORDS["loader"])
    def test_an_op_after_load_says_where_it_belongs(self, name):
        with pytest.raises(AttributeError, match=rf"^DataLoader has no '{name}': (type|leave) "):
            getattr(Pipeline(ten).batch(2).load(), name)

    @pytest.mark.parametrize("name", WORDS["names"])
    def test_a_name_of_another_library_says_what_to_type(self, name):
        advice = WORDS["names"][name]
        assert set(re.findall(r"jreader\.(\w+)", advice)) <= set(PUBLIC)
        with pytest.raises(AttributeError, match=rf"^jreader has no '{name}': type "):
            getattr(jreader, name)

    @pytest.mark.parametrize("keyword", WORDS["anywhere"])
    def test_one_that_belongs_elsewhere_says_where(self, keyword):
        with pytest.raises(
            TypeError, match=rf"^Pipeline.skip\(...\) takes no {keyword}=: (type|leave)"
        ):
            Pipeline(ten).skip(2, **{keyword: 2})

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (
                "Pipeline(ten).map(str, workers=2)",
                "Pipeline.map(...) takes no workers=: type threads=n or processes=n.",
            ),
            (
                "Pipeline(ten).map(str, num_workers=2)",
                "Pipeline.map(...) takes no num_workers=: type processes=n or threads=n.",
            ),
            (
                "jreader.map_samples(str, ten, workers=2)",
                "map_samples(...) takes no workers=: type threads=n or processes=n.",
            ),
            (
                "jreader.shuffle(ten, buffer_size=4)",
                "shuffle(...) takes no buffer_size=: type buf_size=n.",
            ),
            (
                "Pipeline(ten).batch(4, drop_lst=True)",
                "Pipeline.batch(...) takes no drop_lst=: did you mean drop_last=?",
            ),
            (
                "Pipeline(ten).cache(where=1)",
                "Pipeline.cache(...) takes no where=: it takes path.",
            ),
            (
                "jreader.firstn(ten, wanted=2)",
                "firstn(...) takes no wanted=: it takes reader, n.",
            ),
        ],
    )
    def test_the_error_names_the_call_as_it_was_typed(self, call, says):
        with pytest.raises(TypeError) as caught:
            eval(call)
        assert str(caught.value) == says


class TestOlderNames:
    """What has another name today works for one release, and says the new one."""

    def test_a_loader_over_batches_is_made_by_load(self):
        batches = Pipeline(ten).batch(5)
        with pytest.warns(DeprecationWarning, match=r"over\(.*\) is now Pipeline\(batches\)\.load"):
            loader = DataLoader.over(batches, capacity=1)
        assert [feed.tolist() for feed in loader] == [[*range(5)], [*range(5, 10)]]

    def test_windows_of_samples_slide(self):
        with pytest.warns(DeprecationWarning, match=r"Pipeline\.window is now \w+\.sliding_window"):
            plan = Pipeline(ten).window(4, 2)
        assert str(plan) == "Pipeline(ten).sliding_window(size=4, stride=2)"
        with pytest.warns(DeprecationWarning, match=r"jreader\.window is now \w+\.sliding_window"):
            assert jreader.window is jreader.sliding_window


class TestElementSpec:
    """The shapes and dtypes of samples and batches."""

    rows = Pipeline(jreader.arrays(image=np.zeros((10, 4), np.uint8), label=np.arange(10)))

    @pytest.mark.parametrize(
        ("plan", "length"),
        [
            (rows.batch(5), 5),
            (rows.batch(4), None),
            (rows.batch(4, drop_last=True), 4),
            (rows.batch(4).map_batches(dict).prefetch(2).epochs(2), None),
            (rows.firstn(8).batch(4).map_batches(dict), 4),
            (rows.filter(bool).batch(5), None),
            (rows.batch(5).chain(rows.batch(4)), None),
        ],
    )
    def test_a_batch_has_an_axis_for_its_samples_none_where_the_last_may_be_short(
        self, plan, length
    ):
        spec = plan.element_spec
        assert (spec["image"].shape, spec["image"].dtype) == ((length, 4), np.uint8)
        assert (spec["label"].shape, spec["label"].dtype) == ((length,), np.int64)

    def test_a_sample_of_any_structure_has_one(self):
        def source():
            yield {"pair": (1, 2.5), "name": "abc", "none": None}

        spec = Pipeline(source).element_spec
        assert spec["pair"] == (
            jreader.ArraySpec((), np.dtype(int)),
            jreader.ArraySpec((), np.dtype(float)),
        )
        assert (spec["name"].dtype.kind, spec["none"]) == ("U", None)

    def test_nothing_that_iterates_notices(self):
        drawn = []
        plan = Pipeline(lambda: (drawn.append(n) or n for n in range(5))).cache().map(float)
        under_way = iter(plan)
        assert next(under_way) == 0
        assert plan.element_spec == jreader.ArraySpec((), np.dtype(float))
        assert [*under_way] == [1, 2, 3, 4]
        assert drawn == [*range(5)]

    def test_an_error_of_a_function_is_raised_as_it_is(self):
        with pytest.raises(AttributeError, match="'int' object has no attribute 'image'"):
            _ = Pipeline(ten).map(lambda sample: sample.image).element_spec

    def test_jax_takes_it(self):
        made = jax.eval_shape(lambda feed: feed["image"] / 255, self.rows.batch(5).element_spec)
        assert (made.shape, made.dtype) == ((5, 4), np.float32)

    def test_there_is_none_where_nothing_is(self):
        with pytest.raises(ValueError, match="is empty: there is no first sample"):
            _ = Pipeline(list).element_spec

    def test_it_asks_for_no_jax(self, python):
        script = """
            import sys, jreader
            jreader.Pipeline(lambda: [1, 2]).batch(2).element_spec
            print("jax" in sys.modules)
        """
        assert python(script).stdout.strip() == "False"
