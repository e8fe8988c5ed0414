"""Which requests make up a session, and when sessions start that have no clock in common.

``users`` at a time: sessions are shuffled, ``users`` of them start at 0, and whenever one has started its last request,
the next starts ``NEXT_AFTER_S`` later. Recorded times within a session are kept. Requests of one instant are ordered by
the place of their session in the file, then by their place in the session.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

from simulator.traces.record import TraceRequest

__all__ = ["NEXT_AFTER_S", "group_sessions", "resolve_turns", "spread_starts", "user_starts"]

#: Seconds from a session's last request to the first of the session that takes its place.
NEXT_AFTER_S: Final = 1.0


def group_sessions(keys: Sequence[Hashable]) -> list[list[int]]:
    """Indices of the requests of each session, sessions by first sight; requests without a key are in none."""
    sessions: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        if key is not None:
            sessions.setdefault(key, []).append(index)
    return list(sessions.values())


def resolve_turns(requests: Sequence[TraceRequest], sessions: Sequence[Sequence[int]]) -> None:
    """Number the turns of sessions that do not number their own, and find the request before where only that is known.

    A first turn that waits for none before it starts by the clock: after its delay, or when the file says.
    """
    for members in sessions:
        for turn, index in enumerate(members):
            request = requests[index]
            if request.turn is None:
                request.turn = turn
            if request.after is None or request.after.request >= 0:
                continue
            if turn:
                request.after = replace(request.after, request=turn - 1)
            else:
                request.arrival_s = request.after.think_s if request.arrival_s is None else request.arrival_s
                request.after = None


def user_starts(lengths_s: Sequence[float], *, users: int, seed: int | None) -> list[float]:
    """When each session starts if ``users`` play them, one after another each.

    Args:
        lengths_s: seconds from a session's start to its last request, sessions in order of the file.
        users: sessions at a time.
        seed: shuffles the sessions; None plays them in order of the file.
    """
    order = list(range(len(lengths_s)))
    if seed is not None:
        random.Random(seed).shuffle(order)
    starts = [0.0] * len(order)
    ends: list[float] = []
    for session in order:
        start = heapq.heappop(ends) + NEXT_AFTER_S if len(ends) >= users else 0.0
        starts[session] = start
        heapq.heappush(ends, start + lengths_s[session])
    return starts


def spread_starts(count: int, *, span_s: float, seed: int) -> list[float]:
    """When each session starts if they start at any time of a span alike."""
    rng = random.Random(seed)
    return [rng.uniform(0.0, span_s) for _ in range(count)]
