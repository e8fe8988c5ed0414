"""What the store and its sequences share: one lock, and under it the pages, the tree and the counters."""

from __future__ import annotations

import weakref
from array import array
from collections import deque
from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, final

from kvstore.block_allocator import PageSource
from kvstore.counters import Counters
from kvstore.errors import InvalidRequest, KVStoreError, OutOfPages, StoreBroken
from kvstore.eviction_log import EvictionReason
from kvstore.prefix_tree import Root
from kvstore.residency import Residency

if TYPE_CHECKING:
    from kvstore.sequence import Sequence

__all__ = ["ChangeGuard", "Core"]


@final
class ChangeGuard:
    """``with core.lock, core.guard:`` around a change: what is raised from outside in its middle breaks the store.

    Our own errors are raised before the first mutation and leave everything as it was; an interrupt, or a policy or
    page source that raises, may come in between, and a torn store would hand out one request's pages as another's.
    """

    __slots__ = ("_core",)

    def __init__(self, core: Core) -> None:
        self._core = core

    def __enter__(self) -> None:
        """Nothing to do: the lock was taken natively, which no signal can tear."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, KVStoreError):
            self._core.break_off()


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
        "entered",
        "guard",
        "interruption_count",
        "is_broken",
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
        self.lock = RLock()
        #: whether this thread is inside already; re-entrance is refused, not served: see ``check_usable``
        self.entered: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]
        self.is_broken = False
        self.allocator = allocator
        self.residency = residency
        self.block_tokens = block_tokens
        self.retained_count_max = retained_count_max
        self.now_ns = now_ns
        self.counters = Counters()
        self.next_ordinal = 0
        self.live: dict[int, weakref.ref[Sequence]] = {}
        self.guard = ChangeGuard(self)
        #: sequences that ended where the lock must not be waited for, in a finalizer or inside another call; with
        #: whether it was a use, or None where nobody released it
        self.dropped: deque[tuple[Sequence, bool | None]] = deque()
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
            return self._from_source(count)
        if short > residency.evictable_count:
            self.counters.out_of_pages += 1
            raise OutOfPages(needed=count, free=free, evictable=residency.evictable_count)
        # The free ones first: a source that others use too may have fewer by now, and then nothing was evicted. What is
        # evicted never visits the free stack: it goes from the tree to its new holder.
        pages = self._from_source(free) if free else array("i")
        return pages + residency.evict(short, EvictionReason.CAPACITY, now_ns=self.now_ns(), by=by)

    def _from_source(self, count: int) -> array[int]:
        """Pages from the allocator, which may be an engine's own and is held to its contract."""
        pages = self.allocator.take(count)
        if type(pages) is not array or pages.typecode != "i":
            pages = array("i", pages)
        if len(pages) != count:
            self.allocator.give(pages)
            raise OutOfPages(needed=count, free=len(pages), evictable=0)
        return pages

    def break_off(self) -> None:
        """A change was torn apart: from now on every call is refused."""
        self.is_broken = True
        self.entered = _always  # so that the hot path asks one question, not two

    def check_usable(self) -> None:
        """Without the lock: refuse a call from inside another, by a finalizer, a signal handler, a policy.

        Raises:
            InvalidRequest: this thread is inside the store already.
            StoreBroken: see there.
        """
        if self.is_broken:
            raise StoreBroken("an exception from outside interrupted a change of this store; make a new one")
        if self.entered():
            raise InvalidRequest("the store was called from inside one of its own calls")

    def trim(self, *, by: int | str | None) -> None:
        """Evict what is cached beyond the limit, as far as it is unheld."""
        residency = self.residency
        excess = residency.cached_count - self.retained_count_max
        if excess > 0:
            count = min(excess, residency.evictable_count)
            self.allocator.give(residency.evict(count, EvictionReason.RETENTION, now_ns=self.now_ns(), by=by))

    def sweep(self) -> None:
        """End the sequences that were let go where the lock could not be taken."""
        while self.dropped:
            sequence, used = self.dropped.popleft()
            if used is None:
                self.counters.ended_unreleased += 1
            sequence.end(used=bool(used))


def _always() -> bool:
    return True
