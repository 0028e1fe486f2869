"""The commands of a user's module: what they print, and one line for what goes wrong."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from programs import PATIENCE

import jreader
from jreader.__main__ import main
from jreader.sources.tables.arrow_columns import pyarrow

MODULE = """
import time

import jreader
import numpy as np
from jreader import DataLoader, Pipeline, arrays

pixels = np.arange(512 * 16 * 16 * 3, dtype=np.uint8).reshape(512, 16, 16, 3)
rows = Pipeline(arrays(image=pixels, label=np.arange(512, dtype=np.int32) % 10))
pipeline = rows.shuffle(seed=0).batch(32)
small = rows.shuffle(4, seed=0).batch(32)
documents = Pipeline(arrays(tokens=np.arange(97, 123).reshape(2, 13), id=[7, 8]))
empty = Pipeline(list)
number = 3
loader = pipeline.load()

def reader():
    yield from ("abc", {"pair": (1, 2.5), "raw": b"xyz"})

def factory():
    return pipeline

def spelled():
    return ["x", "y"]

def as_text(tokens):
    return "".join(map(chr, tokens))

class Tokenizer:
    def decode(self, tokens):
        return f"{len(tokens)} tokens"

tokenizer = Tokenizer()

def needy(path):
    return pipeline

def raising():
    raise ValueError("a bad\\nthing")
    yield

def broken_factory():
    raise KeyError("lost")

def gone():
    with open("gone.bin", "rb") as file:
        yield file.read()

def mapped():
    return rows.map(failing, processes=1)

def failing(row):
    raise KeyError("x")

def is_even(row):
    return row["label"] % 2 == 0

def prepared():
    return rows.filter(is_even, keep="even").batch(2)

def none_left():
    return rows.filter(lambda row: False)

def damaged():
    return jreader.npy("damaged.npy")

def columns():
    return jreader.parquet("table.parquet")

def busy(row):
    time.sleep(0.002)
    return row

def slow():
    return rows.map(busy).batch(8)

def slow_loader():
    return slow().load()

def uneven():
    return Pipeline(lambda: [[1], [2, 3]]).batch(2)

def processed():
    return rows.map(shape_of, processes=2)

def shape_of(row):
    return row["image"].shape
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module of a user, as the current one, as in a process of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "feeding.py").write_text(MODULE)
    importlib.invalidate_caches()
    yield tmp_path
    for name in {"feeding", "elsewhere", "beside", "cut"} & {*sys.modules} - before:
        del sys.modules[name]


@pytest.fixture
def told(folder, capsys):
    """Runs a command: its exit code, the lines it prints, the lines of its errors."""

    def run(*arguments):
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


COMMANDS = ("show", "check", "peek", "bench")


class TestWhatGoesWrong:
    """Each is one line, and an exit code of 1."""

    @pytest.mark.parametrize("command", COMMANDS)
    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("feedin:pipeline", "there is no module 'feedin' in /.*, nor is one installed"),
            ("feeding.deeper:pipeline", "there is no module 'feeding.deeper' in"),
            ("gone.py:pipeline", "there is no file 'gone.py' in /"),
            ("feeding:pipelin", "feeding has no 'pipelin': it has .*loader, pipeline, rows, small"),
            (
                "feeding:number",
                "'number' of feeding is not a pipeline, reader or loader, .*it is an i",
            ),
            ("feeding:needy", "the function needy needs arguments"),
            (
                "feeding:broken_factory",
                r"broken_factory\(\) raised KeyError: 'lost' \(.*feeding.py",
            ),
        ],
    )
    def test_what_is_not_there(self, command, target, says, told):
        code, lines, errors = told(command, target)
        assert (code, lines, len(errors)) == (1, [], 1)
        assert re.match(f"jreader {command}: {re.escape(target)}: .*{says}", errors[0])

    @pytest.mark.parametrize("command", COMMANDS[1:])
    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("feeding:raising", r"raised ValueError: a bad thing \(/.*feeding.py:\d+\)"),
            ("feeding:gone", r"raised FileNotFoundError: .*gone.bin.*\(/.*feeding.py:\d+\)"),
            ("feeding:empty", "yields nothing: there is no"),
        ],
    )
    def test_what_fails_when_it_is_read(self, command, target, says, told):
        code, _, errors = told(command, target)
        assert (code, len(errors)) == (1, 1)
        assert re.search(says, errors[0])

    @pytest.mark.parametrize("command", COMMANDS[1:])
    def test_a_damaged_file_is_named_without_a_line_of_a_library(self, command, folder, told):
        (folder / "damaged.npy").write_bytes(bytes(range(200, 256)))
        code, _, errors = told(command, "feeding:damaged")
        assert (code, len(errors)) == (1, 1)
        assert re.search(
            r"raised DamagedData: .*damaged.npy is truncated.* made at \S*feeding.py:\d+$",
            errors[0],
        )

    @pytest.mark.parametrize("command", COMMANDS)
    def test_an_extra_that_is_missing_says_what_to_install(
        self, command, folder, told, monkeypatch
    ):
        (folder / "table.parquet").write_bytes(b"PAR1")
        pyarrow.cache_clear()  # other tests may have asked for it
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        code, _, errors = told(command, "feeding:columns")
        assert (code, len(errors)) == (1, 1)
        assert "python -m pip install 'jreader[arrow]'" in errors[0]

    @pytest.mark.slow
    def test_a_function_that_fails_in_a_process_is_named(self, told):
        code, _, errors = told("peek", "feeding:mapped")
        assert (code, len(errors)) == (1, 1)
        assert re.search(r"KeyError: 'x'; raised by failing\(.*feeding.py:\d+$", errors[0])

    @pytest.mark.filterwarnings("default")
    def test_a_warning_is_one_line_too(self, told):
        code, _, errors = told("peek", "feeding:none_left")
        assert (code, len(errors)) == (1, 2)
        assert re.match(r".*feeding.py:\d+: filter\(.* left none of the samples", errors[0])
        assert "yields nothing" in errors[1]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("1 / 0", r"ZeroDivisionError: division by zero \(.*cut.py:1\)"),
            ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
            ("def (", "SyntaxError: "),
            ("raise SystemExit(3)", "SystemExit: 3"),
        ],
    )
    @pytest.mark.parametrize("target", ["cut:x", "cut.py:x"])
    def test_a_module_that_raises(self, text, says, target, folder, told):
        (folder / "cut.py").write_text(text)
        code, lines, errors = told("show", target)
        assert (code, lines, len(errors)) == (1, [], 1)
        assert re.search(f"raised {says}", errors[0])

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("shows", "feeding:pipeline"),
            ("show",),
            ("show", "feeding"),
            ("show", ":pipeline"),
            ("peek", "feeding:pipeline", "-n", "0"),
            ("bench", "feeding:pipeline", "--seconds", "-1"),
            ("bench", "feeding:pipeline", "--seconds", "x"),
            ("peek", "feeding:pipeline", "--tokenizer", "feeding"),
        ],
        ids=" ".join,
    )
    def test_wrong_arguments_exit_with_2_and_the_usage(self, arguments, told):
        code, lines, errors = told(*arguments)
        assert (code, lines) == (2, [])
        assert errors[0].startswith("usage: jreader")

    def test_a_page_that_cannot_be_written(self, told):
        code, _, errors = told("show", "feeding:pipeline", "--html", "no/where.html")
        assert (code, len(errors)) == (1, 1)
        assert "no/where.html" in errors[0]

    def test_a_rule_that_is_none(self, told):
        code, _, errors = told("check", "feeding:pipeline", "--ignore", "windows")
        assert (code, len(errors)) == (1, 1)
        assert "its rules are small-window" in errors[0]


class TestWhatIsFound:
    @pytest.mark.parametrize(
        "target",
        [
            *("feeding:pipeline", "feeding:loader", "feeding:reader", "feeding:factory"),
            *("feeding:spelled", "feeding.py:pipeline", "./feeding.py:pipeline"),
        ],
    )
    def test_a_pipeline_a_loader_and_functions(self, target, told):
        code, lines, errors = told("show", target)
        assert (code, errors) == (0, [])
        assert lines

    def test_a_file_of_another_folder_finds_its_neighbours(self, folder, told):
        (folder / "sub").mkdir()
        (folder / "sub" / "elsewhere.py").write_text("from beside import pipeline\n")
        (folder / "sub" / "beside.py").write_text("pipeline = lambda: iter('abc')\n")
        code, lines, _ = told("peek", "sub/elsewhere.py:pipeline", "-n", "1")
        assert (code, lines) == (0, ["0  str[1] 'a'"])

    def test_workers_call_functions_of_the_module(self, told):
        code, lines, _ = told("peek", "feeding.py:processed", "-n", "1")
        assert code == 0
        assert [line.split() for line in lines] == [
            ["0", "0", "int", "16"],
            ["1", "int", "16"],
            ["2", "int", "3"],
        ]


class TestShow:
    def test_it_prints_an_op_a_line(self, told):
        _, lines, _ = told("show", "feeding:pipeline")
        assert [line.split("(")[0] for line in lines] == ["arrays", "↓ shuffle", "↓ batch"]
        assert lines[-1].split()[-3:] == ["16", "batches", "indexed"]

    def test_a_loader_says_where_feeds_go(self, told):
        _, lines, _ = told("show", "feeding:loader")
        assert lines[-1].endswith("16 feeds    on the default device")

    def test_a_page_is_whole(self, folder, told):
        code, lines, _ = told("show", "feeding:pipeline", "--html", "plan.html")
        assert (code, lines) == (0, ["plan.html is written"])
        text = (folder / "plan.html").read_text(encoding="utf-8")
        open_tags = []

        class Tags(HTMLParser):
            def handle_starttag(self, tag, attrs):
                if tag != "meta":
                    open_tags.append(tag)

            def handle_endtag(self, tag):
                assert open_tags.pop() == tag

        Tags().feed(text)
        assert open_tags == []
        assert "color-scheme: light dark" in text
        for said in ("feeding:pipeline", "shuffle(seed=0)", "batch(batch_size=32)"):
            assert said in text


class TestCheck:
    def test_what_is_found_is_a_line_and_exits_with_1(self, folder, told):
        code, lines, errors = told("check", "feeding:small")
        assert (code, errors, len(lines)) == (1, [], 1)
        assert re.match(rf"{folder}/feeding.py:\d+: small-window: .* Leave buf_size out", lines[0])

    def test_nothing_is_silent_and_exits_with_0(self, told):
        assert told("check", "feeding:pipeline") == (0, [], [])
        assert told("check", "feeding:loader") == (0, [], [])

    def test_a_name_is_ignored(self, told):
        assert told("check", "feeding:small", "--ignore", "small-window") == (0, [], [])
        assert told("check", "feeding:small", "--no-measure")[0] == 1


class TestPeek:
    def test_it_prints_fields_dtypes_shapes_and_values(self, told):
        _, lines, _ = told("peek", "feeding:rows", "-n", "2")
        assert [line.split() for line in lines] == [
            ["0", "image", "uint8[16,", "16,", "3]", *"012345", "..."],
            ["label", "int32", "0"],
            ["1", "image", "uint8[16,", "16,", "3]", *"012345", "..."],
            ["label", "int32", "1"],
        ]

    def test_samples_of_any_form(self, told):
        _, lines, _ = told("peek", "feeding:reader")
        assert lines == [
            "0        str[3]   'abc'",
            "1 pair.0 int      1",
            "  pair.1 float    2.5",
            "  raw    bytes[3] b'xyz'",
        ]

    @pytest.mark.parametrize("target", ["feeding:pipeline", "feeding:loader"])
    def test_batches_and_feeds(self, target, told):
        _, lines, _ = told("peek", target, "-n", "1")
        assert "uint8[32, 16, 16, 3]" in lines[0]
        assert "int32[32]" in lines[1]

    @pytest.mark.parametrize(
        ("tokenizer", "shows"), [("as_text", "'abcdefghijklm'"), ("tokenizer", "'13 tokens'")]
    )
    def test_tokens_as_text(self, tokenizer, shows, told):
        arguments = ("-n", "1", "--tokenizer", f"feeding:{tokenizer}")
        _, lines, _ = told("peek", "feeding:documents", *arguments)
        assert lines[0].endswith(shows)
        assert lines[1].split() == ["id", "int64", "7"]

    @pytest.mark.parametrize("target", ["feeding:rows", "feeding:pipeline", "feeding:loader"])
    def test_pictures_side_by_side(self, target, folder, told):
        image = pytest.importorskip("PIL.Image")
        code, lines, _ = told("peek", target, "-n", "1", "--png", "sheet.png")
        assert (code, lines[-1]) == (0, "sheet.png has 64 pictures")
        with image.open(folder / "sheet.png") as sheet:
            assert sheet.size == (8 * 132 + 4, 8 * 132 + 4)
            pixels = np.asarray(sheet)
        assert len(set(pixels[0, 0].tolist())) > 1, "a grey ground hides grey pictures"
        assert len(np.unique(pixels[4:132, 4:132])) > 100

    def test_numbers_go_from_the_least_finite_one_to_the_greatest(self, folder, told):
        image = pytest.importorskip("PIL.Image")
        (folder / "beside.py").write_text(
            "import numpy as np\n"
            "rows = np.full((8, 8), -1.0)\n"
            "rows[4:] = 1\n"
            "rows[0, :2], rows[7, 7] = (np.nan, np.inf), -np.inf\n"
            "def reader():\n"
            "    yield rows\n"
        )
        assert told("peek", "beside:reader", "--png", "sheet.png")[0] == 0
        with image.open(folder / "sheet.png") as sheet:
            pixels = np.asarray(sheet)[4:132, 4:132, 0]
        blocks = pixels[8::16, 8::16]  # a pixel each: enlarged ones stay sharp
        assert blocks[0].tolist() == [0, 255, 0, 0, 0, 0, 0, 0]
        assert (blocks[1:4] == 0).all()
        assert blocks[7].tolist() == [255] * 7 + [0]

    def test_no_picture_is_said(self, told):
        pytest.importorskip("PIL.Image")
        code, _, errors = told("peek", "feeding:documents", "--png", "sheet.png")
        assert code == 1
        assert "finds no picture: it needs a field of [height, width]" in errors[0]

    def test_without_pillow_it_says_what_to_install(self, told, monkeypatch):
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        code, _, errors = told("peek", "feeding:rows", "--png", "sheet.png")
        assert code == 1
        assert "python -m pip install 'jreader[images]'" in errors[0]


class TestBench:
    def test_it_has_a_line_for_each_stage(self, told):
        code, lines, _ = told("bench", "feeding:pipeline", "--seconds", "0.01")
        lines = lines[: lines.index("")]
        assert code == 0
        assert lines[0].split() == ["samples/s", "batches/s", "us/sample", "of", "which", "here"]
        assert [line.split("(")[0] for line in lines[1:]] == ["arrays", "↓ shuffle", "↓ batch"]
        batched = lines[-1].split()[-4:]
        samples, batches = (float(each.replace(",", "")) for each in batched[:2])
        assert samples == pytest.approx(batches * 32, rel=0.02)

    def test_a_loader_has_one_more(self, told):
        _, lines, _ = told("bench", "feeding:loader", "--seconds", "0.01")
        assert lines[lines.index("") - 1].split()[0] == "load"

    def test_a_reader_of_two_samples_is_timed(self, told):
        code, lines, _ = told("bench", "feeding:spelled", "--seconds", "0.01")
        assert (code, lines.index("")) == (0, 2)
        assert lines[3:] == [
            "no verdict: only a pipeline of batches has one; end it with .batch(32), for example"
        ]

    @pytest.mark.parametrize("target", ["slow", "slow_loader"])
    def test_it_ends_with_what_limits_and_what_to_change(self, target, told):
        code, lines, errors = told("bench", f"feeding:{target}", "--seconds", "0.05")
        assert (code, errors) == (0, [])
        first, verdict = lines[lines.index("") + 1 :]
        assert first == "where the step takes no time (jreader.report):"
        assert re.match(r"The map `busy` \(feeding.py:\d+\) limits the epoch: ", verdict)
        assert "waits for it; " in verdict
        assert "threads=" in verdict or "processes=" in verdict

    def test_what_cannot_be_fed_has_no_verdict(self, told):
        code, lines, _ = told("bench", "feeding:uneven", "--seconds", "0.01")
        assert (code, len(lines)) == (0, lines.index("") + 2)
        assert lines[-1].startswith("no verdict: FeedMismatch: ")


class TestProcesses:
    """The real commands, in processes of their own."""

    def run(self, *arguments, folder):
        return subprocess.Popen(
            [sys.executable, "-m", "jreader", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(jreader.__file__).parents[1])},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [(("--version",), 0), (("show", "feeding:rows"), 0), (("peek", "feeding:empty"), 1)],
    )
    def test_the_exit_code_is_that_of_the_command(self, arguments, code, folder):
        process = self.run(*arguments, folder=folder)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, len(err.splitlines())) == (code, code)
        if arguments[0] == "--version":
            assert out == f"jreader {jreader.__version__}\n"

    def test_ctrl_c_is_one_line(self, folder):
        (folder / "endless.py").write_text(
            "import time\n"
            "def samples():\n"
            "    print('begun', flush=True)\n"
            "    while True:\n"
            "        time.sleep(0.01)\n"
            "        yield 1\n"
        )
        process = self.run("bench", "endless:samples", "--seconds", "9999", folder=folder)
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "jreader bench: endless:samples: interrupted\n")

    def test_a_pipe_that_is_closed_is_no_traceback(self, folder):
        process = self.run("peek", "feeding:rows", "-n", "500", folder=folder)
        process.stdout.close()
        assert process.wait(PATIENCE) == 1
        assert process.stderr.read() == ""
        process.stderr.close()


class TestDemo:
    """What a user can mend is one line, and an exit code of 1."""

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ("--data digits --batch 2000", "a batch of 2000 is more than all 1438"),
            ("--data mnist", "Connect to the network"),
        ],
    )
    def test_what_cannot_be_trained_on(self, options, says, folder, told, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        monkeypatch.setenv("JREADER_MNIST_MIRROR", "http://127.0.0.1:9")  # nobody listens
        code, _, errors = told("demo", *options.split())
        assert code == 1
        (line,) = errors
        assert line.startswith("jreader demo: ")
        assert says in line

    def test_without_scikit_learn_it_says_what_to_install(self, told, monkeypatch):
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        code, _, errors = told("demo", "--data", "digits")
        assert code == 1
        assert "python -m pip install 'jreader[demo]'" in "\n".join(errors)
        assert len(errors) == 1

    @pytest.mark.slow
    def test_ctrl_c_is_one_line(self):
        command = [
            sys.executable,
            "-u",
            "-m",
            "jreader",
            "demo",
            "--data",
            "digits",
            "--epochs",
            "999",
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            while not process.stdout.readline().startswith("epoch  1"):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "jreader demo: interrupted\n")


class TestPrepare:
    def test_it_says_what_it_takes_and_what_was_made(self, told, folder):
        code, (ahead, made), errors = told("prepare", "feeding:prepared")
        assert (code, errors) == (0, [])
        start = f"{folder / 'even'}: "
        assert ahead.startswith(
            f"{start}0 of 512 samples are there; all take about 0 s and 0.00 MB"
        )
        assert made.startswith(f"{start}512 of 512 samples are there; these took ")
        assert len(importlib.import_module("feeding").prepared()) == 128

    def test_parts_make_what_one_program_makes(self, told):
        for part in ("2/2", "1/2"):
            code, _, errors = told("prepare", "feeding:prepared", "--part", part)
            assert (code, errors) == (0, [])
        assert len(importlib.import_module("feeding").prepared()) == 128

    def test_a_plan_that_keeps_nothing_is_an_error(self, told):
        code, _, errors = told("prepare", "feeding:pipeline")
        assert code == 1
        assert "neither cache(path) nor filter(fn, keep=path): nothing to do" in errors[0]

    @pytest.mark.parametrize(("part", "code"), [("3", 1), ("0/2", 1), ("3/2", 1), ("a/b", 2)])
    def test_a_part_that_is_none_is_refused(self, told, part, code):
        got, _, errors = told("prepare", "feeding:prepared", "--part", part)
        assert got == code
        assert "such as (3, 8)" in errors[-1] or "'a/b' is not a part, such as 3/8" in errors[-1]


class TestLock:
    def test_it_names_the_lock_and_check_says_what_has_changed(self, told, folder):
        code, (line,), errors = told("lock", "feeding:pipeline")
        assert (code, errors) == (0, [])
        assert re.fullmatch(r"jreader.lock: lock \w{16}", line)
        for target in ("feeding:pipeline", "feeding:loader"):
            said = f"{target} is as jreader.lock says: plan, packages and data"
            assert told("check", target, "--locked") == (0, [said], [])
        code, lines, errors = told("check", "feeding:small", "--locked")
        assert (code, errors) == (1, [])
        assert lines == [
            "plan ops 2: shuffle(buf_size=4, seed=0), and it was shuffle(buf_size=None, seed=0)"
        ]

    def test_another_file_and_ranges(self, told, folder):
        assert told("lock", "feeding:pipeline", "--to", "other.lock", "--sampled")[0] == 0
        assert "64 ranges of 16384 bytes" in (folder / "other.lock").read_text()
        code, (line,), _ = told("check", "feeding:pipeline", "--locked", "other.lock")
        assert code == 0
        assert line == (
            "feeding:pipeline is as other.lock says: plan, packages and data; but of files over "
            "1 MiB it has only 64 ranges of 16384 bytes, evenly spaced from the first byte to the "
            "last, so changes between them are not seen"
        )

    def test_no_lock_is_one_line(self, told):
        code, lines, (error,) = told("check", "feeding:pipeline", "--locked")
        assert (code, lines) == (1, [])
        assert "there is no lock 'jreader.lock'" in error
        assert "jreader lock module:pipeline --to jreader.lock" in error


def test_where_prints_the_steps_that_hold_a_sample(told, folder):
    loader = jreader.commands.pipeline_named("feeding:loader")
    feeds = loader.epoch(0)
    for _ in range(9):
        next(feeds)
    (folder / "cursor.json").write_text(json.dumps(feeds.cursor))
    lines = [f"epoch {e}, step {s}, row {r}" for _, e, s, r in loader.where(7, range(2))]
    assert told("where", "feeding:pipeline", "--sample", "7", "--epochs", "2") == (0, lines, [])
    for number in range(5):
        early = [f"epoch 0, step {s}, row {r}" for _, _, s, r in loader.where(number, [0]) if s < 9]
        asked = "where", "feeding:loader", "--sample", str(number), "--until", "cursor.json"
        assert told(*asked) == (0, early or ["no step holds it"], [])


def test_where_says_how_a_sample_is_named(told):
    code, lines, (said,) = told("where", "feeding:pipeline", "--sample", "first")
    assert (code, lines) == (1, [])
    assert "needs --sample NUMBER, FILE:NUMBER or SOURCE:NUMBER, not 'first'" in said
