"""What the simulator raises on purpose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

__all__ = ["SimulatorError", "TraceError"]


class SimulatorError(Exception):
    """Root of everything the simulator raises on purpose."""


class TraceError(SimulatorError, ValueError):
    """A trace cannot be read as asked: names the file, the line and the field.

    Args:
        problem: what is wrong and what would be right.
        source: the file, ``-`` for standard input, or the workload.
        line: 1-based line of the offending row, if there is one.
        field: the offending field, if it is one.
    """

    def __init__(self, problem: str, *, source: str, line: int | None = None, field: str | None = None) -> None:
        name = "standard input" if source == "-" else source
        where = name if line is None else f"{name}:{line}"
        what = problem if field is None else f"field {field!r}: {problem}"
        super().__init__(f"{where}: {what}")
        self._problem = problem
        self.source = source
        self.line = line
        self.field = field

    def __reduce__(self) -> tuple[Callable[[str], TraceError], tuple[str]]:
        """How to make this error again: exceptions pass their message on, which is not what made them."""
        again = partial(type(self), source=self.source, line=self.line, field=self.field)
        return again, (self._problem,)
