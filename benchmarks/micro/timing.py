"""How long does a call take? Every call is a sample by itself, so that the p99 is that of calls, not of averages.

Wall time: the clock of the CPU time costs more than many a call here. Work of others on the machine therefore shows in
the p99, and above some milliseconds in the median; a run notes the machine's load.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from time import perf_counter_ns

from benchmarks.peers.clocks import Spread

__all__ = ["Timing", "clock_ns", "time_each", "time_repeated", "timing_of"]

_SECONDS = 0.15  #: a case is repeated about this long: some hundred calls of a millisecond
_WARM_UP_SECONDS = 0.02
_SAMPLES_MIN, _SAMPLES_MAX = 11, 3000
_WARM_UP_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of one call, in microseconds."""

    median_us: float
    p99_us: float  #: the slowest, where there are fewer than 100 samples
    samples: int


def time_repeated(call: Callable[[], object], *, seconds: float = _SECONDS) -> Timing:
    """A call that may be repeated."""
    warm_up_end = perf_counter_ns() + int(_WARM_UP_SECONDS * 1e9)
    for _ in range(_SAMPLES_MAX):
        call()
        if perf_counter_ns() > warm_up_end:
            break
    samples: list[int] = []
    end = perf_counter_ns() + int(seconds * 1e9)
    while len(samples) < _SAMPLES_MIN or (len(samples) < _SAMPLES_MAX and perf_counter_ns() < end):
        samples.append(_sample(call))
    return timing_of(samples)


def time_each(calls: Iterable[Callable[[], object]]) -> Timing:
    """Calls that cannot be repeated, each once; the first three only warm up. What makes a call is not timed."""
    each = iter(calls)
    for call in islice(each, _WARM_UP_CALLS):
        call()
    return timing_of([_sample(call) for call in each])


def timing_of(samples_ns: Iterable[float]) -> Timing:
    """Sum up samples; the clock's own cost is taken off each."""
    cost = clock_ns()
    samples = [max(0.0, sample - cost) for sample in samples_ns]
    spread = Spread.of(samples)
    return Timing(median_us=spread.median, p99_us=spread.p99, samples=len(samples))


@functools.cache
def clock_ns() -> float:
    """Nanoseconds that a sample shows for a call that does nothing."""
    return statistics.median(_sample(_nothing) for _ in range(1001))


def _sample(call: Callable[[], object]) -> int:
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


def _nothing() -> None:
    pass
