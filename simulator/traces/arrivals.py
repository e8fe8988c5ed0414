"""When requests arrive: stamps that are missing, out of order, quantised or in another unit than thought."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from simulator.traces.record import TraceRequest

__all__ = ["UNMEASURED_S", "Starts", "dejitter", "estimate_starts", "unit_warning"]

#: How long a request is taken to run, where the order of others depends on its end and no one measured it.
UNMEASURED_S: Final = 1.0

#: Fewer requests than this say nothing about a rate.
_RATE_REQUESTS_MIN: Final = 100
#: Beyond these bounds a unit was likely mistaken: the busiest known service has 600 requests/s, the idlest trace 0.1/s.
_RATE_MAX: Final = 1000.0
_RATE_MIN: Final = 0.01


class Starts(NamedTuple):
    """When requests start, as far as it is known before they run."""

    seconds: list[float]
    missing: int  #: requests whose row should say, but does not


def estimate_starts(requests: Sequence[TraceRequest], sessions: Sequence[Sequence[int]]) -> Starts:
    """When each request starts: its stamp; else its think time after the end of the one it waits for; else the start of
    the row before it, 0 for the first.

    So a first row without a stamp does not shift the others.
    """
    waits_for = {
        index: members[after.request]
        for members in sessions
        for index in members
        if (after := requests[index].after) is not None and after.request < len(members)
    }
    seconds: list[float] = []
    missing = 0
    for index, request in enumerate(requests):
        before = waits_for.get(index, index)
        if request.arrival_s is not None:
            start = request.arrival_s
        elif request.after is not None and before < index:
            start = seconds[before] + requests[before].measured.get("e2e_s", UNMEASURED_S) + request.after.think_s
        else:
            start = seconds[-1] if seconds else 0.0
            missing += 1
        seconds.append(start)
    return Starts(seconds, missing)


def dejitter(requests: Sequence[TraceRequest], *, seed: int) -> None:
    """Spread requests of one stamp evenly at random up to the next stamp, keeping their order.

    Stamps may be ticks that stand for all arrivals until the next tick. The last tick is taken to be as long as the
    others are in the middle.
    """
    rng = random.Random(seed)
    stamped = [request for request in requests if request.arrival_s is not None]
    ticks = [(stamp, list(group)) for stamp, group in groupby(stamped, key=lambda request: request.arrival_s)]
    stamps = [stamp for stamp, _ in ticks if stamp is not None]
    widths = [later - stamp for stamp, later in pairwise(stamps)]
    widths.append(statistics.median(widths) if widths else 0.0)
    for stamp, width, (_, group) in zip(stamps, widths, ticks, strict=True):
        if len(group) > 1:
            for request, offset in zip(group, sorted(rng.random() for _ in group), strict=True):
                request.arrival_s = stamp + offset * width


def unit_warning(seconds: Sequence[float]) -> str | None:
    """What to say about arrivals so dense or so sparse that their unit is likely another one."""
    span_s = max(seconds) - min(seconds) if seconds else 0.0
    if len(seconds) < _RATE_REQUESTS_MIN or span_s <= 0:
        return None
    rate = len(seconds) / span_s
    if _RATE_MIN <= rate <= _RATE_MAX:
        return None
    return f"{len(seconds):,} requests in {span_s:,.3f} s are {rate:,.4g} per second: are the times in another unit?"
