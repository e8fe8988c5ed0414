"""Where the bytes of a trace come from: plain, gzip, xz or zstd files and standard input."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import lzma
import sys
import zlib
from types import TracebackType
from typing import BinaryIO, Final, cast, final

from simulator.errors import TraceError

__all__ = ["ROW_BYTES_MAX", "STDIN", "TraceStream"]

#: The path that means standard input.
STDIN: Final = "-"

#: A longer row is refused instead of filling memory; the longest known session row has 20 MB.
ROW_BYTES_MAX: Final = 256 << 20

_BUFFER_BYTES: Final = 1 << 20
#: Small, because one chunk of zstd may stand for ten thousand times its size.
_ZSTD_CHUNK_BYTES: Final = 8 << 10

_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)


@final
class TraceStream:
    """The decompressed bytes of one trace, read once from front to back and digested on the way.

    Compression is told by the first bytes, not by the name, so that it works for standard input too.

    Args:
        path: a file, or ``-`` for standard input.

    Raises:
        TraceError: the file cannot be opened, or needs a decompressor that is not installed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._line = 0
        self._raw = self._open(path)
        try:
            self._bytes = self._decompressed()
        except BaseException:
            self._release(self._raw)
            raise

    def __enter__(self) -> TraceStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def digest(self) -> str:
        """SHA-256 of the decompressed bytes read so far, hex."""
        return self._digest.hexdigest()

    @property
    def line(self) -> int:
        """1-based number of the line that ``readline`` gave last."""
        return self._line

    def first_byte(self) -> bytes:
        """The first byte that is not white space, without taking it; empty at the end of the stream."""
        try:
            return self._bytes.peek(1).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        except _BROKEN as error:
            raise self._broken(error) from error

    def readline(self) -> bytes:
        """The next line with its line end; empty at the end of the stream."""
        try:
            line = self._bytes.readline(ROW_BYTES_MAX + 1)
        except _BROKEN as error:
            raise self._broken(error) from error
        self._line += bool(line)
        if len(line) > ROW_BYTES_MAX:
            raise TraceError(f"a row of more than {ROW_BYTES_MAX:,} bytes", source=self.path, line=self._line)
        self._digest.update(line)
        return line

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end of the stream."""
        try:
            chunk = self._bytes.read(size)
        except _BROKEN as error:
            raise self._broken(error) from error
        self._digest.update(chunk)
        return chunk

    def close(self) -> None:
        """Let go of the file. Standard input stays open. Idempotent."""
        if self._bytes is not self._raw and not self._bytes.closed:
            self._bytes.close()
        self._release(self._raw)

    @staticmethod
    def _open(path: str) -> io.BufferedReader:
        if path == STDIN:
            return io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer), _BUFFER_BYTES)
        try:
            return io.BufferedReader(io.FileIO(path), _BUFFER_BYTES)
        except OSError as error:
            raise TraceError(f"cannot open: {error.strerror}", source=path) from error

    def _release(self, raw: io.BufferedReader) -> None:
        if self.path != STDIN:
            raw.close()
            return
        # A buffer closes what it wraps when it is collected, and standard input is not ours to close.
        with contextlib.suppress(ValueError):  # let go of before
            raw.detach()

    def _decompressed(self) -> io.BufferedReader:
        try:
            head = self._raw.peek(6)[:6]
        except OSError as error:
            raise self._broken(error) from error
        if head.startswith(b"\x1f\x8b"):
            return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=self._raw)), _BUFFER_BYTES)
        if head.startswith(b"\xfd7zXZ\x00"):
            return io.BufferedReader(cast("io.RawIOBase", lzma.LZMAFile(self._raw)), _BUFFER_BYTES)
        if head.startswith(b"\x28\xb5\x2f\xfd"):
            return io.BufferedReader(_ZstdReader(self._raw, self.path), _BUFFER_BYTES)
        return self._raw

    def _broken(self, error: BaseException) -> TraceError:
        return TraceError(f"cannot be read on: {error}", source=self.path, line=self._line + 1)


@final
class _ZstdReader(io.RawIOBase):
    """Decompresses zstd frames one after another and, unlike the library's own reader, reports a frame cut short."""

    def __init__(self, compressed: BinaryIO, path: str) -> None:
        super().__init__()
        try:
            import zstandard  # noqa: PLC0415  # an optional extra, needed for this one file format
        except ImportError as error:
            problem = "zstd needs the package zstandard: pip install zstandard"
            raise TraceError(problem, source=path) from error
        self._compressed = compressed
        self._library = zstandard
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """True: this stream can be read."""
        return True

    def readinto(self, target: bytearray | memoryview) -> int:  # type: ignore[override]  # narrower than Buffer
        """Fill ``target`` as far as one step gives bytes; 0 at the end."""
        while not self._ready:
            chunk = self._compressed.read(_ZSTD_CHUNK_BYTES)
            if not chunk:
                if self._in_frame:
                    raise EOFError("compressed data ends early")
                return 0
            self._ready = memoryview(self._decompress(chunk))
        size = min(len(target), len(self._ready))
        target[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _decompress(self, chunk: bytes) -> bytes:
        plain = []
        while chunk:
            try:
                plain.append(self._frame.decompress(chunk))
            except self._library.ZstdError as error:
                raise OSError(str(error)) from error
            self._in_frame = not self._frame.eof
            chunk = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = self._library.ZstdDecompressor().decompressobj()
        return b"".join(plain)
