"""Bytes in: every compression, cut short at every place, standard input, line ends."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from simulator.errors import TraceError
from simulator.traces import load, open_trace

ROWS = b"".join(
    b'{"timestamp": %d, "input_length": 1000, "output_length": 5, "hash_ids": [%d, %d]}\n' % (n * 1000, n, n + 500)
    for n in range(500)
)
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compressed_like_plain(tmp_path: Path, kind: str) -> None:
    plain, packed = tmp_path / "t.jsonl", tmp_path / f"t.jsonl.{kind}"
    plain.write_bytes(ROWS)
    packed.write_bytes(COMPRESSIONS[kind](ROWS))
    one, other = load(open_trace(plain)), load(open_trace(str(packed)))
    assert len(one.requests) == len(other.requests) == 500
    assert one.digest == other.digest == hashlib.sha256(ROWS).hexdigest()
    assert other.name == f"t.jsonl.{kind}"


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compression_is_told_by_content(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(COMPRESSIONS[kind](ROWS))
    assert sum(1 for _ in open_trace(path)) == 500


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_several_compressed_members_are_one_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "two"
    path.write_bytes(COMPRESSIONS[kind](ROWS) + COMPRESSIONS[kind](ROWS))
    assert sum(1 for _ in open_trace(path)) == 1000


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("keep", [0.3, 0.9, -1])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path: Path, kind: str, keep: float) -> None:
    packed = COMPRESSIONS[kind](ROWS)
    path = tmp_path / f"cut.jsonl.{kind}"
    path.write_bytes(packed[: -1 if keep < 0 else int(len(packed) * keep)])
    with pytest.raises(TraceError, match="cannot be read on") as raised:
        load(open_trace(path))
    assert raised.value.source == str(path)
    assert raised.value.line is not None


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_flipped_bytes_are_an_error(tmp_path: Path, kind: str) -> None:
    packed = bytearray(COMPRESSIONS[kind](ROWS))
    middle = len(packed) // 2
    packed[middle : middle + 8] = bytes(byte ^ 0xFF for byte in packed[middle : middle + 8])
    path = tmp_path / f"broken.{kind}"
    path.write_bytes(packed)
    with pytest.raises(TraceError):
        load(open_trace(path))


def test_zstd_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.zst"
    path.write_bytes(COMPRESSIONS["zst"](ROWS))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match="pip install zstandard"):
        open_trace(path)


class Stdin:
    """What ``sys.stdin`` is to a reader of bytes."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize("pack", [bytes, *COMPRESSIONS.values()])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]) -> None:
    stdin = Stdin(pack(ROWS))
    monkeypatch.setattr(sys, "stdin", stdin)
    trace = open_trace("-")
    loaded = load(trace)
    assert (loaded.name, len(loaded.requests)) == ("-", 500)
    assert loaded.digest == hashlib.sha256(ROWS).hexdigest()
    assert not stdin.buffer.closed
    with pytest.raises(TraceError, match="only once"):
        list(trace)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(ROWS,))
    writer.start()
    trace = open_trace(pipe)
    assert sum(1 for _ in trace) == 500
    writer.join()
    with pytest.raises(TraceError, match="only once"):
        list(trace)


def test_a_file_is_read_as_often_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(ROWS)
    trace = open_trace(path)
    assert sum(1 for _ in trace) == sum(1 for _ in trace) == 500


@pytest.mark.parametrize(
    "content",
    [
        ROWS.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + ROWS,
        ROWS.rstrip(b"\n"),
        ROWS.replace(b"\n", b"\n\n  \n"),
        b"\n\n" + ROWS,
    ],
    ids=["crlf", "byte order mark", "no last line end", "blank lines", "leading blank lines"],
)
def test_white_space_does_not_matter(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    assert [request.arrival_s for request in open_trace(path)] == list(range(500))


def test_blank_lines_count_in_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n" + ROWS.splitlines(keepends=True)[0] + b"\r\n{}\n")
    with pytest.raises(TraceError, match=r"t\.jsonl:4: field 'input_length': is missing"):
        load(open_trace(path))


@pytest.mark.parametrize(
    "content", [b"", b"\n \r\n", b"[]", b"[\n ]\n", gzip.compress(b""), b"TIMESTAMP,ContextTokens\n"]
)
def test_no_rows(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="holds no rows"):
        open_trace(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot open: No such file"):
        open_trace(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="cannot open: Is a directory"):
        open_trace(tmp_path)


def test_stopping_early_closes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(ROWS)
    trace = open_trace(path)
    reading = trace.read()
    next(reading)
    reading.close()  # an open file would be a ResourceWarning, which is an error here
    assert trace.digest == hashlib.sha256(ROWS.splitlines(keepends=True)[0]).hexdigest()
