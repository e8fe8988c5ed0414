"""What does a file measure, and what does it hand back? Cells: a found figure beside what was expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.micro.timing import Timing

__all__ = ["Benchmark", "Cell", "Setup", "Skipped", "timed_cell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case, in the unit of its benchmark."""

    case: str
    median: float
    p99: float | None  #: the worst, where there are fewer than 100 samples; None of a single one
    samples: int
    estimate: float  #: from the file's first lines, made before anything was measured
    yardstick: float | None = None  #: what cannot be undercut, measured in the same run
    more: Mapping[str, float] = field(default_factory=dict)  #: heading with its unit → figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a run is given from outside."""

    seed: int
    traces: Path  #: folder of the real traces; may be missing
    everything: bool  #: also what takes minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What a file offers under the name ``BENCHMARK``; the question is the first line of the file."""

    unit: str
    yardstick: str  #: what stands in the column of this name
    measure: Callable[[Setup], Iterator[Cell]]


class Skipped(Exception):
    """A benchmark cannot run here; says why."""


def timed_cell(
    case: str,
    timing: Timing,
    *,
    estimate: float,
    yardstick: float | None = None,
    parts: int = 1,
    more: Mapping[str, float] | None = None,
) -> Cell:
    """A cell in microseconds.

    Args:
        yardstick: for one call, as the timing.
        parts: blocks, requests and the like in a call; the cell is for one of them, as the estimate is.
    """
    return Cell(
        case=case,
        median=timing.median_us / parts,
        p99=timing.p99_us / parts if timing.samples > 1 else None,
        samples=timing.samples,
        estimate=estimate,
        yardstick=None if yardstick is None else yardstick / parts,
        more=more or {},
    )
