"""What was evicted lately, when, why and for whom? Answers ``explain`` and the eviction counters."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Final, NamedTuple, final

__all__ = ["Eviction", "EvictionLog", "EvictionReason"]

#: Bounds of the memory: evictions, and bytes of the symbols that they took along (256 k tokens). Enough for the last
#: seconds of a busy pool; the bytes are the edges of dropped runs, which move here and are not copied.
_ENTRIES_MAX: Final = 4096
_BYTES_MAX: Final = 1 << 20


class EvictionReason(enum.Enum):
    """Why a block lost its page."""

    CAPACITY = "capacity"  #: a reservation needed the page
    RETENTION = "retention"  #: more was cached at a release than the store may retain
    RESET = "reset"  #: the cache was cleared


class Eviction(NamedTuple):
    """Blocks from ``first_block`` on, with these symbols, lost their pages."""

    first_block: int
    symbols: bytes
    reason: EvictionReason
    now_ns: int
    by: int | str | None  #: the request that needed the room, under the name that its caller gave


@final
class _Entry:
    """What went from one run, in pieces, the deepest first: a tail may go block by block."""

    __slots__ = ("by", "byte_count", "first_block", "now_ns", "pieces", "reason")

    def __init__(
        self, first_block: int, symbols: bytearray, reason: EvictionReason, now_ns: int, by: int | str | None
    ) -> None:
        self.first_block = first_block
        self.pieces = [symbols]
        self.byte_count = len(symbols)
        self.reason = reason
        self.now_ns = now_ns
        self.by = by


@final
class EvictionLog:
    """A bounded memory of evictions, found by the ghost id of the run's first block."""

    __slots__ = ("_byte_count", "_entries", "block_counts")

    def __init__(self) -> None:
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._byte_count = 0
        self.block_counts: dict[EvictionReason, int] = dict.fromkeys(EvictionReason, 0)

    def note(
        self,
        ghost_id: int,
        first_block: int,
        end_block: int,
        symbols: bytearray,
        reason: EvictionReason,
        now_ns: int,
        by: int | str | None,
    ) -> None:
        """A run lost its blocks ``[first_block, end_block)``, which had these symbols; they are ours now.

        Cost: O(1), nothing is hashed or copied. Pieces that adjoin are one eviction to people, and are kept as one.
        """
        entries = self._entries
        entry = _Entry(first_block, symbols, reason, now_ns, by)
        before = entries.pop(ghost_id, None)
        if before is not None:
            self._byte_count -= before.byte_count
            if before.first_block == end_block:
                before.pieces.append(symbols)
                entry.pieces = before.pieces
                entry.byte_count += before.byte_count
        entries[ghost_id] = entry
        self._byte_count += entry.byte_count
        while self._byte_count > _BYTES_MAX or len(entries) > _ENTRIES_MAX:
            self._byte_count -= entries.popitem(last=False)[1].byte_count

    def of_run(self, ghost_id: int) -> Eviction | None:
        """The last eviction from a run whose first block has this ghost id."""
        entry = self._entries.get(ghost_id)
        if entry is None:
            return None
        symbols = b"".join(reversed(entry.pieces))
        return Eviction(entry.first_block, symbols, entry.reason, entry.now_ns, entry.by)
