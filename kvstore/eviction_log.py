"""What was evicted lately, when, why and for whom? Answers ``explain`` and the eviction counters."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Final, NamedTuple, final

from kvstore.prefix_tree import Node

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
        self._entries: OrderedDict[int, Eviction] = OrderedDict()
        self.block_counts: dict[EvictionReason, int] = dict.fromkeys(EvictionReason, 0)

    def note(
        self, node: Node, kept: int, taken: int, reason: EvictionReason, *, now_ns: int, by: int | str | None
    ) -> None:
        """``taken`` blocks behind the first ``kept`` of a run are about to go. Cost: O(1), no hashing."""
        entries = self._entries
        entries[node.ghost_id] = Eviction(node.first_block + kept, taken, reason, now_ns, by)
        entries.move_to_end(node.ghost_id)
        if len(entries) > _ENTRIES_MAX:
            entries.popitem(last=False)
        self.block_counts[reason] += taken

    def of_run(self, ghost_id: int) -> Eviction | None:
        """The last eviction from a run whose first block has this ghost id."""
        return self._entries.get(ghost_id)
