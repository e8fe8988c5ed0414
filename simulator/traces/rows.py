"""Rows of a trace file and the typed, checked access to their fields."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from simulator.errors import TraceError
from simulator.traces.id_lists import JsonDecoder
from simulator.traces.json_array import array_values, not_json
from simulator.traces.streams import TraceStream

__all__ = ["COUNT_MAX", "NUMBER_MAX", "Row", "rows_of"]

#: Token counts and token ids stay below 2³¹; anything larger is a mistake, not a prompt.
COUNT_MAX: Final = 2**31 - 1

#: Times and rates stay below 2⁶³, as whole nanoseconds of any clock do. Sums of so many as a file can hold, and their
#: conversion to nanoseconds, then stay finite.
NUMBER_MAX: Final = 2**63 - 1

_ID_MAX: Final = 2**64 - 1
_CHUNK_BYTES: Final = 1 << 20


@final
class Row:
    """One row, or one object inside a row. Every accessor checks, and its error names file, line and field.

    Args:
        values: the row's fields. A field that is null, or an empty cell, counts as missing.
        path: the file, for messages.
        line: 1-based.
        inside: where in the row this object sits, for example ``requests[3].``.
        cells: the values are cells of a CSV file: text that stands for numbers.
    """

    __slots__ = ("_cells", "_inside", "line", "path", "values")

    def __init__(
        self, values: Mapping[str, object], *, path: str, line: int, inside: str = "", cells: bool = False
    ) -> None:
        self.values = values
        self.path = path
        self.line = line
        self._inside = inside
        self._cells = cells

    def error(self, field: str | None, problem: str) -> TraceError:
        """An error about this row, to be raised."""
        name = self._inside.rstrip(".") or None if field is None else self._inside + field
        return TraceError(problem, source=self.path, line=self.line, field=name)

    def has(self, field: str) -> bool:
        """Whether the field is there with a value."""
        value = self.values.get(field)
        return value is not None and not (self._cells and value == "")

    def count(self, field: str) -> int:
        """A whole number of things, in [0, 2³¹)."""
        value = self._whole(field, self._present(field))
        if not 0 <= value <= COUNT_MAX:
            raise self.error(field, f"must be from 0 to {COUNT_MAX:,}, got {value}")
        return value

    def count_or(self, field: str, default: int) -> int:
        """``count``, or the default where the field is missing."""
        return self.count(field) if self.has(field) else default

    def number(self, field: str) -> float:
        """A number in [0, 2⁶³)."""
        return float(self._number(field, self._present(field)))

    def stamp(self, field: str) -> int | float | None:
        """A point in time in [0, 2⁶³) in the file's own unit, whole numbers exact; None where it is missing."""
        return self._number(field, self.values[field]) if self.has(field) else None

    def text(self, field: str) -> str:
        """A string."""
        value = self._present(field)
        if not isinstance(value, str):
            raise self.error(field, f"must be a string, got {_kind(value)}")
        return value

    def text_or_none(self, field: str) -> str | None:
        """``text``, or None where the field is missing."""
        return self.text(field) if self.has(field) else None

    def label(self, field: str) -> int | str | None:
        """A name that is a string or a whole number; None where it is missing."""
        if not self.has(field):
            return None
        value = self.values[field]
        if isinstance(value, str) or type(value) is int:
            return value
        raise self.error(field, f"must be a string or a whole number, got {_kind(value)}")

    def ids(self, field: str) -> NDArray[np.integer]:
        """A list of whole numbers in [0, 2⁶⁴): int64, or uint64 where one needs it."""
        value = self._present(field)
        if isinstance(value, np.ndarray):
            return value
        return self._whole_numbers(field, value, _ID_MAX)

    def token_ids(self, field: str) -> NDArray[np.int32]:
        """A list of token ids, whole numbers in [0, 2³¹)."""
        return self._whole_numbers(field, self._present(field), COUNT_MAX).astype(np.int32)

    def inner(self, field: str) -> Row:
        """The object under a field."""
        return self._inner(f"{field}.", self._present(field))

    def inner_rows(self, field: str) -> list[Row]:
        """The objects of the list under a field."""
        value = self._present(field)
        if not isinstance(value, list):
            raise self.error(field, f"must be a list, got {_kind(value)}")
        return [self._inner(f"{field}[{index}].", item) for index, item in enumerate(value)]

    def rest(self, *known: str) -> dict[str, object]:
        """The fields that no one has asked for: all but the known ones."""
        return {field: value for field, value in self.values.items() if field not in known}

    def _present(self, field: str) -> object:
        if not self.has(field):
            raise self.error(field, "is missing")
        return self.values[field]

    def _inner(self, where: str, value: object) -> Row:
        if not isinstance(value, dict):
            raise self.error(where.rstrip("."), f"must be an object, got {_kind(value)}")
        return Row(value, path=self.path, line=self.line, inside=self._inside + where)

    def _whole(self, field: str, value: object) -> int:
        if type(value) is int:
            return value
        if self._cells and isinstance(value, str) and _is_whole(value):
            return int(value)
        raise self.error(field, f"must be a whole number, got {_kind(value)}")

    def _number(self, field: str, value: object) -> int | float:
        number = _cell_number(value) if self._cells and isinstance(value, str) else value
        if type(number) is not int and type(number) is not float:
            raise self.error(field, f"must be a number, got {_kind(value)}")
        if not 0 <= number <= NUMBER_MAX:  # false of nan, too
            raise self.error(field, f"must be from 0 to {NUMBER_MAX:,}, got {_kind(number)}")
        return number

    def _whole_numbers(self, field: str, value: object, top: int) -> NDArray[np.integer]:
        if not isinstance(value, list):
            raise self.error(field, f"must be a list, got {_kind(value)}")
        if value and not (set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= top):
            index, item = next(
                (index, item) for index, item in enumerate(value) if type(item) is not int or not 0 <= item <= top
            )
            raise self.error(f"{field}[{index}]", f"must be a whole number from 0 to {top:,}, got {_kind(item)}")
        try:
            return np.array(value, np.int64)
        except OverflowError:
            return np.array(value, np.uint64)


def rows_of(stream: TraceStream) -> Iterator[Row]:
    """The rows of a trace, told by its first character: JSON objects, one a line or in one array, or CSV with a header.

    Blank lines are skipped.

    Raises:
        TraceError: the bytes cannot be read on, or are neither.
    """
    first = stream.first_byte()
    if first == b"{":
        yield from _line_rows(stream)
    elif first == b"[":
        for value, line in array_values(stream):
            yield _row(value, stream.path, line)
    else:
        yield from _csv_rows(stream)


def _csv_rows(stream: TraceStream) -> Iterator[Row]:
    """Rows of a CSV file whose first line names the columns."""
    reader = csv.reader(_text_lines(stream), strict=True)
    try:
        columns = [name.strip() for name in next(filter(None, reader), [])]
        if len(set(columns)) < len(columns):
            raise TraceError("two columns have one name", source=stream.path, line=stream.line)
        for cells in filter(None, reader):
            if len(cells) != len(columns):
                problem = f"{len(columns)} columns but {len(cells)} cells"
                raise TraceError(problem, source=stream.path, line=stream.line)
            yield Row(dict(zip(columns, cells, strict=True)), path=stream.path, line=stream.line, cells=True)
    except csv.Error as error:
        raise TraceError(f"not CSV: {error}", source=stream.path, line=stream.line) from error


def _line_rows(stream: TraceStream) -> Iterator[Row]:
    decoder = JsonDecoder()
    while line := stream.readline():
        text = line.removeprefix(b"\xef\xbb\xbf") if stream.line == 1 else line
        if text.isspace() or not text:
            continue
        try:
            value = decoder.decode(text.strip())
        except (ValueError, RecursionError) as error:
            raise TraceError(not_json(error), source=stream.path, line=stream.line) from error
        yield _row(value, stream.path, stream.line)


def _row(value: object, path: str, line: int) -> Row:
    if not isinstance(value, dict):
        raise TraceError(f"a row must be an object, got {_kind(value)}", source=path, line=line)
    return Row(value, path=path, line=line)


def _text_lines(stream: TraceStream) -> Iterator[str]:
    while line := stream.readline():
        try:
            text = line.decode("utf-8-sig" if stream.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise TraceError("not UTF-8", source=stream.path, line=stream.line) from error
        if not text.isspace():
            yield text


def _is_whole(cell: str) -> bool:
    """Whether a cell is digits and at most a sign: ``int`` alone would take ``1_000`` and other scripts' digits too."""
    digits = cell.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20


def _cell_number(cell: str) -> object:
    if _is_whole(cell):
        return int(cell)
    try:
        return cell if "_" in cell else float(cell)
    except ValueError:
        return cell


def _kind(value: object) -> str:
    """A wrong value for a message: its kind, and itself where it is short."""
    names = {
        bool: "a boolean",
        str: "the string",
        list: "a list",
        dict: "an object",
        float: "the number",
        int: "the number",
    }
    shown = repr(value) if isinstance(value, str | int | float) else ""
    return f"{names.get(type(value), 'nothing')} {shown[:40]}".strip()
