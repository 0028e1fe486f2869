"""Damaged tables are errors that name the file, whichever bit is another one: no crash, no None.

pyarrow follows the offsets of a file without a look at them, so each program here reads many
damaged copies: one crash ends it.
"""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

import jreader  # noqa: E402  # after what is optional
from jreader.errors import DamagedData  # noqa: E402  # likewise

READ = """
    import random
    from pathlib import Path

    import pyarrow as pa

    import jreader

    kind, folder = {kind!r}, Path({folder!r})
    rows = 40
    table = pa.table({{
        "x": pa.array(range(rows), pa.float32()),
        "text": [f"text {{n}}" * (n % 4) for n in range(rows)],
        "bytes": [bytes([n]) * (n % 5) for n in range(rows)],
        "ids": [list(range(n % 5)) for n in range(rows)],
        "texts": [[str(n)] * (n % 3) for n in range(rows)],
        "class": pa.array([f"c{{n % 3}}" for n in range(rows)]).dictionary_encode(),
        "point": [{{"a": n, "t": str(n)}} for n in range(rows)],
    }})
    path = str(folder / f"a.{{kind}}")
    if kind == "stream":
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, max_chunksize=20)
    else:
        packed = "zstd" if kind == "zstd" else None
        options = pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_file(path, table.schema, options=options) as out:
            out.write_table(table, max_chunksize=20)
    whole = Path(path).read_bytes()
    drawn = random.Random(0)
    for place in [drawn.randrange(8 * len(whole)) for _ in range({many})]:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        Path(path).unlink()  # a map of the one before stays as it is
        Path(path).write_bytes(damaged)
        try:
            samples = list(jreader.arrow(path)())
        except (jreader.errors.DamagedData, ValueError) as error:
            assert path in str(error), (place, error)
        else:
            assert len(samples) == rows, place
            assert "None" not in repr(samples), place
    print("read")
"""


@pytest.mark.parametrize("kind", ["arrow", "stream", "zstd"])
def test_no_bit_of_an_arrow_file_ends_the_program(python, tmp_path, kind):
    script = READ.format(kind=kind, folder=str(tmp_path), many=250)
    ended = python(script, check=False)
    assert (ended.returncode, ended.stdout) == (0, "read\n"), ended.stderr[-500:]


def test_another_type_in_the_footer_of_a_parquet_file_does_not_end_the_program(tmp_path, python):
    """Each byte of the footer that holds the type of a column in a row group."""
    script = f"""
        import pyarrow as pa, pyarrow.parquet
        import jreader
        path = "{tmp_path}/a.parquet"
        pa.parquet.write_table(pa.table({{"n": [1, 2], "x": [1.5, 2.5]}}), path)
        whole = open(path, "rb").read()
        meta, damaged = pa.parquet.read_metadata(path), 0
        for place in range(len(whole) - 8 - meta.serialized_size, len(whole) - 8):
            for bit in (2, 4, 8):
                flipped = bytearray(whole)
                flipped[place] ^= bit
                if b"\\x15" != whole[place - 1 : place]:  # the head of a number, as a type is
                    continue
                open(path, "wb").write(flipped)
                try:
                    list(jreader.parquet(path)())
                except jreader.errors.DamagedData as error:
                    damaged += "its footer says" in str(error)
        print(damaged)
    """
    ended = python(script, check=False)
    assert ended.returncode == 0, ended.stderr[-500:]
    assert int(ended.stdout) > 2


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_text_that_is_not_utf_8_is_an_error_after_the_rows_before(tmp_path, kind):
    texts = pa.array([b"good", b"\xff\xfe", b"fine"]).view(pa.string())
    table = pa.table({"text": texts})
    path = str(tmp_path / f"a.{kind}")
    if kind == "parquet":
        pa.parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table)
    rows = getattr(jreader, kind)(path)()
    given = []
    with pytest.raises(DamagedData, match=rf"a\.{kind} is .* column 'text': .*(?i:utf-?8)"):
        given.extend(rows)
    assert given == ([{"text": "good"}] if kind == "parquet" else [])
