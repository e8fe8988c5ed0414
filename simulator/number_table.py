"""Tables of numbers that no screen cuts: a narrow one gets fewer columns, or a line per number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = ["NumberTable", "plain_table"]

_UNLIMITED = 10_000  # columns; wider than any table


@final
class NumberTable:
    """Rows of a name and its numbers. A library that wraps cells would print ``141,6…`` where they do not fit.

    Args:
        heads: of the columns, the names' first; where it is empty the numbers need no head.
        optional: heads of the columns to leave out, one after another, while the table is too wide.
    """

    def __init__(self, *heads: str, optional: Sequence[str] = ()) -> None:
        self._heads = heads
        self._optional = optional
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add_row(self, *cells: str, style: str = "") -> None:
        """Add a name and its numbers, one for each head."""
        assert len(cells) == len(self._heads)
        self._rows.append((cells, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for count in range(len(self._optional) + 1):
            table = self._without(self._optional[:count])
            wanted = Measurement.get(console, options.update(width=_UNLIMITED), table).maximum
            if wanted <= options.max_width:
                yield table
                return
        yield from self._lines()

    def _without(self, left_out: Sequence[str]) -> Table:
        table = plain_table()
        kept = [column for column, head in enumerate(self._heads) if head not in left_out]
        for column in kept:
            table.add_column(self._heads[column], justify="right" if column else "left", no_wrap=True)
        for cells, style in self._rows:
            table.add_row(*(Text(cells[column]) for column in kept), style=style)
        return table

    def _lines(self) -> Iterator[RenderableType]:
        title, *heads = self._heads
        yield Text(title, style="bold")
        for (name, *numbers), style in self._rows:
            if heads == [""]:
                yield Text(f"{name}: {numbers[0]}", style=style)
                continue
            yield Text(name, style=style)
            for head, number in zip(heads, numbers, strict=True):
                yield Text(f"  {head}: {number}", style=style)


def plain_table() -> Table:
    """A table with a rule below its heads and no other lines."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
