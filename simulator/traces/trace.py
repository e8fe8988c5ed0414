"""A trace file as a stream of requests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import final

from simulator.errors import TraceError
from simulator.traces.formats import format_named, format_of
from simulator.traces.formats.format import ReadContext, TraceFormat
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row, rows_of
from simulator.traces.streams import STDIN, TraceStream

__all__ = ["Trace", "open_trace"]


def open_trace(path: str | os.PathLike[str], *, format: str | None = None, id_tokens: int | None = None) -> Trace:  # noqa: A002  # the word of the command line
    """Open a trace and find out what it is; requests are read when they are asked for.

    Args:
        path: a file of JSON lines, one JSON array or CSV, plain or compressed by gzip, xz or zstd; ``-`` for standard
            input.
        format: the name of a format; told from the keys of the first row if not given.
        id_tokens: tokens that one id of the file stands for, where neither the format nor the rows say it right
            (the session form of mooncake is written with several sizes).

    Raises:
        TraceError: the file cannot be opened, is empty, or is of no known format.
    """
    name = os.fspath(path)
    if id_tokens is not None and id_tokens < 1:
        raise TraceError(f"id_tokens must be at least 1, got {id_tokens}", source=name)
    forced = None if format is None else format_named(format, source=name)
    stream = TraceStream(name)
    try:
        rows = rows_of(stream)
        first = next(rows, None)
        if first is None:
            raise TraceError("holds no rows", source=name)
        found = forced or format_of(first)
        block_tokens = id_tokens or first.count_or("block_size", found.block_tokens)
        if block_tokens < 1:
            raise first.error("block_size", "must be at least 1")
    except BaseException:
        stream.close()
        raise
    if name == STDIN or not Path(name).is_file():
        return Trace(name, found, block_tokens, _Opened(stream, first, rows))
    stream.close()
    return Trace(name, found, block_tokens)


@final
class _Opened:
    """Standard input or a pipe, with its first row taken: it cannot be opened again."""

    def __init__(self, stream: TraceStream, first: Row, rows: Iterator[Row]) -> None:
        self.stream = stream
        self._first = first
        self._rows = rows

    def rows(self) -> Iterator[Row]:
        """All rows, the taken one first."""
        yield self._first
        yield from self._rows


@final
class Trace:
    """Requests of one trace file, in the order of the file, read anew by each iteration (a pipe: once).

    Requests are as the file has them: ids are the file's own, requests with tokens have no blocks yet, times may be
    missing, and a session's times may count from its own start. Memory holds one row. Each row is checked by itself;
    ``load`` also checks rows against each other.
    """

    def __init__(self, path: str, format: TraceFormat, block_tokens: int, opened: _Opened | None = None) -> None:  # noqa: A002
        self.path = path
        self._once = opened is not None
        self.format = format
        self.block_tokens = block_tokens  #: tokens that one id of ``blocks`` stands for
        self._opened = opened
        self._digest = ""
        self._line = 0
        self._notes: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Trace({self.path!r}, format={self.format.name!r}, block_tokens={self.block_tokens})"

    def __iter__(self) -> Iterator[TraceRequest]:
        return self.read()

    @property
    def name(self) -> str:
        """The path's last part."""
        return Path(self.path).name

    @property
    def digest(self) -> str:
        """SHA-256, hex, of the decompressed bytes that the latest iteration read, once it has ended."""
        return self._digest

    @property
    def line(self) -> int:
        """1-based line of the row that was read last."""
        return self._line

    @property
    def notes(self) -> tuple[str, ...]:
        """What was odd about the rows that the latest iteration read."""
        return tuple(text.format(count=f"{count:,}") for text, count in sorted(self._notes.items()))

    def read(self, *, seed: int = 0, repair: bool = False, whole: bool = False) -> Generator[TraceRequest, None, None]:
        """Read the requests.

        Args:
            seed: for formats that draw their requests from rates.
            repair: mend rows whose ids do not fit their length, and note it, instead of refusing them.
            whole: every request will be kept, so refuse a trace that stands for too many.

        Raises:
            TraceError: a row is malformed, with file, line and field; or a pipe was read before.
        """
        context = ReadContext(block_tokens=self.block_tokens, seed=seed, repair=repair, whole=whole)
        self._notes = context.notes
        if self._opened is not None:
            opened, self._opened = self._opened, None
            stream, rows = opened.stream, opened.rows()
        elif self._once:
            raise TraceError("standard input and pipes can be read only once", source=self.path)
        else:
            stream = TraceStream(self.path)
            rows = rows_of(stream)
        with stream:
            try:
                yield from self.format.read(self._watched(rows), context)
            finally:
                self._digest = stream.digest

    def _watched(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._line = row.line
            yield row
