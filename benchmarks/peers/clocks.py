"""How long does a call take? Wall time, and the process's CPU time, which the machine's other work does not move."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Spread", "Timing", "settle", "time_each", "time_repeated"]

_SAMPLE_NS = (
    200_000  #: a sample of a call that can be repeated is at least about this long, a thousand times the clocks' cost
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One clock's samples, in microseconds for one call."""

    median: float
    p99: float  #: the slowest, where there are fewer than 100 samples
    min: float

    @classmethod
    def of(cls, samples_ns: Iterable[float]) -> Spread:
        ordered = sorted(sample / 1e3 for sample in samples_ns)
        return cls(
            median=round(statistics.median(ordered), 3),
            p99=round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
            min=round(ordered[0], 3),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What both clocks said."""

    samples: int
    cpu_us: Spread
    wall_us: Spread


def settle() -> None:
    """What an engine does before it serves: collect garbage, and let later collections skip what is left."""
    gc.collect()
    gc.freeze()


def time_each(calls: Iterable[Callable[[], object]]) -> Timing:
    """Every call once, a sample each."""
    return _summary([_sample(call, 1) for call in calls])


def time_repeated(call: Callable[[], object], samples: int) -> Timing:
    """A call that may be repeated, as often within a sample as the clocks need."""
    call()
    once_ns, _ = _sample(call, 1)
    repeats = max(1, int(_SAMPLE_NS / max(once_ns, 1)))
    return _summary([_sample(call, repeats) for _ in range(samples)])


def _sample(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Wall and CPU nanoseconds of one call."""
    cpu_start, wall_start = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(repeats):
        call()
    wall_end, cpu_end = time.perf_counter_ns(), time.process_time_ns()
    return (wall_end - wall_start) / repeats, (cpu_end - cpu_start) / repeats


def _summary(samples: list[tuple[float, float]]) -> Timing:
    return Timing(
        samples=len(samples),
        wall_us=Spread.of(wall for wall, _ in samples),
        cpu_us=Spread.of(cpu for _, cpu in samples),
    )
