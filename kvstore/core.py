"""What the store and its sequences share: one lock, and under it the pages, the tree and the counters."""

from __future__ import annotations

import weakref
from array import array
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, final

from kvstore.block_allocator import PageSource
from kvstore.counters import Counters
from kvstore.errors import OutOfPages
from kvstore.eviction_log import EvictionReason
from kvstore.prefix_tree import Root
from kvstore.residency import Residency

if TYPE_CHECKING:
    from kvstore.sequence import Sequence

__all__ = ["Core"]


@final
class Core:
    """State behind the lock. Every method is called with the lock held.

    INV-9: pages out of the allocator = pages in the tree + pages of sequences + pages in lost roots.
    """

    __slots__ = (
        "allocator",
        "block_tokens",
        "counters",
        "dropped",
        "interruption_count",
        "live",
        "lock",
        "lost",
        "next_ordinal",
        "now_ns",
        "residency",
        "retained_count_max",
    )

    def __init__(
        self,
        allocator: PageSource,
        residency: Residency,
        *,
        block_tokens: int,
        retained_count_max: int,
        now_ns: Callable[[], int],
    ) -> None:
        self.lock = Lock()
        self.allocator = allocator
        self.residency = residency
        self.block_tokens = block_tokens
        self.retained_count_max = retained_count_max
        self.now_ns = now_ns
        self.counters = Counters()
        self.next_ordinal = 0
        self.live: dict[int, weakref.ref[Sequence]] = {}
        self.dropped: deque[Sequence] = (
            deque()
        )  #: appended to by finalizers, which may run anywhere and so must not take the lock
        self.interruption_count = 0  #: parked sequences and forced resets
        self.lost: list[Root] = []  #: roots out of matching whose runs are still held

    @property
    def stop_count(self) -> int:
        """Grows whenever a sequence stops running, by its end, by preemption or by a forced reset."""
        return self.next_ordinal - len(self.live) + self.interruption_count

    def take(self, count: int, *, by: int | str | None) -> array[int]:
        """``count`` pages, free ones first, then by evicting exactly the shortfall.

        Raises:
            OutOfPages: free and evictable pages together are too few; nothing was changed.
        """
        allocator, residency = self.allocator, self.residency
        free = allocator.free_count
        short = count - free
        if short <= 0:
            return allocator.take(count)
        if short > residency.evictable_count:
            self.counters.out_of_pages += 1
            raise OutOfPages(needed=count, free=free, evictable=residency.evictable_count)
        # What is evicted here never visits the free stack: it goes from the tree to its new holder.
        pages = residency.evict(short, EvictionReason.CAPACITY, now_ns=self.now_ns(), by=by)
        return allocator.take(free) + pages if free else pages

    def trim(self, *, by: int | str | None) -> None:
        """Evict what is cached beyond the limit, as far as it is unheld."""
        residency = self.residency
        excess = residency.cached_count - self.retained_count_max
        if excess > 0:
            count = min(excess, residency.evictable_count)
            self.allocator.give(residency.evict(count, EvictionReason.RETENTION, now_ns=self.now_ns(), by=by))

    def sweep(self) -> None:
        """End the sequences that were garbage-collected without a release."""
        while self.dropped:
            self.counters.ended_unreleased += 1
            self.dropped.popleft().end(used=False)
