"""A trace as the command line names it: a file, standard input or a workload, and how to read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from simulator.errors import SimulatorError
from simulator.result import OptionValue
from simulator.spans import parse_span_s

if TYPE_CHECKING:
    from simulator.traces.record import LoadedTrace

__all__ = ["Partial", "ReadingError", "ReadingOptions"]

_WORKLOAD = "workload:"
_PARAMETERS = {"block_tokens": "block_tokens", "limit": "requests"}  # of a workload, by the option for files


class Partial(StrEnum):
    """What becomes of a hashed trace's started last block."""

    COUNT = "count"  #: it is a block, as the trace's publishers count
    DROP = "drop"  #: it is left out, as an engine shares full blocks only


class ReadingError(SimulatorError):
    """An option says to a workload what only files take, or what its own parameters say already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """How to read a trace."""

    format: str | None = None
    id_tokens: int | None = None
    block_tokens: int | None = None
    partial: Partial = Partial.COUNT
    repair: bool = False
    rechain: bool = False
    limit: int | None = None
    seed: int | None = None
    users: int | None = None
    spread: str | None = None

    def record(self) -> dict[str, OptionValue]:
        """What a result keeps of it; the trace itself says its seed."""
        return {
            "format": self.format,
            "id_tokens": self.id_tokens,
            "block_tokens": self.block_tokens,
            "partial": self.partial.value,
            "repair": self.repair,
            "rechain": self.rechain,
            "limit": self.limit,
            "users": self.users,
            "spread": self.spread,
        }

    def read(self, trace: str) -> LoadedTrace:
        """Read a file or standard input to its end, or make a workload.

        Raises:
            TraceError: the trace cannot be read as asked, or there is no such workload.
            ReadingError: an option that a workload does not take.
            SpanError: the span is no span of time.
        """
        if trace.startswith(_WORKLOAD):
            return self._make(trace)
        from simulator.traces import load, open_trace  # noqa: PLC0415 - brings numpy; --help must not wait for it

        return load(
            open_trace(trace, format=self.format, id_tokens=self.id_tokens),
            block_tokens=self.block_tokens,
            partial=self.partial.value,
            prefix="rechain" if self.rechain else "refuse",
            mismatch="repair" if self.repair else "refuse",
            limit=self.limit,
            users=self.users,
            spread_s=None if self.spread is None else parse_span_s(self.spread),
            seed=self.seed or 0,
        )

    def _make(self, text: str) -> LoadedTrace:
        """A workload; ``--seed`` is its parameter ``seed`` by another name."""
        from simulator.workloads import workload  # noqa: PLC0415

        defaults = ReadingOptions().record()
        given = [name for name, value in self.record().items() if value != defaults[name]]
        if given:
            raise ReadingError(_refusal(text, given[0], self.record()[given[0]]))
        _, mark, query = text.partition("?")
        if self.seed is None:
            return workload(text)
        if any(part.startswith("seed=") for part in query.split("&")):
            raise ReadingError(f"{text} names its seed already, so --seed {self.seed} is one too many")
        return workload(f"{text}{'&' if mark else '?'}seed={self.seed}")


def _refusal(text: str, name: str, value: OptionValue) -> str:
    """What to say of an option for files: what to write instead, where a workload has a parameter for it."""
    option = "--" + name.replace("_", "-")
    if name not in _PARAMETERS:
        return (
            f"{option} is for trace files; a workload takes parameters only, {text.partition('?')[0]}?requests=1000 say"
        )
    return f"{option} is for trace files; write {text}{'&' if '?' in text else '?'}{_PARAMETERS[name]}={value}"
