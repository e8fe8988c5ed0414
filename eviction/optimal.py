"""The offline optimum: the blocks whose next use is farthest away go first (Belady's MIN, with bypass).

It must be told the future, so it exists only where there is one: in a replay. An oracle says for every request when
each block of its path is used next; that is asked once per request, at its end, and covers all runs of the path.

Why it is optimal on a tree: whoever uses a block uses all its ancestors, so a parent's next use is never later than
its child's. Evicting the farthest next use of all blocks is therefore always possible at the tail of an offered run,
and MIN on single blocks (all of one size) is optimal for hits. Newcomers are ranked like any other block before the
store trims to its capacity, so a block with no future never displaces one that has one: that is the bypass.

Blocks beyond the request's last segment (generated ones that nobody asks for again) and runs whose request was
abandoned without ``used`` have no known future and count as never used again.

Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2),
1966.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, final

from eviction.frontier import Frontier
from eviction.policy import RequestFacts

__all__ = ["NEVER", "NextUse", "OptimalPolicy"]

K = TypeVar("K", bound=Hashable)

#: As the ordinal of a next use: there is none.
NEVER = sys.maxsize


class NextUse(Protocol):
    """Tells the future of one trace."""

    def segments(self, request_id: int) -> tuple[Sequence[int], Sequence[int]]:
        """When the blocks of a request are used next.

        Args:
            request_id: ordinal of the request in the trace.
        Returns:
            Two sequences of one length, one entry for each segment of the path: its exclusive end as a block index,
            rising, and the ordinal of the next request that uses its blocks, or ``NEVER``; non-decreasing.
        """


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Foresight:
    """What the oracle said of one request; shared by all runs of its path."""

    ends: Sequence[int]
    next_uses: Sequence[int]

    def next_use(self, block: int) -> int:
        segment = bisect_right(self.ends, block)
        return self.next_uses[segment] if segment < len(self.ends) else NEVER

    def segment_start(self, block: int) -> int:
        segment = bisect_right(self.ends, block)
        return self.ends[segment - 1] if segment else 0


_UNKNOWN = _Foresight((), ())


@final
@dataclass(slots=True, eq=False)
class _Run:
    """Blocks ``[start, end)`` of one path."""

    start: int
    end: int
    foresight: _Foresight = _UNKNOWN


@final
class OptimalPolicy(Generic[K]):
    """The offline optimum for block hits. ``used`` needs the request's ordinal as its id; offering is O(log runs)."""

    __slots__ = ("_frontier", "_oracle", "_runs")

    name = "optimal"

    def __init__(self, oracle: NextUse) -> None:
        self._oracle = oracle
        self._runs: dict[K, _Run] = {}
        self._frontier: Frontier[K] = Frontier()  # rank: minus the next use of the run's tail

    def __repr__(self) -> str:
        return f"<OptimalPolicy runs={len(self._runs)} offered={len(self._frontier)}>"

    def insert(self, key: K, *, first_block: int, block_count: int, ghost_id: int) -> None:
        """The newcomer has no known future until its request ends."""
        del ghost_id  # the oracle knows more
        assert key not in self._runs, f"inserted twice: {key!r}"
        assert first_block >= 0 < block_count
        self._runs[key] = _Run(first_block, first_block + block_count)

    def grow(self, key: K, block_count: int) -> None:
        """The run's rank is that of its new tail."""
        assert block_count > 0
        self._run(key).end += block_count
        self._rank_again(key)

    def shrink(self, key: K, block_count: int) -> None:
        """The run's rank is that of its new tail."""
        run = self._run(key)
        assert 0 < block_count < run.end - run.start
        run.end -= block_count
        self._rank_again(key)

    def remove(self, key: K) -> None:
        """Forget the run."""
        assert key in self._runs, f"unknown run: {key!r}"
        if key in self._frontier:
            self._frontier.withdraw(key)
        del self._runs[key]

    def split(self, key: K, upper: K, upper_block_count: int, *, ghost_id: int) -> None:
        """Both halves keep what is known of their blocks."""
        del ghost_id
        run = self._run(key)
        assert upper not in self._runs, f"inserted twice: {upper!r}"
        assert 0 < upper_block_count < run.end - run.start
        middle = run.start + upper_block_count
        self._runs[upper] = _Run(run.start, middle, run.foresight)
        run.start = middle

    def can_merge(self, upper: K, key: K) -> bool:
        """Whether the same request used both last, so that one foresight covers both (or none did)."""
        return self._run(upper).foresight is self._run(key).foresight

    def merge(self, upper: K, key: K) -> None:
        """``key`` reaches up to where ``upper`` began; its tail and rank stay."""
        assert self.can_merge(upper, key)
        assert upper not in self._frontier
        assert self._runs[upper].end == self._runs[key].start
        self._runs[key].start = self._runs.pop(upper).start

    def offer(self, key: K) -> None:
        """The run takes its place by the next use of its tail."""
        self._frontier.offer(key, self._rank(key))

    def withdraw(self, key: K) -> None:
        """Walks no longer meet the run."""
        self._frontier.withdraw(key)

    def used(self, request: RequestFacts, path: Sequence[K]) -> None:
        """Ask the oracle once, for all runs of the path."""
        ordinal = request.request_id
        assert isinstance(ordinal, int), f"the optimum needs the request's ordinal as its id, got {ordinal!r}"
        foresight = _Foresight(*self._oracle.segments(ordinal))
        runs, frontier = self._runs, self._frontier
        for key in path:
            assert key in runs, f"unknown run: {key!r}"
            runs[key].foresight = foresight
            if key in frontier:
                self._rank_again(key)

    def victims(self) -> Iterator[tuple[K, int]]:
        """Offered runs, farthest next use first, each with the tail blocks that share this next use."""
        for key, _ in self._frontier.walk():
            run = self._runs[key]
            yield key, run.end - max(run.start, run.foresight.segment_start(run.end - 1))

    def check_invariants(self) -> None:
        """Runs hold blocks, and those on offer are ranked by their tail. O(runs)."""
        self._frontier.check_invariants()
        assert all(0 <= run.start < run.end for run in self._runs.values())
        assert all(rank == self._rank(key) for key, rank in self._frontier.walk())

    def _rank(self, key: K) -> int:
        run = self._run(key)
        return -run.foresight.next_use(run.end - 1)

    def _rank_again(self, key: K) -> None:
        if key in self._frontier:
            self._frontier.withdraw(key)
            self._frontier.offer(key, self._rank(key))

    def _run(self, key: K) -> _Run:
        run = self._runs.get(key)
        assert run is not None, f"unknown run: {key!r}"
        return run
