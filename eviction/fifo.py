"""First in, first out: the run that was inserted longest ago goes first, used or not.

A block is as old as the run that it was inserted with: what a run gains later counts as part of its insertion, so
growth does not renew it. A parent is older than its children but becomes evictable only after them; then its age puts
it at the cold end. As with least recently used, runs of one age lie on one path, so at most one of them is ever on
offer, and two neighbours of one age (the halves of a split) may merge again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar, final

from eviction.frontier import Frontier
from eviction.policy import WHOLE_RUN, RequestFacts

__all__ = ["FifoPolicy"]

K = TypeVar("K", bound=Hashable)


@final
class FifoPolicy(Generic[K]):
    """First in, first out. Offering is O(log runs), the rest amortised O(1)."""

    __slots__ = ("_ages", "_clock", "_frontier")

    name = "fifo"

    def __init__(self) -> None:
        self._ages: dict[K, int] = {}  # run -> how many insertions came before it
        self._frontier: Frontier[K] = Frontier()
        self._clock = 0

    def __repr__(self) -> str:
        return f"<FifoPolicy runs={len(self._ages)} offered={len(self._frontier)}>"

    def insert(self, key: K, *, first_block: int, block_count: int, ghost_id: int) -> None:
        """The newcomer goes last."""
        del ghost_id  # forgets what left
        assert key not in self._ages, f"inserted twice: {key!r}"
        assert first_block >= 0 < block_count
        self._clock = age = self._clock + 1
        self._ages[key] = age

    def grow(self, key: K, block_count: int) -> None:
        """Nothing changes: the new blocks count as inserted with the run."""
        assert key in self._ages, f"unknown run: {key!r}"
        assert block_count > 0

    def shrink(self, key: K, block_count: int) -> None:
        """Nothing changes: what is left is as old as it was."""
        assert key in self._ages, f"unknown run: {key!r}"
        assert block_count > 0

    def remove(self, key: K) -> None:
        """Forget the run."""
        assert key in self._ages, f"unknown run: {key!r}"
        if key in self._frontier:
            self._frontier.withdraw(key)
        del self._ages[key]

    def split(self, key: K, upper: K, upper_block_count: int, *, ghost_id: int) -> None:
        """Both halves are as old as the whole was."""
        del ghost_id
        assert key in self._ages, f"unknown run: {key!r}"
        assert upper not in self._ages, f"inserted twice: {upper!r}"
        assert upper_block_count > 0
        self._ages[upper] = self._ages[key]

    def can_merge(self, upper: K, key: K) -> bool:
        """Whether both were inserted as one."""
        assert upper in self._ages, f"unknown run: {upper!r}"
        assert key in self._ages, f"unknown run: {key!r}"
        return self._ages[upper] == self._ages[key]

    def merge(self, upper: K, key: K) -> None:
        """Forget ``upper``: ``key`` stands where both stood."""
        assert self.can_merge(upper, key)
        assert upper not in self._frontier
        del self._ages[upper]

    def offer(self, key: K) -> None:
        """The run takes its place by age."""
        assert key in self._ages, f"unknown run: {key!r}"
        self._frontier.offer(key, self._ages[key])

    def withdraw(self, key: K) -> None:
        """Walks no longer meet the run; its age stays."""
        self._frontier.withdraw(key)

    def used(self, request: RequestFacts, path: Sequence[K]) -> None:
        """Nothing changes: use does not renew."""
        del request
        for key in path:
            assert key in self._ages, f"unknown run: {key!r}"

    def victims(self) -> Iterator[tuple[K, int]]:
        """Offered runs, first inserted first, each as a whole."""
        return ((key, WHOLE_RUN) for key, _ in self._frontier.walk())

    def check_invariants(self) -> None:
        """Runs on offer are known, under their age, and no two of them share one. O(runs)."""
        self._frontier.check_invariants()
        offered = dict(self._frontier.walk())
        assert all(self._ages[key] == age for key, age in offered.items())
        assert len(set(offered.values())) == len(offered)
        assert max(self._ages.values(), default=0) <= self._clock
