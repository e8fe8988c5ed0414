"""What was evicted lately, when, why and for whom? Answers ``explain`` and the eviction counters."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Hashable
from typing import Final, NamedTuple, TypeAlias, final

__all__ = ["Eviction", "EvictionLog", "EvictionReason", "Evictions"]

#: Bounds of the memory: evictions, and bytes of the symbols that they took along (256 k tokens). Enough for the last
#: seconds of a busy pool; the bytes are the edges of dropped runs, which move here and are not copied.
_RECORDS_MAX: Final = 4096
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

    def __repr__(self) -> str:
        """Without the symbols: these are somebody's tokens."""
        return f"Eviction(from block {self.first_block}, {self.reason.value}, at {self.now_ns} ns, by {self.by!r})"


class Evictions(NamedTuple):
    """What is remembered, found by what is known for sure of where it was."""

    of_runs: dict[int, Eviction]  #: of runs that are gone, by the ghost id of their first block
    of_tails: dict[Hashable, Eviction]  #: of the tails of runs that live on, by the run


#: One eviction as it is written down, a plain tuple since that costs a third of a named one: the run, ghost id of its
#: first block or None if it lives on, first block, end block, symbols, reason, when, by whom.
_Record: TypeAlias = "tuple[Hashable, int | None, int, int, bytes | bytearray, EvictionReason, int, int | str | None]"


@final
class EvictionLog:
    """A bounded memory of evictions. Writing is one append a run; only reading looks for what belongs together."""

    __slots__ = ("_byte_count", "_records", "block_counts")

    def __init__(self) -> None:
        self._records: deque[_Record] = deque()
        self._byte_count = 0
        self.block_counts: dict[EvictionReason, int] = dict.fromkeys(EvictionReason, 0)

    def note(
        self,
        run: Hashable,
        ghost_id: int | None,
        first_block: int,
        end_block: int,
        symbols: bytes | bytearray,
        reason: EvictionReason,
        now_ns: int,
        by: int | str | None,
    ) -> None:
        """A run lost its blocks ``[first_block, end_block)``, which had these symbols; they are ours now.

        Args:
            run: by identity: whatever is split or joined, it is what the tail hung on.
            ghost_id: of the first block of a run that is gone; None for one that lost only its tail.
        """
        self._records.append((run, ghost_id, first_block, end_block, symbols, reason, now_ns, by))
        self._byte_count += len(symbols)

    def forget_oldest(self) -> None:
        """Return to the bounds; the owner calls it once for all the runs of one eviction."""
        records = self._records
        while self._byte_count > _BYTES_MAX or len(records) > _RECORDS_MAX:
            self._byte_count -= len(records.popleft()[4])

    def read(self) -> Evictions:
        """The last eviction of each run. O(records).

        A tail may go block by block: pieces that adjoin are one eviction to people.
        """
        found = Evictions({}, {})
        for run, ghost_id, first_block, end_block, edge, reason, now_ns, by in self._records:
            symbols, before = bytes(edge), found.of_tails.pop(run, None)
            if before is not None and before.first_block == end_block:
                symbols += before.symbols
            gone = Eviction(first_block, symbols, reason, now_ns, by)
            if ghost_id is None:
                found.of_tails[run] = gone
            else:
                found.of_runs[ghost_id] = gone
        return found
