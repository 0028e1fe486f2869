"""`block=`: files whose samples are found by number, read a run of samples at a time."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import check_resumes_everywhere
from tfrecords import framed

import jreader
from jreader import (
    DamagedData,
    Pipeline,
    Store,
    arrays,
    at_epoch,
    chain,
    compose,
    jsonl,
    shuffle,
    tar,
    tfrecord,
)
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.readers import indexed, start
from jreader.readers.columns import run_begins
from jreader.readers.fingerprints import fingerprint
from jreader.readers.trees import leaves
from jreader.sources.files.byte_ranges import LocalFile

COUNT = 60


def line(number):
    return json.dumps({"n": number, "text": "x" * (number % 7)}).encode() + b"\n"


def archive(numbers):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for number in numbers:
            member = tarfile.TarInfo(f"{number:04}.txt")
            member.size = len(text := b"%d" % number)
            made.addfile(member, io.BytesIO(text))
    return out.getvalue()


FORMATS = {
    "jsonl": (jsonl, lambda numbers: b"".join(map(line, numbers)), lambda s: s["n"], "200B"),
    "tar": (tar, archive, lambda s: int(s["txt"]), 4096),
    "tfrecord": (tfrecord, lambda n: b"".join(framed(b"%d" % each) for each in n), int, 100),
}


@pytest.fixture(params=FORMATS)
def kind(request):
    if request.param == "tfrecord":
        pytest.importorskip("google_crc32c")
    return request.param


@pytest.fixture
def made(kind, tmp_path):
    """Readers of two files with sixty numbers; and what number a sample has."""
    reader, content, number_of, block = FORMATS[kind]
    for part in (range(25), range(25, COUNT)):
        (tmp_path / f"{part[0]:02}.{kind}").write_bytes(content(part))

    def open_it(block=block, **more):
        return reader(f"{tmp_path}/*.{kind}", block=block, **more)

    return open_it, number_of


@pytest.fixture
def asked(monkeypatch):
    """The bytes of each range of files here that is read."""
    sizes, read = [], LocalFile.read

    def noted(self, offset, size):
        sizes.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(LocalFile, "read", noted)
    return sizes


def numbers(plan, number_of):
    return [number_of(sample) for sample in plan()]


class TestWhatABlockIs:
    @given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 20))
    def test_it_is_full_unless_a_sample_is_larger(self, sizes, size):
        starts = run_begins(np.cumsum([0, *sizes]), size)
        runs = [sizes[low:high] for low, high in pairwise([*starts, len(sizes)])]
        assert [each for run in runs for each in run] == sizes
        assert all(sum(run) <= size or len(run) == 1 for run in runs)
        assert all(sum(run) + following[0] > size for run, following in pairwise(runs))

    def test_a_block_ends_with_its_file(self, made):
        open_it, _ = made
        assert indexed(open_it(1 << 30)).blocks.tolist() == [0, 25]
        assert indexed(open_it(1)).blocks.tolist() == [*range(COUNT)]

    def test_sizes_are_understood_as_a_store_does(self, made):
        open_it, _ = made
        assert [open_it(size).block for size in ("4MB", "1KiB", 7)] == [4_000_000, 1024, 7]
        assert "block=4000000" in repr(open_it("4MB"))

    @pytest.mark.parametrize("size", [0, -1, "0B", "much", 1.5, True])
    def test_other_sizes_are_refused(self, made, size):
        open_it, _ = made
        with pytest.raises((ValueError, TypeError), match=r"block of .*needs"):
            open_it(size)


class TestShuffledByBlocks:
    def test_all_samples_come_once_in_another_order_each_epoch(self, made):
        open_it, number_of = made
        plan = shuffle(open_it(), seed=0, blocks=3)
        orders = [numbers(at_epoch(plan, epoch), number_of) for epoch in range(3)]
        assert all(sorted(order) == [*range(COUNT)] for order in orders)
        assert len({*map(tuple, orders)}) == 3
        for size in (1, 7, 64):
            batches = Pipeline(plan).batch(size)
            assert [number_of(sample) for each in batches for sample in each] == orders[0]
        plain = [number_of(sample) for sample in plan.start(None).items]
        assert plain == orders[0]

    def test_a_block_shuffle_resumes_everywhere(self, made):
        check_resumes_everywhere(Pipeline(shuffle(made[0](), seed=0, blocks=2)))
        check_resumes_everywhere(Pipeline(shuffle(made[0](), seed=0, blocks=2)).batch(7))

    def test_a_sample_by_its_number_reads_that_sample_alone(self, made, asked):
        open_it, number_of = made
        plan = Pipeline(shuffle(open_it(), seed=0, blocks=2))
        whole = numbers(plan, number_of)
        for number in (3, 40, 50):
            asked.clear()
            assert number_of(plan[whole.index(number)]) == number
            assert len(asked) == 1
            assert asked[0] < indexed(open_it()).columns.block_bytes / 2
        rows = np.array([0, 30, 59])
        assert indexed(plan).columns.where(rows) == indexed(open_it()).columns.where(rows)

    def test_each_block_is_read_once_an_epoch_in_one_go(self, made, asked):
        open_it, _ = made
        plan = Pipeline(shuffle(open_it(), seed=0, blocks=4))
        blocks = len(indexed(open_it()).blocks)
        for read in (lambda: [*plan], lambda: [*plan.batch(8)]):
            asked.clear()
            read()
            assert len(asked) == blocks
            assert sum(asked) == sum(file.size for file in indexed(plan).columns.by_row.files)

    @pytest.mark.parametrize("hosts", [1, 3, 6])
    def test_a_host_reads_the_blocks_of_its_rows_alone(self, made, asked, hosts):
        open_it, number_of = made
        whole = numbers(shuffle(open_it(), seed=3, blocks=2), number_of)
        starts = indexed(open_it()).blocks
        for host in range(hosts):
            plan = jreader.batch(shuffle(open_it(), seed=3, blocks=2), 2 * hosts)
            assert len(plan)  # the files are open
            share = Share(2 * hosts, ((2 * host, 2 * host + 2),))
            asked.clear()
            mine = [[number_of(each) for each in part] for part in dealt_to(plan, share)()]
            assert mine == [whole[low : low + 2] for low in range(2 * host, COUNT, 2 * hosts)]
            needed = np.unique(starts.searchsorted(np.concatenate(mine), "right"))
            assert len(asked) == len(needed)
            assert hosts < 6 or len(needed) < len(starts)

    @pytest.mark.parametrize("hosts", [1, 2, 4])
    def test_hosts_that_own_blocks_read_each_once_by_all_together(self, made, asked, hosts):
        open_it, number_of = made
        size, found = 8 // hosts, []
        starts = indexed(open_it(1)).blocks
        plans = [
            jreader.batch(shuffle(open_it(1), seed=3, blocks=4, lanes=4), 8) for _ in range(hosts)
        ]
        for plan in plans:
            assert len(plan)  # the files are open
        asked.clear()
        for host, plan in enumerate(plans):
            share = Share(8, ((size * host, size * host + size),))
            found += [number_of(each) for part in dealt_to(plan, share)() for each in part]
        assert sorted(found) == [*range(COUNT)]
        assert len(asked) == len(starts)

    def test_what_workers_map_comes_in_the_same_order(self, made):
        open_it, number_of = made
        plan = Pipeline(shuffle(open_it(), seed=3, blocks=2))
        assert [*plan.map(number_of, threads=2)] == numbers(plan, number_of)


class TestElsewhereInPlans:
    def test_without_blocks_of_a_shuffle_nothing_changes(self, made):
        open_it, _ = made
        for change in (
            lambda reader: reader,
            lambda reader: shuffle(reader, seed=0),
            lambda reader: jreader.shard(shuffle(reader, seed=1), 2, 0),
            lambda reader: jreader.batch(reader, 4),
        ):
            with_blocks, without = change(open_it()), change(open_it(None))
            assert list(with_blocks()) == list(without())
            assert fingerprint(with_blocks) == fingerprint(without)

    def test_the_cursor_of_a_block_shuffle_knows_other_blocks(self, made):
        open_it, _ = made
        plans = [shuffle(reader, seed=0, blocks=2) for reader in (open_it(), open_it(1))]
        assert fingerprint(plans[0])["ops"] != fingerprint(plans[1])["ops"]

    def test_chains_cuts_and_neighbours_stay_in_blocks(self, made):
        open_it, number_of = made
        both = chain(open_it(), open_it(1 << 30), jreader.skip(open_it(), 3))
        mixed = compose(jreader.firstn(both, 130), arrays(np.arange(130)))
        plan = Pipeline(mixed).map(lambda pair: (number_of(pair[0]), int(pair[1]))).prefetch(2)
        plan = plan.shuffle(seed=0, blocks=3)
        expected = [*range(COUNT), *range(COUNT), *range(3, 13)]
        assert sorted(plan, key=lambda pair: pair[1]) == [*zip(expected, range(130), strict=True)]
        assert [*plan.batch(7).unbatch()] == [*plan]

    def test_a_chain_with_blocks_of_another_kind(self, made, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow.parquet import write_table  # noqa: PLC0415  # an extra

        open_it, number_of = made
        write_table(pa.table({"n": range(30)}), tmp_path / "a.parquet", row_group_size=7)
        rows = jreader.parquet(tmp_path / "a.parquet", columns="n")
        plan = Pipeline(chain(rows, open_it(), rows)).shuffle(seed=0, blocks=5)
        found = [int(s) if isinstance(s, np.int64) else number_of(s) for s in plan]
        assert sorted(found) == sorted([*range(30), *range(COUNT), *range(30)])
        assert [*plan.batch(9).unbatch()] == [*plan]

    def test_a_shuffle_by_blocks_of_none_says_which_reader_needs_them(self, made, kind):
        open_it, _ = made
        for reader in (open_it(None), chain(open_it(), open_it(None))):
            with pytest.raises(ValueError, match=rf"type {kind}\(\.\.\., block='4MB'\)"):
                shuffle(reader, seed=0, blocks=2)

    def test_packed_lines_have_no_blocks(self, tmp_path):
        (tmp_path / "a.jsonl.gz").write_bytes(b"")
        with pytest.raises(
            ValueError,
            match=r"reads compressed files and parts.*unpack the files, or leave block out",
        ):
            jsonl(tmp_path / "a.jsonl.gz", block="4MB")


class TestWhatIsWrong:
    def test_an_error_comes_after_the_good_samples_before_it(self, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(b"".join(map(line, range(40))) + b"{damaged\n")
        good = shuffle(jsonl(tmp_path / "a.jsonl", block=99), seed=0, blocks=3)
        here, found = start(good), []
        with pytest.raises(DamagedData, match=r"a.jsonl.*the line at byte"):
            found.extend(sample["n"] for sample in here.items)
        rows = indexed(good).route(np.arange(41))[0].tolist()
        assert found == rows[: rows.index(40)]

    def test_a_file_that_changes_in_a_pass_is_an_error(self, made, tmp_path, kind, monkeypatch):
        monkeypatch.setattr("jreader.sources.blocks.open_blocks._FEW", 1)
        open_it, _ = made
        items = iter(shuffle(open_it(1), seed=0, blocks=1)())
        next(items)
        for path in tmp_path.glob(f"*.{kind}"):
            path.write_bytes(b"")
        with pytest.raises(DamagedData, match="bytes"):
            list(items)


class TestFar:
    @pytest.fixture
    def far(self, kind, server):
        pytest.importorskip("fsspec")
        reader, content, number_of, block = FORMATS[kind]
        for part in (range(25), range(25, COUNT)):
            server.files[f"{part[0]:02}.{kind}"] = content(part)
        urls = [f"{server.url}/{name}" for name in server.files]
        given = urls if kind != "jsonl" else [urls]
        return (lambda **more: reader(given, **{"block": block, **more})), number_of

    def test_an_epoch_asks_for_each_block_once_and_for_nothing_else(self, far, server):
        open_it, number_of = far
        reader = open_it()
        blocks = len(indexed(reader).blocks)
        plan = Pipeline(shuffle(reader, seed=0, blocks=3))
        for read in (lambda: [*plan], lambda: [each for part in plan.batch(7) for each in part]):
            server.asked.clear()
            server.sent.clear()
            assert sorted(map(number_of, read())) == [*range(COUNT)]
            assert len([each for each in server.asked if each[0] == "GET"]) == blocks
            assert server.sent == {name: len(data) for name, data in server.files.items()}

    def test_a_busy_server_changes_nothing(self, far, server, quick):
        open_it, number_of = far
        plan = shuffle(open_it(), seed=0, blocks=3)
        whole = numbers(plan, number_of)
        moods = itertools.cycle(["good", "drop", "half", 503, "good"])
        server.mood = lambda method, _name: next(moods) if method == "GET" else "good"
        assert numbers(plan, number_of) == whole

    def test_a_file_that_is_replaced_is_an_error_after_the_samples_before(
        self, far, server, quick, monkeypatch
    ):
        monkeypatch.setattr("jreader.sources.blocks.open_blocks._FEW", 1)
        open_it, number_of = far
        plan = shuffle(open_it(block=1), seed=0, blocks=1)
        whole, found = numbers(plan, number_of), []
        here = start(plan)
        found.append(number_of(next(here.items)))
        for name in server.files:
            server.files[name] = bytes(len(server.files[name]))
        with pytest.raises(DamagedData, match=r"another|changed"):
            found.extend(map(number_of, here.items))
        assert 1 <= len(found) < COUNT
        assert found == whole[: len(found)]

    def test_a_store_fetches_each_byte_once_for_all_epochs(self, far, server, tmp_path):
        open_it, number_of = far
        store = Store(tmp_path / "store", block=50)
        plan = shuffle(open_it(store=store), seed=0, blocks=3)
        server.sent.clear()
        for epoch in range(2):
            found = numbers(at_epoch(plan, epoch), number_of)
            assert sorted(found) == [*range(COUNT)]
        assert server.sent.total() <= sum(map(len, server.files.values()))


class TestRowsAndTokens:
    """Mapped into memory here, where an order is enough; read by blocks where they are far."""

    @pytest.fixture(params=["here", "far"])
    def placed(self, request, tmp_path):
        """Writes files, and gives their names here or on a server."""
        folder = tmp_path / "data"
        folder.mkdir()
        if request.param == "here":
            return folder, lambda name: folder / name, None
        pytest.importorskip("fsspec")
        server = request.getfixturevalue("server")

        def url(name):
            server.files[name] = (folder / name).read_bytes()
            return f"{server.url}/{name}"

        return folder, url, server

    @staticmethod
    def check(plan, without, expected, server):
        """All samples come once, alone or in batches, and far ones in few requests."""
        shuffled = Pipeline(shuffle(plan, seed=0, blocks=3))
        size = sum(map(len, server.files.values())) if server else 0
        rows, opened = None, indexed(plan)
        for read in (lambda: [*shuffled], lambda: [*shuffled.batch(7).unbatch()]):
            if server:
                server.asked.clear()
                server.sent.clear()
            found = [_plain(sample) for sample in read()]
            assert sorted(found) == sorted(map(_plain, expected))
            assert rows in (None, found)
            rows = found
            if server:
                gets = [each for each in server.asked if each[0] == "GET"]
                assert len(gets) <= len(opened.blocks) * len(leaves(opened.columns))
                assert 0.8 * size < server.sent.total() <= size
        with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
            leaves(next(iter(shuffled)))[0][...] = 1
        assert _plain(shuffled[5]) == rows[5]
        kept = leaves(indexed(shuffled).columns)
        assert server or all(column.arrays for column in kept)  # still mapped, nothing is held
        for place in (1, len(rows) // 2, len(rows)):
            rest = start(shuffled, place)
            assert [_plain(each) for each in rest.items] == rows[place:]
        assert [_plain(each) for each in plan()] == [_plain(each) for each in without()]
        assert fingerprint(plan) == fingerprint(without)

    def test_rows_of_arrays_side_by_side(self, placed):
        folder, name, server = placed
        rng = np.random.default_rng(0)
        pictures, labels = rng.integers(0, 255, (500, 8, 4), np.uint8), np.arange(500.0)
        np.save(folder / "pictures.npy", pictures)
        np.save(folder / "labels.npy", labels.reshape(-1, 1))
        given = name("pictures.npy"), name("labels.npy")
        plan = jreader.npy(*given, block="1kB")
        assert "block=1000" in repr(plan)
        expected = [*zip(pictures, labels.reshape(-1, 1), strict=True)]
        self.check(plan, jreader.npy(*given), expected, server)

    def test_documents_and_their_windows(self, placed):
        folder, name, server = placed
        ids = np.random.default_rng(0).integers(0, 50, 9000, np.uint16)
        ids.tofile(folder / "a.bin")
        given = name("a.bin")
        plan, without = (jreader.tokens(given, eos=0, block=size) for size in ("2kB", None))
        documents = [*without()]
        self.check(plan, without, documents, server)
        for stride in (None, 20):
            cut, uncut = (jreader.windows(each, 30, stride) for each in (plan, without))
            if stride is None:
                self.check(cut, uncut, [*uncut()], server)
            else:
                mixed = shuffle(cut, seed=0, blocks=2)
                assert sorted(map(_plain, mixed())) == sorted(map(_plain, uncut()))

    def test_chains_of_shards_stay_in_blocks(self, placed):
        folder, name, server = placed
        for part in range(3):
            np.save(folder / f"{part}.npy", np.arange(100 * part, 100 * part + 100).reshape(-1, 1))
        shards = [name(f"{part}.npy") for part in range(3)]
        plan = chain(*(jreader.npy(shard, block=80) for shard in shards))
        self.check(plan, chain(*map(jreader.npy, shards)), np.arange(300).reshape(-1, 1), server)

    def test_windows_of_documents_in_another_order_have_no_blocks(self, tmp_path):
        np.arange(1, 100, dtype=np.uint16).tofile(tmp_path / "a.bin")
        documents = jreader.tokens(tmp_path / "a.bin", eos=50, block=20)
        other = jreader.windows(chain(jreader.skip(documents, 1), documents), 4)
        assert indexed(other).blocks is None


def _plain(sample):
    return str([np.asarray(leaf).tolist() for leaf in leaves(sample)])
