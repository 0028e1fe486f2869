"""`tar` finds samples of WebDataset's layout by number, whoever wrote the archive."""

from __future__ import annotations

import gzip
import io
import os
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere, ends
from widths import examples

from jreader import Pipeline, batch, shuffle, tar
from jreader.errors import DamagedData
from jreader.readers import fingerprint, indexed
from jreader.sources.files.index_cache import save_index

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
SAMPLES = [
    {"__key__": "a/1", "jpg": b"pixels" * 100, "cls": b"7"},
    {"__key__": "a/2", "jpg": b"", "cls": b"8"},
    {"__key__": "b/2", "seg.png": b"\0" * 512, "txt": b"seen"},
]


def write_tar(path, samples, kind=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=kind) as archive:
        for sample in samples:
            for extension, content in sample.items():
                if extension != "__key__":
                    add(archive, f"{sample['__key__']}.{extension}", content)
    return path


def add(archive, name, content=b"", **options):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for option, value in options.items():
        setattr(member, option, value)
    archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("kind", FORMATS, ids=["ustar", "GNU", "pax"])
def test_members_of_one_key_are_a_sample(tmp_path, kind):
    reader = tar(write_tar(tmp_path / "a.tar", SAMPLES, kind))
    assert list(reader()) == SAMPLES
    assert len(reader) == 3
    check_resumes_everywhere(reader)


NAMES = st.text("aüb/é" * 30, min_size=1).filter(
    lambda name: name.strip("/") == name and "//" not in name
)


@examples(60)
@given(
    files=st.lists(
        st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=5), min_size=1, max_size=3
    ),
    kind=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_any_samples_come_back_from_any_place_on(tmp_path_factory, files, kind):
    folder = tmp_path_factory.mktemp("archives")
    every = []
    for number, members in enumerate(files):
        samples = [
            {"__key__": f"{place}{name * 3}", "bin": content, "cls": b"1"}
            for place, (name, content) in enumerate(members)
        ]
        write_tar(folder / f"{number}.tar", samples, kind)
        every += samples
    reader = tar(folder)
    assert list(reader()) == every
    check_resumes_everywhere(reader)
    assert indexed(reader).take(np.arange(len(every))[::-1]) == every[::-1]


def test_names_and_sizes_that_do_not_fit_into_a_header(tmp_path):
    samples = [{"__key__": f"{'folder/' * 40}{number}", "txt": b"long"} for number in range(3)]
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert list(tar(write_tar(tmp_path / "a.tar", samples, kind))()) == samples
    prefixed = [{"__key__": f"{'f' * 90}/{'g' * 60}", "txt": b"two parts"}]
    assert list(tar(write_tar(tmp_path / "b.tar", prefixed, tarfile.USTAR_FORMAT))()) == prefixed
    with tarfile.open(tmp_path / "c.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        add(archive, "1.txt", b"sized", pax_headers={"size": "5", "comment": "ü=\n"})
        add(archive, "2.txt", b"timed", mtime=1.5)
    assert [sample["txt"] for sample in tar(tmp_path / "c.tar")()] == [b"sized", b"timed"]


def test_what_is_no_part_of_a_sample_lies_between_its_members(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", pax_headers={"comment": "for all"}) as archive:
        add(archive, "data", type=tarfile.DIRTYPE)
        add(archive, "data/._1.jpg", b"of a Mac")
        add(archive, "data/1.jpg", b"1")
        add(archive, "link", type=tarfile.SYMTYPE, linkname="l" * 200)
        add(archive, "data/1.CLS", b"one")
        add(archive, "data/2.jpg", b"2")
        add(archive, "end", type=tarfile.DIRTYPE)
    assert list(tar(tmp_path / "a.tar")()) == [
        {"__key__": "data/1", "jpg": b"1", "cls": b"one"},
        {"__key__": "data/2", "jpg": b"2"},
    ]


OTHERS = ["README", "data/LICENSE", "__meta__/info.json", "__index__", "__x__/data/1.jpg"]


@pytest.mark.parametrize("other", OTHERS)
def test_what_webdataset_leaves_out_is_no_sample_and_splits_none(tmp_path, other):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in (other, "data/1.jpg", other, "data/1.cls", "data/2.jpg", other):
            add(archive, name, b"content")
    keys = [(sample["__key__"], len(sample)) for sample in tar(tmp_path / "a.tar")()]
    assert keys == [("data/1", 3), ("data/2", 2)]
    assert len(tar(tmp_path / "a.tar")) == 2


def test_an_archive_of_names_without_a_dot_is_an_error_and_not_empty(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        add(archive, "0001", b"content")
    with pytest.raises(ValueError, match=r"a\.tar has no sample: .* such as '0001'. Name them key"):
        len(tar(tmp_path / "a.tar"))


def test_samples_name_their_archive_where_it_is_asked_for(tmp_path):
    paths = [str(write_tar(tmp_path / f"{n}.tar", [SAMPLES[n]])) for n in (0, 1)]
    reader = tar(paths, with_url=True)
    assert list(reader()) == [{"__url__": paths[n], **SAMPLES[n]} for n in (0, 1)]
    assert "with_url=True" in repr(reader)
    assert fingerprint(reader) != fingerprint(tar(paths)) == fingerprint(tar(paths, with_url=False))


def test_a_key_that_comes_again_later_is_another_sample(tmp_path):
    samples = [SAMPLES[0], SAMPLES[1], SAMPLES[0]]
    assert list(tar(write_tar(tmp_path / "a.tar", samples))()) == samples


def test_archives_end_to_end_are_all_read(tmp_path):
    one = write_tar(tmp_path / "one", SAMPLES).read_bytes()
    (tmp_path / "a.tar").write_bytes(one + one)
    assert list(tar(tmp_path / "a.tar")()) == SAMPLES * 2


def test_an_archive_without_members_has_no_samples(tmp_path):
    paths = [write_tar(tmp_path / "0.tar", []), write_tar(tmp_path / "1.tar", SAMPLES)]
    assert list(tar(paths)()) == SAMPLES
    assert list(tar(paths[0])()) == []


def test_a_shuffle_is_global_and_a_loader_names_files_and_bytes(tmp_path):
    keys = [{"__key__": f"{number:03}", "cls": b"%d" % number} for number in range(60)]
    paths = [write_tar(tmp_path / f"{low}.tar", keys[low : low + 30]) for low in (0, 30)]
    batches = list(batch(shuffle(tar(paths), seed=1), 10)())
    assert sorted(int(sample["cls"]) for each in batches for sample in each) == [*range(60)]
    labels = (
        Pipeline(tar(paths))
        .batch(31)
        .map_batches(
            lambda batch: np.array([int(sample["cls"]) for sample in batch]), stacked=False
        )
    )
    told = labels.load(sharding="host").samples(0)
    assert tuple(told.files[1]) == (str(paths[0]), 1024)
    assert tuple(told.files[30]) == (str(paths[1]), 0)


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path):
        return write_tar(tmp_path / "a.tar", SAMPLES, tarfile.USTAR_FORMAT)

    def test_an_archive_truncated_anywhere_gives_its_whole_samples_and_then_an_error(self, path):
        content = path.read_bytes()
        with tarfile.open(path) as archive:
            members = archive.getmembers()
        ends_at = [
            members[place].offset_data + 512 * -(-members[place].size // 512) for place in (1, 3, 5)
        ]
        for kept in [*range(1, 4000, 97), *range(512, ends_at[-1] + 1, 512)]:
            path.write_bytes(content[:kept])
            samples, error = ends(tar(path)())
            assert samples == SAMPLES[: sum(kept >= end + 512 for end in ends_at[:-1])]
            assert isinstance(error, DamagedData)
            assert str(error).startswith(f"{path} is truncated")
            assert "byte" in str(error)

    def test_the_last_sample_of_an_archive_without_an_end_may_lack_a_part(self, path):
        content = path.read_bytes()
        path.write_bytes(content.rstrip(b"\0") + bytes(-len(content.rstrip(b"\0")) % 512))
        samples, error = ends(tar(path)())
        assert samples == SAMPLES[:2]
        assert "append 1024 zero bytes" in str(error)
        path.write_bytes(path.read_bytes() + bytes(1024))
        assert list(tar(path)()) == SAMPLES

    def test_a_bit_changed_in_a_header_is_an_error_that_names_its_byte(self, path):
        content = path.read_bytes()
        with tarfile.open(path) as archive:
            headers = [member.offset for member in archive.getmembers()]
        for number, header in enumerate(headers):
            wrong = bytearray(content)
            wrong[header + 130] ^= 1
            path.write_bytes(wrong)
            samples, error = ends(tar(path)())
            whole = number // 2 - (number % 2 == 0)  # the one before could go on here
            assert samples == SAMPLES[: max(whole, 0)]
            assert f"byte {header:,}" in str(error)

    def test_one_name_twice_in_a_sample_is_an_error(self, tmp_path):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            for name in ("0.txt", "1.txt", "1.TXT"):
                add(archive, name, b"text")
        samples, error = ends(tar(tmp_path / "a.tar")())
        assert [sample["__key__"] for sample in samples] == ["0"]
        assert "a sample has '1.TXT' twice (byte 2,048)" in str(error)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "it is empty"),
            (gzip.compress(bytes(2048)), r"those of a gzip file.*unpack it \(gunzip\)"),
            (b"word " * 1000, r"no member begins there.*byte 0"),
        ],
        ids=["empty", "gzip", "text"],
    )
    def test_files_that_are_no_archives_are_named(self, path, content, said):
        path.write_bytes(content)
        with pytest.raises(DamagedData, match=rf"a\.tar is truncated, or not a tar.*{said}"):
            list(tar(path)())

    def test_a_sparse_file_is_an_error(self, tmp_path):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            add(archive, "1.bin", type=tarfile.GNUTYPE_SPARSE)
        with pytest.raises(DamagedData, match="a sparse file"):
            list(tar(tmp_path / "a.tar")())

    def test_a_file_that_was_cut_or_is_gone_is_an_error_of_the_next_pass(self, path):
        reader = tar(path)
        assert list(reader()) == SAMPLES
        os.truncate(path, 512)
        with pytest.raises(DamagedData, match=r"a\.tar had .* and has 512 now"):
            list(reader())
        path.unlink()
        with pytest.raises(DamagedData, match=r"a\.tar cannot be found"):
            list(reader())


def test_the_index_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("jreader.sources.files.index_cache._WORTH", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_tar(tmp_path / "a.tar", SAMPLES)
    for _ in range(2):
        assert list(tar(path)()) == SAMPLES
    (index,) = (tmp_path / "cache/jreader/tar").iterdir()
    save_index(index, np.load(index)[[0, 2, 3]])
    with pytest.raises(DamagedData, match="another sample begins"):
        list(tar(path)())


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:Exception ignored in")  # its readers do not close their files
def test_samples_are_those_of_webdataset(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for sample in SAMPLES[:2]:
            writer.write(sample)
    theirs = [
        {name: part for name, part in sample.items() if name == "__key__" or name[0] != "_"}
        for sample in webdataset.WebDataset(str(tmp_path / "a.tar"), shardshuffle=False)
    ]
    assert list(tar(tmp_path / "a.tar")()) == theirs == SAMPLES[:2]


class TestZeros:
    """What a full disk, or a copy that broke off, leaves of a shard."""

    @pytest.mark.parametrize("size", [10_752, 1 << 20])
    def test_of_nothing_else_are_no_empty_archive(self, tmp_path, size):
        (tmp_path / "a.tar").write_bytes(bytes(size))
        for reader in (tar(tmp_path / "a.tar"), tar(tmp_path / "*.tar")):
            with pytest.raises(DamagedData, match=r"a\.tar is .*more than 10,240 zeros"):
                list(reader())

    def test_of_one_record_are_an_archive_of_nothing(self, tmp_path):
        (tmp_path / "a.tar").write_bytes(bytes(10_240))
        assert list(tar(tmp_path / "a.tar")()) == []

    def test_behind_the_last_member_are_its_end_or_what_is_lost(self, tmp_path):
        path = write_tar(tmp_path / "a.tar", SAMPLES)
        with path.open("ab") as file:
            file.write(bytes(1 << 19))
        assert list(tar(path)()) == SAMPLES
        with path.open("ab") as file:
            file.write(bytes(1 << 20))
        given = []
        with pytest.raises(DamagedData, match="more than 1,048,576 zeros"):
            given.extend(tar(path)())
        assert given == SAMPLES
