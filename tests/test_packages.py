"""What is released: the wheel and the sdist, their contents and metadata, and the pages beside."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from programs import PATIENCE, ROOT

import jreader

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HOME = PROJECT["urls"]["Repository"]
LARGEST = 3 << 20  # bytes that are installed
BUILD = """
import sys
from hatchling import build
print(getattr(build, sys.argv[1])(sys.argv[2]))
"""
PAGES = (
    *("CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md"),
    *("CONTRIBUTING.md", "ROADMAP.md", "SECURITY.md"),
)


def built(what, folder, out):
    """The path of the wheel, or the sdist, of a folder, as pip and PyPI have it."""
    command = [sys.executable, "-c", BUILD, f"build_{what}", str(out)]
    told = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
    return out / told.stdout.decode().strip()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folder of the sdist."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built("sdist", ROOT, out)) as archive:
        archive.extractall(out, filter="data")
    return out / f"jreader-{jreader.__version__}"


@pytest.fixture(scope="module")
def wheel(unpacked, tmp_path_factory):
    """The wheel of the sdist, as `python -m build` makes it."""
    return built("wheel", unpacked, tmp_path_factory.mktemp("wheel"))


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def tracked(*folders):
    """The files of some folders that git does not ignore, which a release has."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout, so that nobody knows which files belong to it")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    told = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in told.splitlines() if (ROOT / name).is_file()}


class TestWheel:
    def test_it_has_the_package_and_nothing_else(self, wheel):
        about = f"jreader-{jreader.__version__}.dist-info/"
        names = names_in(wheel)
        assert {name for name in names if not name.startswith(about)} == tracked("jreader")
        assert {name.removeprefix(about) for name in names if name.startswith(about)} == {
            *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
        }
        assert "jreader/py.typed" in names

    def test_any_python_takes_it(self, wheel):
        assert wheel.name == f"jreader-{jreader.__version__}-py3-none-any.whl"

    def test_it_is_small(self, wheel):
        with zipfile.ZipFile(wheel) as archive:
            assert sum(part.file_size for part in archive.infolist()) < LARGEST

    def test_its_metadata_is_valid_and_says_what_pyproject_says(self, wheel):
        about = f"jreader-{jreader.__version__}.dist-info/"
        with zipfile.ZipFile(wheel) as archive:
            text = archive.read(f"{about}METADATA")
            command = archive.read(f"{about}entry_points.txt").decode()
            licence = archive.read(f"{about}licenses/LICENSE")
        found = Metadata.from_email(text, validate=True)
        assert (found.name, str(found.version)) == ("jreader", jreader.__version__)
        assert (found.license_expression, found.license_files) == ("Apache-2.0", ["LICENSE"])
        assert licence == (ROOT / "LICENSE").read_bytes()
        assert str(found.requires_python) == PROJECT["requires-python"]
        needed = {req.name for req in found.requires_dist if req.marker is None}
        assert needed == {"jax", "numpy", "cloudpickle", "tqdm"}
        assert set(found.provides_extra) == set(PROJECT["optional-dependencies"])
        assert found.description_content_type == "text/markdown"
        assert email.message_from_bytes(text).get_payload().strip().startswith("# jreader")
        assert "jreader = jreader.__main__:main" in command

    @pytest.mark.slow
    def test_it_is_installed_in_an_empty_environment_and_trains_the_demo(self, wheel, tmp_path):
        """What it needs is that of the environment that runs the tests, of which jreader is not."""
        pytest.importorskip("sklearn")
        pytest.importorskip("pip")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def says(*command):
            return subprocess.run(
                command,
                cwd=tmp_path,
                env=clean,
                stdout=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=True,
            ).stdout

        says(sys.executable, "-m", "venv", "--without-pip", "room")
        python = tmp_path / "room" / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install"]
        says(*pip, "--no-deps", "--no-index", "--no-compile", str(wheel))
        site = next((tmp_path / "room" / "lib").glob("python*/site-packages"))
        others = [path for path in sys.path if path.endswith("site-packages")]
        (site / "others.pth").write_text("\n".join(others))
        (tmp_path / "train.py").write_text(
            "import jreader\nrows = jreader.Pipeline(lambda: range(6)).batch(2)\n"
        )
        where = "import jreader; print(jreader.__file__)"
        assert says(python, "-c", where).strip() == str(site / "jreader" / "__init__.py")
        command = python.with_name("jreader")
        assert says(command, "--version") == f"jreader {jreader.__version__}\n"
        assert "batch(batch_size=2)" in says(command, "show", "train:rows")
        assert "accuracy" in says(command, "demo", "--data", "digits", "--epochs", "1")


class TestSdist:
    def test_it_has_what_tests_and_builds_need(self, unpacked):
        names = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
        top = {"pyproject.toml", "README.md", "LICENSE", ".gitignore", "PKG-INFO", *PAGES}
        assert {name for name in names if "/" not in name} == top
        assert names - top == tracked("jreader", "tests", "notebooks", "docs")


class TestPages:
    def test_the_newest_change_is_this_version(self):
        text = (ROOT / "CHANGELOG.md").read_text()
        heads = re.findall(r"^## \[([^]]+)\] - (.*)$", text, re.MULTILINE)
        assert heads[0][0] == jreader.__version__
        for number, (version, date) in enumerate(heads):
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", date) or (number, date) == (0, "unreleased")
            assert f"\n[{version}]: {HOME}/" in text
        assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= {
            *("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
        }

    def test_the_changelog_names_what_there_is(self):
        text = (ROOT / "CHANGELOG.md").read_text().partition("## [0.1.0]")[0]
        named = re.findall(r"`([a-z_]+)`", text)
        members = {*jreader.__all__, *dir(jreader.Pipeline), *dir(jreader.DataLoader)}
        others = {"peek", "check", "bench", "show", "jit", "stream_version"}
        assert set(named) - members <= others

    def test_the_citation_is_of_this_version(self):
        text = (ROOT / "CITATION.cff").read_text()
        for line in (
            "cff-version: 1.2.0",
            f"version: {jreader.__version__}",
            f"license: {PROJECT['license']}",
            f'repository-code: "{HOME}"',
        ):
            assert f"\n{line}\n" in f"\n{text}"
        assert {"message", "title", "authors"} <= set(re.findall(r"^(\S+):", text, re.MULTILINE))

    @pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
    def test_links_lead_to_files(self, page):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
            assert (ROOT / link).exists(), link

    def test_where_the_project_lives_is_said_in_one_place(self):
        """Notebooks, badges and pages name it again, and only it."""
        place = HOME.removeprefix("https://github.com/")
        hosts = r"(?:github\.com|raw\.githubusercontent\.com|nbviewer\.org)/"
        wrong = {}
        for name in [*PAGES, *sorted(tracked("docs", "notebooks", "jreader")), "README.md"]:
            if Path(name).suffix not in (".md", ".ipynb", ".py", ".cff", ".toml", ".html", ".yml"):
                continue
            for found in re.findall(
                rf"{hosts}(?:colab/github/|github/)?([\w-]+/jreader)\b", (ROOT / name).read_text()
            ):
                if found != place:
                    wrong[name] = found
        assert wrong == {}, f"sed -i s#{set(wrong.values())}#{place}# {' '.join(wrong)}"

    def test_the_urls_of_the_package_are_below_it(self):
        assert all(url.startswith(HOME) for url in PROJECT["urls"].values())
