"""Which of the offered runs is coldest? A heap that forgets lazily, shared by the policies whose ranks move.

A run on offer has one live entry ``(rank, serial, key)``. Withdrawing a run only forgets its serial: the entry is
stale now, is dropped when it comes up, and all stale ones go at once when they outnumber the live (amortised O(1) a
withdrawal). Serials are unique, so keys are never compared and equal ranks keep the order in which they were offered.

A walk moves the entries that it has passed from the heap to a list, and the next walk puts them back first. So a walk
costs O(log runs) a step, drops a stale entry once and for all, and changes no answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar, final

__all__ = ["Frontier"]

K = TypeVar("K", bound=Hashable)

#: Stale entries that are never worth a sweep; keeps tiny frontiers from sweeping at every withdrawal.
_STALE_SLACK = 64


@final
class Frontier(Generic[K]):
    """The runs on offer in one tier, lowest rank first, equal ranks in order of their offer."""

    __slots__ = ("_entries", "_passed", "_serial", "_serials")

    def __init__(self) -> None:
        self._serials: dict[K, int] = {}  # run on offer -> serial of its one live entry
        self._entries: list[tuple[int, int, K]] = []  # heap, live and stale
        self._passed: list[tuple[int, int, K]] = []  # what the last walk took from the heap
        self._serial = 0

    def __len__(self) -> int:
        return len(self._serials)

    def __contains__(self, key: K) -> bool:
        return key in self._serials

    def offer(self, key: K, rank: int) -> None:
        """Put a run on offer. O(log runs), O(1) when it is hotter than most."""
        assert key not in self._serials, f"offered twice: {key!r}"
        self._serial = serial = self._serial + 1
        self._serials[key] = serial
        heappush(self._entries, (rank, serial, key))

    def withdraw(self, key: K) -> None:
        """Take a run off. Amortised O(1)."""
        assert key in self._serials, f"not on offer: {key!r}"
        del self._serials[key]
        if len(self._entries) + len(self._passed) > 2 * len(self._serials) + _STALE_SLACK:
            self._sweep()

    def walk(self) -> Iterator[tuple[K, int]]:
        """Runs on offer with their ranks, lowest first; lazy. Any other call ends its validity."""
        for entry in self._passed:
            heappush(self._entries, entry)
        self._passed.clear()
        return self._steps()

    def check_invariants(self) -> None:
        """Every run on offer has exactly one live entry, and stale ones stay few. O(runs)."""
        live = [key for _, serial, key in self._entries + self._passed if self._serials.get(key) == serial]
        assert len(live) == len(self._serials) == len(set(live))
        assert len(self._entries) + len(self._passed) <= 2 * len(self._serials) + _STALE_SLACK
        assert all(self._entries[(child - 1) // 2] <= self._entries[child] for child in range(1, len(self._entries)))

    def _steps(self) -> Iterator[tuple[K, int]]:
        entries, passed, serials = self._entries, self._passed, self._serials
        while entries:
            rank, serial, key = entries[0]
            if serials.get(key) != serial:
                heappop(entries)
                continue
            yield key, rank
            passed.append(heappop(entries))  # only now: who takes just the coldest run never moves an entry

    def _sweep(self) -> None:
        self._entries[:] = [entry for entry in self._entries + self._passed if self._serials.get(entry[2]) == entry[1]]
        self._passed.clear()
        heapify(self._entries)
