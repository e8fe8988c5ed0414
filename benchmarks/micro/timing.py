"""How long does a call keep a core busy? Every call is a sample, so that the p99 is that of calls, not of averages.

CPU time of the thread: the store never waits, so on an idle machine that is the wall time, and on a busy one the time
slices of others stay out of it (what they do to the caches does not). Reading the clock takes 0.6 us, which is taken
off; it also leaves the caller's caches a little colder, which adds 0.4 us to a call. Yardsticks of less than that are
averages over many calls instead.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter_ns, thread_time_ns

from benchmarks.peers import clocks
from benchmarks.peers.clocks import Spread

__all__ = ["Timing", "core_ns", "floor_us", "time_each", "time_in_turns", "time_repeated", "timing_of"]

core_ns = thread_time_ns

_SECONDS = 0.15  #: a case is repeated about this long: some hundred calls of a millisecond
_ROUNDS = 3  #: the machine has slow seconds: a case is not measured in one go
_WARM_UP_SECONDS = 0.01
_SAMPLES_MIN, _SAMPLES_MAX = 4, 1000  #: of a case in a round
_WARM_UP_CALLS = 3
_FLOOR_SAMPLES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of one call, in microseconds."""

    median_us: float
    p99_us: float  #: the slowest, where there are fewer than 100 samples
    samples: int


def time_in_turns(calls: Sequence[Callable[[], object]], *, seconds: float = _SECONDS) -> list[Timing]:
    """Calls that may be repeated: a part of each one's samples, then the next part, so that a slow second of the
    machine is no single call's.

    Args:
        seconds: for each call.
    """
    samples: list[list[int]] = [[] for _ in calls]
    for _ in range(_ROUNDS):
        for call, found in zip(calls, samples, strict=True):
            found += _window(call, seconds / _ROUNDS)
    return [timing_of(found) for found in samples]


def time_repeated(call: Callable[[], object], *, seconds: float = _SECONDS) -> Timing:
    """One call that may be repeated."""
    return time_in_turns([call], seconds=seconds)[0]


def time_each(calls: Iterable[Callable[[], object]]) -> Timing:
    """Calls that cannot be repeated, each once; the first three only warm up. What makes a call is not timed."""
    each = iter(calls)
    for call in islice(each, _WARM_UP_CALLS):
        call()
    return timing_of([_sample(call) for call in each])


def timing_of(samples_ns: Iterable[float], *, clocks_read: int = 1) -> Timing:
    """Sum up samples; what the clock itself takes comes off each, as often as it was read after the start."""
    cost = clocks_read * _clock_ns()
    samples = [max(0.0, sample - cost) for sample in samples_ns]
    spread = Spread.of(samples)
    return Timing(median_us=spread.median, p99_us=spread.p99, samples=len(samples))


def floor_us(call: Callable[[], object]) -> float:
    """Microseconds of a yardstick, which may be less than the clock takes: the median of averages over 0.2 ms."""
    return clocks.time_repeated(call, _FLOOR_SAMPLES).cpu_us.median


@functools.cache
def _clock_ns() -> float:
    """Nanoseconds that a sample shows for a call that does nothing."""
    return statistics.median(_sample(_nothing) for _ in range(1001))


def _window(call: Callable[[], object], seconds: float) -> list[int]:
    """Samples of so many seconds, after a warm-up."""
    warm_up_end = perf_counter_ns() + int(_WARM_UP_SECONDS * 1e9)
    call()
    while perf_counter_ns() < warm_up_end:
        call()
    samples: list[int] = []
    end = perf_counter_ns() + int(seconds * 1e9)
    while len(samples) < _SAMPLES_MIN or (len(samples) < _SAMPLES_MAX and perf_counter_ns() < end):
        samples.append(_sample(call))
    return samples


def _sample(call: Callable[[], object]) -> int:
    start = core_ns()
    call()
    return core_ns() - start


def _nothing() -> None:
    pass
