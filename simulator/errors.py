"""What the simulator raises on purpose."""

from __future__ import annotations

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
        self.source = source
        self.line = line
        self.field = field
