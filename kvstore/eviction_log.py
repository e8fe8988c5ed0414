"""What was evicted lately, when, why and for whom? Answers ``explain`` and the eviction counters."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Final, NamedTuple, final

__all__ = ["Eviction", "EvictionLog", "EvictionReason"]

#: Runs remembered: some 200 bytes each, so about a megabyte; enough to explain the last seconds of a busy pool.
_ENTRIES_MAX: Final = 4096


class EvictionReason(enum.Enum):
    """Why a block lost its page."""

    CAPACITY = "capacity"  #: a reservation needed the page
    RETENTION = "retention"  #: more was cached at a release than the store may retain
    RESET = "reset"  #: the cache was cleared


class Eviction(NamedTuple):
    """Blocks ``[first_block, first_block + block_count)`` of some prefix lost their pages."""

    first_block: int
    block_count: int
    reason: EvictionReason
    now_ns: int
    by: int | str | None  #: the request that needed the room, under the name that its caller gave


@final
class EvictionLog:
    """A bounded memory of evictions, found by the ghost id of the run's first block."""

    __slots__ = ("_entries", "block_counts")

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[int, int, EvictionReason, int, int | str | None]] = OrderedDict()
        self.block_counts: dict[EvictionReason, int] = dict.fromkeys(EvictionReason, 0)

    def note(
        self,
        ghost_id: int,
        first_block: int,
        block_count: int,
        reason: EvictionReason,
        now_ns: int,
        by: int | str | None,
    ) -> None:
        """Blocks are about to go from the run whose first block has this ghost id. Cost: O(1), no hashing of tokens."""
        entries = self._entries
        before = entries.get(ghost_id)
        if before is not None:
            entries.move_to_end(ghost_id)  # the newest is forgotten last
            if before[0] == first_block + block_count:  # a tail that goes piece by piece is one eviction to people
                block_count += before[1]
        entries[ghost_id] = (first_block, block_count, reason, now_ns, by)  # an Eviction once somebody asks
        if len(entries) > _ENTRIES_MAX:
            entries.popitem(last=False)

    def of_run(self, ghost_id: int) -> Eviction | None:
        """The last eviction from a run whose first block has this ghost id."""
        entry = self._entries.get(ghost_id)
        return Eviction(*entry) if entry is not None else None
