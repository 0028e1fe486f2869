"""The notebooks run from top to bottom, and are saved as they ran."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))

# in a process of its own: the machinery of Jupyter warns, and here warnings are errors
EXECUTE = """
    import sys
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read({path!r}, as_version=4)
    for written, smaller in {smaller!r}.items():
        (cell,) = (cell for cell in notebook.cells if written in cell.source)
        cell.source = cell.source.replace(written, smaller)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    nbformat.write(notebook, "executed.ipynb")
"""


# what a notebook trains for its readers, and the same in small
SMALLER = {
    "02_mnist_sync_async": {"train(loader, epochs=3)": "train(loader, epochs=1)"},
    "05_text": {
        "WIDTH, LAYERS, HEADS, VOCABULARY = 128, 5, 4, 256": (
            "WIDTH, LAYERS, HEADS, VOCABULARY = 32, 2, 4, 256"
        ),
        "window_loader.steps(40)": "window_loader.steps(4)",
        "packed_loader.steps(50)": "packed_loader.steps(8)",
        "islice(feeds, 40)": "islice(feeds, 4)",
        "checkpoints.restore(40,": "checkpoints.restore(4,",
        "packed_loader.steps(50, at=": "packed_loader.steps(8, at=",
    },
    "06_why_is_it_slow": {
        "train(starving, 12)": "train(starving, 6)",
        "train(fetching, 24)": "train(fetching, 12)",
        "train(decoding, 24)": "train(decoding, 12)",
        "train(cached, 48)": "train(cached, 24)",
    },
    "07_images": {"train(loader, 30)": "train(loader, 3)"},
    "08_chat": {"STEPS = 150": "STEPS = 5", "texts.steps(30)": "texts.steps(3)"},
}


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook):
    """What each cell shows, but for what it prints, which may come in parts."""
    return [
        [output.output_type for output in cell.outputs if output.output_type != "stream"]
        for cell in code_of(notebook)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom_in_a_fresh_kernel(name, python, tmp_path):
    # without the devices that the tests emulate: a reader of the notebook has none either
    path = str(FOLDER / f"{name}.ipynb")
    script = EXECUTE.format(path=path, smaller=SMALLER.get(name, {}))
    flags = re.sub(r"--xla_force\S+", "", os.environ["XLA_FLAGS"])
    python(script, cwd=tmp_path, XLA_FLAGS=flags, MPLBACKEND="")
    assert [path.name for path in tmp_path.iterdir()] == ["executed.ipynb"]
    executed = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    assert not [output for output in outputs(executed) if output.output_type == "error"]
    saved = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert shown(executed) == shown(saved)


@pytest.mark.parametrize("name", NOTEBOOKS)
class TestSaved:
    """What people see on GitHub, before they run anything."""

    def test_it_is_valid_and_begins_with_a_title_and_a_badge(self, name):
        saved = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        nbformat.validate(saved)
        assert re.match(r"# .+\n\n\[!\[Open in Colab\]", saved.cells[0].source)
        assert f"blob/main/notebooks/{name}.ipynb" in saved.cells[0].source

    def test_every_cell_was_run_once_in_order(self, name):
        saved = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        counts = [cell.execution_count for cell in code_of(saved)]
        assert counts == list(range(1, len(counts) + 1))

    def test_it_has_pictures_and_neither_errors_nor_warnings(self, name):
        saved = outputs(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))
        assert [output for output in saved if "image/png" in output.get("data", {})]
        assert {output.output_type for output in saved} <= {
            "display_data",
            "execute_result",
            "stream",
        }
        assert not [output for output in saved if output.get("name") == "stderr"]

    def test_it_shows_nothing_of_the_machine_it_ran_on(self, name):
        saved = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        told = json.dumps([{**output, "data": text_of(output)} for output in outputs(saved)])
        assert not re.findall(r"/(?:tmp|root|home|work|Users)/|0x[0-9a-f]{6,}", told)


def text_of(output):
    return {kind: text for kind, text in output.get("data", {}).items() if kind != "image/png"}


@pytest.mark.slow
def test_an_error_in_a_notebook_names_the_cell(python, tmp_path):
    cell = nbformat.v4.new_code_cell(
        "import jreader\n"
        "halves = jreader.map_readers(lambda n: 1 / n, lambda: [0])\n"
        "print(halves.made_at)"
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")
    python(EXECUTE.format(path="one.ipynb", smaller={}), cwd=tmp_path)
    executed = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    assert outputs(executed)[0].text == "Cell In[1]:2\n"
