"""`text`, and `jsonl` of gzip, read lines, and go on at any byte where one begins."""

import gzip
from pathlib import Path

import pytest
from files import write
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere
from widths import examples

from jreader import arrays, jsonl, text
from jreader.errors import DamagedData, NotResumable
from jreader.readers import start

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
TEXTS = [
    b"",
    b"one",
    b"one\n",
    b"\n",
    b"\n\n\n",
    b"one\r\ntwo\r\n",
    b"one\r\ntwo",
    b"one\rtwo\r",
    b"\r\n\r\n",
    b"one\n\n\ntwo\n",
    "grün\nüber\n\u2028\x0b\x85\n".encode(),
]


def opened_files():
    return {str(entry.resolve()) for entry in Path("/proc/self/fd").iterdir()}


def lines_of(content):
    """What `text` has to give, said in another way: by splitting the whole."""
    parts = content.decode().split("\n")
    ended = [part.removesuffix("\r") for part in parts[:-1]]
    return ended + ([parts[-1]] if parts[-1] else [])


def write_lines(folder, contents, *, packed):
    end = ".txt.gz" if packed else ".txt"
    return [
        write(folder / f"{number}{end}", content, packed=packed)
        for number, content in enumerate(contents)
    ]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("content", TEXTS)
def test_lines_come_without_their_ends_from_any_place_on(content, packed, tmp_path):
    reader = text(*write_lines(tmp_path, [content], packed=packed))
    assert list(reader()) == lines_of(content)
    check_resumes_everywhere(reader)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_files_follow_one_another_from_any_place_on(packed, tmp_path):
    reader = text(*write_lines(tmp_path, TEXTS, packed=packed))
    assert list(reader()) == [line for content in TEXTS for line in lines_of(content)]
    check_resumes_everywhere(reader)


@examples(60)
@given(
    contents=st.lists(st.text("ab\r\n\x00ü").map(str.encode), min_size=1, max_size=3),
    packed=st.booleans(),
)
def test_any_text_is_cut_into_its_lines_from_any_place_on(tmp_path_factory, contents, packed):
    reader = text(*write_lines(tmp_path_factory.mktemp("lines"), contents, packed=packed))
    assert list(reader()) == [line for content in contents for line in lines_of(content)]
    check_resumes_everywhere(reader)


def test_going_on_reads_nothing_that_lies_before(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xff\n" + b"good\n")
    assert list(start(text(tmp_path / "a.txt"), [0, 3]).items) == ["good"]


def test_the_position_is_file_and_byte(tmp_path):
    (tmp_path / "a").write_bytes(b"ab\r\ncd\n")
    (tmp_path / "b").write_bytes(b"e")
    up = start(text(tmp_path / "a", tmp_path / "b"))
    places = [up.position(), *(up.position() for _ in up.items), up.position()]
    assert places == [(0, 0), (0, 4), (0, 7), (1, 1), (2, 0)]


def test_a_position_can_be_asked_for_after_the_pass_was_closed(tmp_path):
    (tmp_path / "a").write_bytes(b"ab\ncd\n")
    up = start(text(tmp_path / "a"))
    assert next(up.items) == "ab"
    up.close()
    assert up.position() == (0, 3)
    assert list(up.items) == []


def test_other_encodings_are_read_where_lines_end_in_one_byte(tmp_path):
    for encoding in ("latin-1", "cp1252", "gb18030", "shift-jis", "utf-8-sig"):
        words = ["日本", "語"] if encoding in ("gb18030", "shift-jis") else ["grün", "blau"]
        (tmp_path / "a").write_bytes("\r\n".join(words).encode(encoding))
        reader = text(tmp_path / "a", encoding=encoding)
        assert list(reader()) == words
        assert repr(reader).endswith(f", encoding={encoding!r})")
        check_resumes_everywhere(reader)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp037", "no such"])
def test_encodings_whose_lines_cannot_be_told_apart_are_refused(encoding, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ValueError, match=f"such as 'utf-8', .* not {encoding!r}"):
        text(tmp_path / "a", encoding=encoding)


@pytest.mark.parametrize("encoding", [None, 8, b"utf-8"])
def test_an_encoding_that_is_no_name_is_refused(encoding, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(TypeError, match=f"needs the name of an encoding, .* not {encoding!r}"):
        text(tmp_path / "a", encoding=encoding)


def test_a_line_of_another_encoding_is_named_by_its_byte(tmp_path):
    (tmp_path / "a").write_bytes(b"good\n" + "gr\xfcn\n".encode("latin-1"))
    items = text(tmp_path / "a")()
    assert next(items) == "good"
    with pytest.raises(DamagedData, match=r"a is truncated.*line at byte 5 .*utf-8"):
        next(items)


@pytest.mark.parametrize("creator", [text, jsonl])
def test_a_gzip_file_truncated_anywhere_is_named_after_its_good_lines(creator, tmp_path):
    content = gzip.compress(b"1\n2\n3\n")
    for kept in range(len(content)):
        (tmp_path / "a.gz").write_bytes(content[:kept])
        with pytest.raises(DamagedData, match=r"a\.gz is truncated"):
            list(creator(tmp_path / "a.gz")())


@pytest.mark.parametrize("creator", [text, jsonl])
def test_a_bit_changed_in_a_gzip_file_is_an_error_at_its_end_at_the_latest(creator, tmp_path):
    packed = gzip.compress(b"".join(b"%d\n" % (number**3) for number in range(20_000)))
    for at in range(
        10, len(packed), len(packed) // 20
    ):  # its header, of ten bytes, has no checksum
        changed = bytearray(packed)
        changed[at] ^= 1 << at % 8
        (tmp_path / "a.gz").write_bytes(changed)
        with pytest.raises(DamagedData, match=r"a\.gz"):
            list(creator(tmp_path / "a.gz")())


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_place_where_no_line_begins_any_more_is_refused(packed, tmp_path):
    reader = text(*write_lines(tmp_path, [b"ab\ncd"], packed=packed))
    with pytest.raises(NotResumable, match=r"byte 6 of .* changed"):
        list(start(reader, [0, 6]).items)
    with pytest.raises(NotResumable, match="byte 2 of"):
        list(start(reader, [0, 2]).items)
    assert list(start(reader, [0, 5]).items) == []


@needs_proc
@pytest.mark.parametrize(
    ("creator", "packed"),
    [(text, False), (text, True), (jsonl, True)],
    ids=["plain", "gzip", "gzip of JSON"],
)
def test_files_are_closed_at_the_end_on_close_and_when_dropped(creator, packed, tmp_path):
    (path,) = write_lines(tmp_path, [b"1\n2\n"], packed=packed)
    reader = creator(path)
    up = start(reader)
    assert str(path) not in opened_files()
    next(up.items)
    assert str(path) in opened_files()
    up.close()
    assert str(path) not in opened_files()
    list(reader())
    assert str(path) not in opened_files()
    items = reader()
    next(items)
    assert str(path) in opened_files()
    del items
    assert str(path) not in opened_files()


@needs_proc
def test_files_are_closed_after_an_error(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"1\n\xff\n")
    items = text(path)()
    with pytest.raises(DamagedData):
        list(items)
    assert str(path) not in opened_files()


def test_two_passes_of_one_reader_do_not_disturb_each_other(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    one, two = text(tmp_path / "a")(), text(tmp_path / "a")()
    assert [next(one), next(one), next(two), next(one), next(two)] == ["1", "2", "1", "3", "2"]


def test_next_after_the_end_is_still_the_end(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n")
    for items in (text(tmp_path / "a")(), arrays([1])()):
        next(items)
        assert [next(items, "end"), next(items, "end")] == ["end", "end"]
