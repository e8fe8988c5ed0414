"""When is each block of a request used next? What the offline optimum knows and no other policy may.

A parent block is used whenever its child is, so along a path the next use never comes earlier with depth, and it
changes only where a later request leaves the path: a few segments say it for the whole path.

Cost: one backward pass, O(segments) steps plus O(blocks) inside numpy; keeps 12 bytes a segment and 8 a request.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import final

import numpy as np

from simulator.traces.record import TraceRequest

__all__ = ["NEVER", "Future"]

#: Stands for the ordinal of a request that does not come.
NEVER = sys.maxsize


@final
class Future:
    """The next use of every block of every request of a trace.

    Args:
        requests: in order of arrival, with dense ids that have one predecessor and one position (``LoadedTrace``). A
            request is named by its ordinal, its place in this order.
    """

    def __init__(self, requests: Sequence[TraceRequest]) -> None:
        blocks_end = 1 + max((int(request.blocks.max()) for request in requests if len(request.blocks)), default=-1)
        next_request = np.full(blocks_end, NEVER, np.int64)
        ends, next_uses, offsets = array("i"), array("q"), array("q", [0])
        for ordinal in range(len(requests) - 1, -1, -1):
            blocks = requests[ordinal].blocks
            if len(blocks):
                upcoming = next_request[blocks]
                cuts = np.flatnonzero(upcoming[1:] != upcoming[:-1])
                ends.extend((cuts + 1).tolist())
                ends.append(len(blocks))
                next_uses.extend(upcoming[cuts].tolist())
                next_uses.append(int(upcoming[-1]))
                next_request[blocks] = ordinal
            offsets.append(len(ends))
        self._ends = ends
        self._next_uses = next_uses
        self._offsets = offsets  # of the last request first, since the pass ran backwards

    def segments(self, request_id: int) -> tuple[list[int], list[int]]:
        """The path of a request, cut where the next use of its blocks changes; both lists empty without blocks.

        Args:
            request_id: ordinal of the request.

        Returns:
            For each segment, root first: the block position where it ends (exclusive), increasing; and the ordinal of
            the request that uses its blocks next, increasing, ``NEVER`` last if at all.

        Raises:
            IndexError: the trace has no such request.
        """
        request_count = len(self._offsets) - 1
        if not 0 <= request_id < request_count:
            raise IndexError(f"request {request_id} of a trace of {request_count}")
        begin, end = self._offsets[request_count - 1 - request_id], self._offsets[request_count - request_id]
        return self._ends[begin:end].tolist(), self._next_uses[begin:end].tolist()
