"""The elements of one large JSON array, with one element and one chunk in memory at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Final, final

from simulator.errors import TraceError
from simulator.traces.id_lists import refuse_constant
from simulator.traces.streams import ROW_BYTES_MAX, TraceStream

__all__ = ["array_values", "not_json"]

_CHUNK_BYTES: Final = 1 << 20
#: A parser that stops this close to the end of the window may have been cut off in the middle of a word.
_CUT_CHARS: Final = 16


def array_values(stream: TraceStream) -> Iterator[tuple[object, int]]:
    """The elements of a stream that is one JSON array, each with the 1-based line it begins on.

    Raises:
        TraceError: the text is not one JSON array, or an element is larger than ``ROW_BYTES_MAX``.
    """
    window = _Window(stream)
    window.expect("[")
    if window.next_char() == "]":
        window.expect("]")
    else:
        while True:
            window.next_char()
            line = window.line
            yield window.value(), line
            if window.next_char() != ",":
                break
            window.expect(",")
        window.expect("]")
    if window.next_char():
        raise window.error("text after the end of the array")


def not_json(error: Exception) -> str:
    """What a message says about text that a JSON parser refused."""
    return "not JSON: nested too deeply" if isinstance(error, RecursionError) else f"not JSON: {error}"


@final
class _Window:
    """The part of the text between what is done and what is read."""

    def __init__(self, stream: TraceStream) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._parse = json.JSONDecoder(parse_constant=refuse_constant).raw_decode
        self._text = ""
        self._position = 0
        self._at_end = False
        self.line = 1

    def error(self, problem: str) -> TraceError:
        """An error at the current place, to be raised."""
        return TraceError(problem, source=self._stream.path, line=self.line)

    def next_char(self) -> str:
        """The next character that is not white space, not yet taken; empty at the end."""
        while True:
            while self._position < len(self._text):
                char = self._text[self._position]
                if char not in " \t\r\n":
                    return char
                self._take(self._position + 1)
            if not self._fill(_CHUNK_BYTES):
                return ""

    def expect(self, char: str) -> None:
        """Take one character that must come next."""
        found = self.next_char()
        if found != char:
            raise self.error(f"not JSON: expected {char!r}, got {found!r}" if found else f"ends before {char!r}")
        self._take(self._position + 1)

    def value(self) -> object:
        """Take one JSON value."""
        size = _CHUNK_BYTES
        while True:
            try:
                value, end = self._parse(self._text, self._position)
            except json.JSONDecodeError as error:
                cut = error.pos + _CUT_CHARS >= len(self._text) or error.msg.startswith("Unterminated string")
                if not cut or not self._fill(size):
                    raise self.error(f"not JSON: {error.msg}") from error
                size *= 2  # so that parsing a long element again and again costs no more than twice its length
            except (ValueError, RecursionError) as error:
                raise self.error(not_json(error)) from error
            else:
                self._take(end)
                return value

    def _take(self, end: int) -> None:
        self.line += self._text.count("\n", self._position, end)
        self._position = end

    def _fill(self, size: int) -> bool:
        """Read more and forget what is done; False if there was no more."""
        if self._at_end:
            return False
        if len(self._text) - self._position > ROW_BYTES_MAX:
            raise self.error(f"a row of more than {ROW_BYTES_MAX:,} bytes")
        chunk = self._stream.read(size)
        self._at_end = len(chunk) < size
        try:
            more = self._decode.decode(chunk, final=self._at_end)
        except UnicodeDecodeError as error:
            raise self.error("not UTF-8") from error
        self._text = self._text[self._position :] + more
        self._position = 0
        return bool(more) or not self._at_end
