"""What notebooks and `jreader show --html` draw is legible: all of it there, nothing over another.

The HTML is checked wherever tests run; a real browser lays it out where there is one.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from browsers import laid_out, overlapping

import jreader
from jreader import Pipeline, arrays, chain, compose, mix
from jreader.commands import show
from jreader.measuring.bars import StageBar, bars
from jreader.readers.plan_lines import shortened


def ten():
    return range(10)


def named(name):
    def function(sample):
        return sample

    function.__name__ = function.__qualname__ = name
    return function


LONG = "a_function_with_a_name_" + "so_long_that_only_generated_code_has_it_" * 4
MARKUP = ["<script>alert('x')</script>", 'a&b "q" <b>', "&lt;no&gt;", "two  spaces\tand tabs"]
FOREIGN = ["größe_ändern", "画像を読む", "مرحبا", "👩‍👩‍👧_emoji"]
ROWS = arrays(image=np.zeros((512, 28, 28), np.uint8), label=np.zeros(512, np.int32))


def mapped(names, plan=ROWS):
    plan = Pipeline(plan)
    for name in names:
        plan = plan.map(named(name))
    return plan


def deep():
    plan = Pipeline(ROWS)
    for number in range(5):
        plan = plan.map(dict).skip(1).shuffle(100, seed=number).filter(bool)
    return plan


def nested():
    inner = compose(ten, compose(ten, mapped(["f"], ten).skip(2), check_alignment=False))
    parts = chain(ten, ten, Pipeline(ten).shuffle(3, seed=0))
    return Pipeline(compose(mix([ten, mix([ten, parts], [1, 2])], [1, 3]), inner)).batch(4)


PLANS = {
    "tiny": Pipeline(ten),
    "usual": Pipeline(ROWS).shuffle(seed=0).map(dict).batch(32),
    "deep": deep(),
    "wide": Pipeline(mix([Pipeline(ROWS).map(dict) for _ in range(12)], [1] * 12)).batch(8),
    "nested": nested(),
    "long": mapped([LONG]).batch(4),
    "foreign": mapped(FOREIGN),
    "markup": mapped(MARKUP),
    "fields": Pipeline(arrays(**{f"column_{n}": np.zeros((9, 3)) for n in range(30)})).batch(2),
}
TITLES = ["source ten (train.py:3)", *(f"map {name} (train.py:9)" for name in [LONG, *MARKUP])]
REPORT = bars(
    f"The map `{MARKUP[0]}` (train.py:31) limits the epoch: 71 % of each step waits for it.",
    [StageBar(title, 0.4 + at, "3 threads, releases the GIL", at == 2)
     for at, title in enumerate([*TITLES, "the loop waits"])],
    [0, 2, 1, 0, 2, 2],
    "The plan was not read again.",
)  # fmt: skip


def drawn():
    """The HTML of each picture."""
    pictures = {name: plan._repr_html_() for name, plan in PLANS.items()}
    loader = Pipeline(ROWS).shuffle(seed=0).batch(32).load()
    eight = {
        "pmap": True,
        "feed_list": [
            jreader.data("image", [None, 28, 28], "uint8"),
            jreader.data("label", [None, 1], "int32"),
        ],
    }
    for name, made in (("loader", loader), ("places", Pipeline(ROWS).batch(32).load(**eight))):
        pictures[name] = made._repr_html_()
    return {**pictures, "report": REPORT}


@pytest.fixture(scope="module")
def pictures():
    return drawn()


def ops_of(plan):
    """The names of all ops of a plan and of the functions that it reads, found in the plan."""
    if isinstance(plan, Pipeline):
        return ops_of(*plan.input_readers)
    below = (
        sum(map(ops_of, plan.input_readers), Counter()) if isinstance(plan, jreader.Node) else []
    )
    name = type(plan).__name__ if isinstance(plan, jreader.Node) else plan.__name__
    return Counter([name]) + Counter(below)


FLOW = {
    *("text-align", "vertical-align", "font-weight", "opacity", "color", "background"),
    *("white-space", "overflow-wrap", "display", "width", "height", "min-width", "border-bottom"),
}
"""Properties that leave each text in its place in the flow, where cells cannot overlap."""


def out_of_flow(html):
    """What the style of a picture says that could lay one text over another."""
    styles = [part.get("style", "") for part in ET.fromstring(html).iter()]
    properties = [each.strip() for style in styles for each in style.split(";") if each.strip()]
    wrong = [each for each in properties if each.partition(":")[0].strip() not in FLOW]
    return wrong + [each for each in properties if re.search(r":\s*-", each)]


class TestWithoutABrowser:
    @pytest.mark.parametrize("name", [*PLANS, "loader", "places", "report"])
    def test_nothing_leaves_the_flow_in_which_cells_cannot_overlap(self, name, pictures):
        assert not out_of_flow(pictures[name])
        rows = [len(row) for row in ET.fromstring(pictures[name]).iter("tr")]
        assert len(set(rows)) == 1, "a row without a cell moves all beside it"

    @pytest.mark.parametrize("planted", ["position:relative", "margin-left:-9em", "float:left"])
    def test_what_does_is_found(self, planted, pictures):
        assert out_of_flow(pictures["usual"].replace("opacity:0.7", planted)).count(planted) >= 8

    @pytest.mark.parametrize("name", PLANS)
    def test_every_op_and_reader_has_a_line(self, name, pictures):
        lines = [row[0] for row in rows_of(pictures[name])]
        shown = Counter(re.match(r"[┌├│└↓ ]*(\w+)", line)[1] for line in lines)
        assert shown == ops_of(PLANS[name])

    @pytest.mark.parametrize(
        ("name", "labels"), [("long", [LONG]), ("foreign", FOREIGN), ("markup", MARKUP)]
    )
    def test_every_name_is_there_letter_by_letter(self, name, labels, pictures):
        lines = [row[0] for row in rows_of(pictures[name])]
        for label in labels:
            assert any(f"({label})" in line for line in lines)

    def test_every_stage_of_a_report_has_a_line(self):
        said = [row[0] for row in rows_of(REPORT)]
        assert said == [*TITLES, "the loop waits", "feeds ready"]

    def test_bars_and_columns_are_text_since_some_pages_drop_styles_and_drawings(self):
        *stages, queue = [row[2] for row in rows_of(REPORT)]
        assert len(stages) == len(TITLES) + 1
        assert all(re.fullmatch("█*[▏▎▍▌▋▊▉]?", bar) and bar for bar in stages)
        assert max(map(len, stages)) == 6
        assert re.fullmatch("[▁▂▃▄▅▆▇█]+", queue)
        assert not {"svg", "img"} & {part.tag for part in ET.fromstring(REPORT).iter()}

    def test_a_thousand_names_are_cut_in_the_middle(self, tmp_path):
        for number in range(300):
            np.save(tmp_path / f"part-{number:04d}.npy", np.zeros(3))
        (row, *_) = rows_of(jreader.npy(tmp_path)._repr_html_())
        many = rows_of(jreader.npy(*sorted(tmp_path.glob("*.npy")))._repr_html_())
        assert len(row[0]) < 300
        assert len(many[0][0]) < 300
        assert "part-0000.npy" in many[0][0]
        assert many[0][0].endswith("part-0299.npy')")
        assert shortened("short") == "short"


def rows_of(html):
    return [["".join(cell.itertext()) for cell in row] for row in ET.fromstring(html).iter("tr")]


HOSTS = {
    "page": "td {padding: 0.1em 0.5em 0.1em 0}",
    "lab": "td {padding: .5em; text-align: right; vertical-align: middle; line-height: normal} "
    "table {border-collapse: collapse; font-size: 12px; table-layout: fixed}",
    "code": "td {padding: .5em; text-align: right} table {border-collapse: collapse}",
    "github": "td {padding: 6px 13px; border: 1px solid} "
    "table {display: block; width: max-content; max-width: 100%; overflow: auto}",
}
GROUNDS = {
    "page": [("#ffffff", "#000000"), ("#121212", "#ffffff")],
    "lab": [("#ffffff", "rgba(0, 0, 0, 0.87)"), ("#111111", "#ffffff")],
    "code": [("#ffffff", "#3b3b3b"), ("#1f1f1f", "#cccccc")],
    "github": [("#ffffff", "#1f2328"), ("#0d1117", "#f0f6fc")],
}
"""The ground and the ink of each, light and dark."""
WIDE, NARROW = 1200, 360


def scoped(of, rules):
    return re.sub(r"(^|} )(\w+)", rf"\1.{of} \2", rules)


@pytest.fixture(scope="module")
def seen(pictures, tmp_path_factory):
    """All pictures in all hosts, as a browser lays them out: one page, one start of a browser."""
    page, styles = {}, ["[data-picture] {overflow: auto; font: 14px sans-serif}"]
    for host, rules in HOSTS.items():
        styles.append(scoped(host, rules))
        for dark, (ground, ink) in enumerate(GROUNDS[host]):
            for wide in (NARROW, WIDE):
                of = f"{host}-{'dark' if dark else 'light'}-{wide}"
                styles.append(f".{of} {{background: {ground}; color: {ink}; width: {wide}px}}")
                for name, html in pictures.items():
                    bare = re.sub(' style="[^"]*"', "", html) if host == "github" else html
                    page[f"{name} {of}"] = (f"{host} {of}", bare)
    moved = pictures["usual"].replace("opacity:0.7", "position:relative;left:-9em")
    page["moved"] = ("lab lab-light-1200", moved)
    page["faint"] = ("lab lab-light-1200", pictures["usual"].replace("0.7", "0.3"))
    return laid_out(page, "\n".join(styles), tmp_path_factory.mktemp("page"))


@pytest.mark.slow
class TestInABrowser:
    def test_every_text_is_there(self, seen, pictures):
        for name, html in pictures.items():
            said = "".join(ET.fromstring(html).itertext())
            for key, texts in seen.items():
                if key.startswith(f"{name} "):
                    assert "".join(text.text for text in texts) == said, key
                    assert all(text.boxes for text in texts if text.text.strip()), key

    def test_no_text_lies_over_another(self, seen):
        found = {key: overlapping(texts) for key, texts in seen.items() if key != "moved"}
        assert {key: pairs for key, pairs in found.items() if pairs} == {}

    def test_one_that_does_is_found(self, seen):
        assert ("512 samples", "arrays(image=uint8[512, 28, 28], label=int32[512])") in (
            overlapping(seen["moved"])
        )

    def test_every_text_stands_out_from_its_ground(self, seen):
        least = {key: min(text.contrast for text in texts) for key, texts in seen.items()}
        assert least.pop("faint") < 3
        assert {key: ratio for key, ratio in least.items() if ratio < 4.5} == {}

    def test_wide_pages_show_all_without_scrolling(self, seen):
        for key, texts in seen.items():
            if key.endswith(f"-{WIDE}") and "github" not in key:
                assert max(box[2] for text in texts for box in text.boxes) <= WIDE, key

    @pytest.mark.parametrize(
        "name", ["usual", "deep", "wide", "long", "foreign", "markup", "report"]
    )
    def test_so_do_phones_of_all_that_is_not_nested(self, name, seen):
        for host in ("page", "lab", "code"):
            texts = seen[f"{name} {host}-dark-{NARROW}"]
            assert max(box[2] for text in texts for box in text.boxes) <= NARROW, host

    def test_ops_hang_beside_their_rails(self, seen):
        """An op that is wider than its column goes on below itself, not below its rails."""
        texts = seen[f"long lab-light-{NARROW}"]
        (op,) = (text for text in texts if text.text.startswith("map_readers("))
        assert len(op.boxes) > 1
        assert len({box[0] for box in op.boxes}) == 1


class TestPages:
    def test_the_page_of_show_is_the_same_picture(self, tmp_path, pictures):
        path = tmp_path / "plan.html"
        assert list(show(PLANS["markup"], MARKUP[0], str(path))) == [f"{path} is written"]
        page = path.read_text(encoding="utf-8")
        assert pictures["markup"] in page
        assert "<script" not in page
        assert "color-scheme: light dark" in page
