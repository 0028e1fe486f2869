"""Pictures among text: patches at their places, planned by headers, decoded row by row."""

import io

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from seen import see
from widths import examples

from jreader import DamagedData, FeedMismatch, Pipeline, chain, images, mix, shuffle
from jreader.images.decoding import stretched
from jreader.readers import start
from jreader.readers.made_rows import MadeRows, made_lazily

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")
pytest.importorskip("cv2")

TOKEN = 99


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def file_of(pixels, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


FILES = [
    file_of(picture(4 + 5 * n, 30 - 5 * n, n), ["PNG", "JPEG", "WEBP"][n % 3]) for n in range(6)
]
small = images.image_text(TOKEN, patch=2, merge=2, pixels=(16, 256))
parts = st.one_of(st.lists(st.integers(0, 50), max_size=5), st.sampled_from(FILES))
documents = st.lists(st.lists(parts, max_size=4), min_size=1, max_size=12)


def decoded(sample):
    """What is the function to others, who know of no other way than to call it."""
    return small(sample)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
@examples(100)
def test_patches_at_their_places_in_the_grid_are_the_picture(patch, merge, rows, columns):
    unit = patch * merge
    pixels = picture(rows * unit, columns * unit)
    cut = images.image_text(TOKEN, patch=patch, merge=merge, pixels=(1, pixels.size))
    made = cut([file_of(pixels)])
    again = np.zeros_like(pixels)
    for (row, column), values in zip(made["grid"], made["patches"], strict=True):
        here = slice(row * patch, (row + 1) * patch), slice(column * patch, (column + 1) * patch)
        again[here] = values.reshape(patch, patch, 3)
    assert np.array_equal(again, pixels)
    assert made["tokens"].tolist() == [TOKEN] * (rows * columns)
    for group in made["grid"].reshape(rows * columns, merge**2, 2):  # of one token
        assert len(np.unique(group // merge, axis=0)) == 1


def test_texts_and_pictures_keep_their_order():
    made = small([[1, 2], FILES[0], np.array([3], np.uint16), FILES[1], []])
    first, second = (len(small([file])["tokens"]) for file in FILES[:2])
    assert made["tokens"].tolist() == [1, 2, *[TOKEN] * first, 3, *[TOKEN] * second]
    assert made["tokens"].dtype == np.int32
    each = [small([file])["patches"] for file in FILES[:2]]
    assert np.array_equal(made["patches"], np.concatenate(each))
    assert np.flatnonzero((made["grid"] == 0).all(1)).tolist() == [0, len(each[0])]


@pytest.mark.parametrize("nothing", [[], [[]], [[4, 5], []]])
def test_a_document_without_pictures_has_no_patches(nothing):
    made = small(nothing)
    assert made["patches"].shape == (0, 12)
    assert made["grid"].shape == (0, 2)
    assert made["tokens"].tolist() == [token for text in nothing for token in text]


@pytest.mark.parametrize(
    ("sides", "wanted"),  # by the published rule, reckoned by hand
    [
        ((1365, 2048), (812, 1204)),
        ((300, 400), (308, 392)),
        ((20, 30), (56, 84)),
        ((28, 28), (56, 56)),
        ((2050, 1640), (1120, 896)),  # scaled to whole patches exactly
        ((552, 2760), (448, 2240)),
        ((29, 29), (56, 56)),
    ],
)
def test_sides_are_those_of_qwen2_vl(sides, wanted):
    cut = images.image_text(TOKEN, patch=14, merge=2)
    grid = cut([file_of(np.zeros((*sides, 3), np.uint8))])["grid"]
    assert tuple((grid.max(0) + 1) * 14) == wanted


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 4), st.integers(1, 99))
@example(1, 400, 4, 2)
@example(400, 1, 4, 2)
@examples(60)
def test_no_picture_has_more_pixels_than_the_most(height, width, unit, most):
    cut = images.image_text(TOKEN, patch=unit, pixels=(1, most * unit**2))
    made = cut([file_of(np.zeros((height, width, 3), np.uint8), "BMP")])
    assert 1 <= len(made["patches"]) <= most


def test_the_size_of_a_short_list_is_that_of_the_nearest_proportions():
    cut = images.image_text(TOKEN, patch=2, sizes=[(8, 8), (4, 16), (16, 4), (16, 16)])
    for sides, wanted in {
        (9, 9): (8, 8),
        (70, 70): (16, 16),
        (9, 33): (4, 16),
        (90, 20): (16, 4),
    }.items():
        pixels = picture(*sides)
        made = cut([file_of(pixels)])
        assert tuple((made["grid"].max(0) + 1) * 2) == wanted
        whole = images.decode(file_of(pixels), wanted)
        assert made["patches"][0].tolist() == whole[:2, :2].ravel().tolist()


@pytest.mark.parametrize("sides", [(375, 500), (20, 400), (401, 19)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_scaled_picture_is_whole_and_near_what_pillow_makes(kind, sides):
    rows, columns = np.mgrid[: sides[0], : sides[1]]
    pixels = np.stack([rows * 255 // sides[0], columns * 255 // sides[1], rows * 0], -1)
    cut = images.image_text(TOKEN, patch=8, pixels=(1, 8 * 8 * 100))
    made = cut([file_of(pixels.astype(np.uint8), kind)])
    tall, wide = (made["grid"].max(0) + 1) * 8
    ours = np.zeros((tall, wide, 3), np.uint8)
    for (row, column), values in zip(made["grid"], made["patches"], strict=True):
        ours[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = values.reshape(8, 8, 3)
    whole = Image.fromarray(pixels.astype(np.uint8))
    pillows = whole.resize((wide, tall), Image.Resampling.BILINEAR)
    assert np.abs(ours.astype(int) - np.asarray(pillows)).mean() < 3


@pytest.mark.parametrize("side", [449, 903, 1001, 1004, 1007, 1008])
def test_a_jpeg_that_is_decoded_at_an_eighth_is_not_shifted(side):
    grains = Image.fromarray(picture(side // 20, side // 20)).resize((side, side))
    data = file_of(np.asarray(grains), "JPEG")
    whole = Image.fromarray(images.decode(data)).resize((112, 112), Image.Resampling.BICUBIC)
    assert np.abs(stretched(data, (112, 112)).astype(int) - np.asarray(whole)).mean() < 6


@pytest.mark.parametrize("wanted", [(144, 144), (126, 162), (180, 90)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_enlarged_picture_is_interpolated(kind, wanted):
    grains = Image.fromarray(picture(12, 12)).resize((72, 72), Image.Resampling.BICUBIC)
    data = file_of(np.asarray(grains), kind)
    ours = stretched(data, wanted).astype(int)
    pillows = Image.fromarray(images.decode(data)).resize(wanted[::-1], Image.Resampling.BILINEAR)
    assert np.abs(ours - np.asarray(pillows)).mean() < 1


@pytest.mark.parametrize(
    ("sample", "error", "says"),
    [
        (["text"], TypeError, "turn texts into numbers"),
        ([[1, TOKEN]], ValueError, "that token too"),
        ([[[1, 2]]], TypeError, "arrays of tokens"),
        (b"bytes", TypeError, r"sample\['content'\]"),
        ({"content": []}, TypeError, r"sample\['content'\]"),
        ([[1], b"no picture"], DamagedData, "truncated, or not"),
        ([FILES[0][:40]], DamagedData, "truncated, or not"),
    ],
)
def test_a_sample_that_is_none_says_what_is_needed(sample, error, says):
    with pytest.raises(error, match=says):
        small(sample)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"image_token": -1}, ValueError, "image_token of images.image_text"),
        ({"patch": 0}, ValueError, "patch of images.image_text"),
        ({"pixels": (1, 2, 3)}, TypeError, "pixels of images.image_text"),
        ({"pixels": (200, 100)}, ValueError, "fewest, most"),
        ({"patch": 16, "pixels": (1, 255)}, ValueError, "at least 256"),
        ({"sizes": [(28, 27)]}, ValueError, "multiples of patch x merge = 14"),
        ({"sizes": []}, ValueError, "multiples of patch x merge"),
    ],
)
def test_wrong_arguments_say_what_is_needed(given, error, says):
    with pytest.raises(error, match=says):
        images.image_text(**{"image_token": TOKEN, **given})


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_lengths_are_known_where_only_the_header_is_there(kind):
    data = file_of(picture(200, 300), kind)
    whole = small([data])
    made = small.lazily(0)([data[: len(data) // 2]])
    assert made["patches"].shape == whole["patches"].shape
    assert np.array_equal(made["tokens"], whole["tokens"])


def test_a_picture_that_would_fill_the_memory_is_refused_by_its_header(monkeypatch):
    for kind in ("PNG", "JPEG"):
        data = file_of(np.zeros((5000, 5000, 3), np.uint8), kind)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000_000)
        with pytest.raises(DamagedData, match="made to fill the memory"):
            small.lazily(0)([data])


@given(documents, st.integers(0, 3), st.integers(0, 3), st.integers(1, 5))
@example([[FILES[0], [1], FILES[1]], [FILES[2]], [], [FILES[1]]], 2, 0, 3)
@examples(100)
def test_packs_decode_later_what_they_would_have_packed_decoded(samples, threads, seed, window):
    def packed(fn):
        plan = Pipeline(lambda: iter(samples)).map(fn, threads=threads).shuffle(2, seed=1)
        return plan.pack(256, fields=["patches", "grid"], window=window, seed=seed)

    later, now = see(packed(small)), see(packed(decoded))
    assert later == now
    assert now.error in (None, FeedMismatch)  # there may be nothing to pack


@given(documents, st.integers(1, 5))
@examples(60)
def test_a_position_in_packed_pictures_is_a_place(samples, window):
    def plan():
        mapped = Pipeline(lambda: iter(samples)).map(small, threads=2)
        return mapped.pack(256, fields=["patches", "grid"], window=window, seed=3)

    whole = see(plan())
    for place, position in enumerate(whole.positions):
        rest = see(plan(), position)
        assert rest.samples == whole.samples[place:]


@given(documents, st.integers(0, 2), st.integers(1, 5), st.sampled_from([12, 40]))
@example([[FILES[0], [1], FILES[1]], [FILES[2]], [], [[7]]], 2, 3, 40)
@examples(100)
def test_tokens_and_patches_of_a_document_lie_in_one_row(samples, threads, window, most):
    """Every document that fits is there once, and as many patches as its tokens stand for."""
    size = {"tokens": most, "patches": 128, "grid": 128}

    def packed(fn):
        plan = Pipeline(lambda: iter(samples)).map(fn, threads=threads)
        return plan.pack(size, longer="drop", window=window, seed=0)

    later = see(packed(small))
    assert later == see(packed(decoded))
    if later.error is not None:  # there is nothing to pack
        return
    found = []
    for row in packed(small)():
        for number in range(1, 1 + max(row["tokens_segment_ids"])):
            tokens = row["tokens"][row["tokens_segment_ids"] == number].tolist()
            mine = row["patches_segment_ids"] == number
            assert tokens.count(TOKEN) * 4 == mine.sum()
            assert (row["grid_segment_ids"] == row["patches_segment_ids"]).all()
            found.append((tokens, row["patches"][mine].tolist(), row["grid"][mine].tolist()))
    wanted = [tuple(made[name].tolist() for name in size) for made in map(small, samples)]
    fitting = [each for each in wanted if 0 < len(each[0]) <= most and len(each[1]) <= 128]
    assert sorted(found) == sorted(fitting)


@pytest.mark.parametrize(
    "mapped",
    [
        lambda rows: rows.map(small),
        lambda rows: rows.map(small, threads=2, on_error="skip"),
        lambda rows: rows.map(small).map(dict).cache(),
    ],
)
def test_a_pack_of_pictures_does_not_cut_tokens_from_them(mapped):
    rows = mapped(Pipeline(lambda: iter([[FILES[0]]])))
    with pytest.raises(ValueError, match="cuts tokens from their pictures: type 'drop'"):
        rows.pack({"tokens": 1, "patches": 128, "grid": 128}, longer="truncate")


def test_a_pack_of_one_length_says_that_tokens_and_patches_have_two():
    rows = Pipeline(lambda: iter([[[1], FILES[0]]])).map(small)
    with pytest.raises(FeedMismatch, match="give each a length, as in pack"):
        list(rows.pack(64)())


class Counted:
    """A function whose pictures are counted when they are decoded."""

    def __init__(self):
        self.decoded = 0

    def __call__(self, sample):
        raise AssertionError("decoded while rows are planned")

    def lazily(self, threads):
        def planned(sample):
            made = small.lazily(threads)(sample)
            column = made["patches"]

            def counted():
                self.decoded += 1
                return column.whole()

            return {**made, "patches": MadeRows([counted], [len(column)], column.kind, threads)}

        return planned


def test_a_pack_decodes_no_picture_before_its_row():
    counted = Counted()
    rows = Pipeline(lambda: iter([[FILES[0]]] * 20)).map(counted)
    packed = rows.pack(1 << 16, fields=["patches"], window=10, seed=0)
    here = start(packed, None)
    next(here.items)
    assert counted.decoded == 10  # of the first row, which has all of its window
    here.close()


@pytest.mark.parametrize("way", ["shuffle", "chain", "mix", "pipeline", "prefetch", "shard"])
def test_what_hands_samples_on_has_them_decoded_later(way):
    rows = Pipeline(lambda: iter([[FILES[0]]] * 4)).map(small)
    plans = {
        "shuffle": shuffle(rows, 3, seed=0),
        "chain": chain(rows, rows),
        "mix": mix([rows, rows], seed=0),
        "pipeline": rows,
        "prefetch": rows.prefetch(2),
        "shard": rows.shard(2, 0),
    }
    lazily = made_lazily(plans[way], (chain, mix))
    assert all(isinstance(sample["patches"], MadeRows) for sample in lazily())


@pytest.mark.parametrize("way", ["map", "filter", "skip errors", "cache"])
def test_what_looks_into_samples_has_them_decoded(way):
    rows = Pipeline(lambda: iter([[FILES[0]]] * 4))
    plans = {
        "map": rows.map(small).map(dict),
        "filter": rows.map(small).filter(bool),
        "skip errors": rows.map(small, on_error="skip"),
        "cache": rows.map(small).cache(),
    }
    assert all(isinstance(s["patches"], np.ndarray) for s in made_lazily(plans[way])())


@pytest.mark.parametrize("window", [1, None])
def test_a_damaged_picture_raises_in_its_row_and_says_which_part_it_is(window):
    whole = file_of(picture(40, 40))  # 64 patches

    def packed(data):
        samples = [[[n], data if n == 5 else whole] for n in range(10)]
        rows = Pipeline(lambda: iter(samples)).map(small, threads=2)
        return rows.pack(64, fields=["patches"], window=window, seed=0)

    good, seen = see(packed(file_of(picture(40, 40, 1)))), see(packed(whole[:100]))
    (row,) = (n for n, each in enumerate(good.samples) if good.samples.count(each) == 1)
    assert seen.samples == good.samples[:row]
    assert seen.error is DamagedData
    with pytest.raises(DamagedData) as caught:
        list(packed(whole[:100])())
    assert "in part 1 of its document" in caught.value.__notes__


@pytest.mark.parametrize("turned", [False, True])
def test_pictures_decoded_before_and_later_are_packed_together(turned):
    later, now = Counted(), Pipeline(lambda: iter([[[5], FILES[2]]])).map(decoded)
    both = [Pipeline(lambda: iter([[[4], FILES[0]], [[6]]])).map(later), now]

    def packed(first, second):
        rows = Pipeline(chain(first, second))
        return list(rows.pack(256, fields=["patches", "grid"], seed=0)())

    ordered = both[::-1] if turned else both
    (row,) = packed(*ordered)
    assert later.decoded == 1
    wanted = [small([[5], FILES[2]]), small([[4], FILES[0]])]
    found = [row["patches"][row["segment_ids"] == number].tolist() for number in (1, 2)]
    assert sorted(found) == sorted(made["patches"].tolist() for made in wanted)


def test_patches_of_two_sizes_are_not_packed_together():
    other = images.image_text(TOKEN, patch=3, pixels=(16, 256))
    rows = chain(
        Pipeline(lambda: iter([[FILES[0]]])).map(small),
        Pipeline(lambda: iter([[FILES[0]]])).map(other),
    )
    with pytest.raises(FeedMismatch, match="one dtype and shape"):
        list(Pipeline(rows).pack(64, fields=["patches"])())


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(0, 3), st.data())
@examples(200)
def test_spans_are_those_of_all_rows_and_make_only_what_they_need(lengths, threads, data):
    asked = []
    whole = np.arange(sum(lengths))
    ends = np.cumsum([0, *lengths])

    def maker(number):
        def make():
            asked.append(number)
            return whole[ends[number] : ends[number + 1]]

        return make

    column = MadeRows([*map(maker, range(len(lengths)))], lengths, (whole.dtype, ()), threads)
    spans = data.draw(
        st.lists(st.tuples(*[st.integers(0, len(whole))] * 2).map(sorted), max_size=4)
    )
    begins, stops = np.array(spans, int).reshape(-1, 2).T
    got = list(column.spans(begins, stops))
    assert [part.tolist() for part in got] == [list(range(*span)) for span in spans]
    needed = [
        number
        for low, high in spans
        for number in range(len(lengths))
        if max(low, ends[number]) < min(high, ends[number + 1])
    ]
    assert set(needed) <= set(asked)
    assert sum(lengths[number] > 0 for number in asked) == len(needed)
