"""How far apart do uses of a block lie, and so what would an LRU of any size hit?

One pass gives the exact LRU stack distance of every block access, for a prefix cache that knows its tree: of one
request the deepest block counts as touched first, so the root ends hottest and an ancestor is never colder than its
descendants. The distance of an access is the block's place in that order when its request arrives, 1 being the hottest:
the number of distinct blocks touched since its last touch, counting itself. An LRU of C blocks hits if distance <= C.

Blocks of one request share their fate, so nothing here is done per block in Python. Along a path the time of last use
never increases with depth and changes only where an earlier request left the path: a path is a few *stretches* of
blocks that the same earlier request was the last to use. Within a stretch the distance grows by one per block; where it
begins depends on how many blocks later requests were the last to use, which a Fenwick tree over requests counts.

Cost: O(stretches · log requests) steps, plus O(blocks) inside numpy.
Source: Mattson et al., "Evaluation techniques for storage hierarchies" (1970); Bennett and Kruskal's tree over time
stamps (1975), here over requests.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.result import HitRule
from simulator.traces.record import TraceRequest

__all__ = ["Returns", "Reuse", "measure_reuse"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Returns:
    """Stretches of blocks that come back together: one entry per request and earlier request that used them last.

    Shapes:
        all: [stretches] int64, in order of request, then depth
    """

    request: NDArray[np.int64]  #: ordinal of the request that uses the blocks again
    previous: NDArray[np.int64]  #: ordinal of the request that was the last to use them
    first_block: NDArray[np.int64]  #: how many blocks of the path lie before the stretch
    block_count: NDArray[np.int64]  #: blocks, at least 1
    distance: NDArray[np.int64]  #: stack distance of the first block; each later one lies 1 further

    def before(self, limits: NDArray[np.int64]) -> Returns:
        """Only blocks at positions in ``[0, limits[request])``."""
        count = np.minimum(self.block_count, limits[self.request] - self.first_block)
        kept = count > 0
        return Returns(
            request=self.request[kept],
            previous=self.previous[kept],
            first_block=self.first_block[kept],
            block_count=count[kept],
            distance=self.distance[kept],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reuse:
    """When blocks come back, and what caches of any size would hit.

    Hit tokens are cut at the prompt's length: a started last block counts with the tokens that it has.

    Shapes:
        blocks_at_distance, tokens_at_distance: [greatest distance + 1] int64; nothing lies at distance 0
    """

    hit_rule: HitRule
    block_accesses: int
    input_tokens: int
    unique_blocks: int
    hit_requests: int  #: requests of which an infinite cache hits at least one block
    blocks_at_distance: NDArray[np.int64]  #: hits of an infinite cache, in blocks
    tokens_at_distance: NDArray[np.int64]  #: the same hits, in tokens
    returns: Returns  #: every reused block, whatever the hit rule

    @property
    def hit_blocks(self) -> int:
        """The ceiling: what an infinite cache hits."""
        return int(self.blocks_at_distance.sum())

    @property
    def hit_tokens(self) -> int:
        """The ceiling in tokens."""
        return int(self.tokens_at_distance.sum())

    def hits_at(self, capacity_blocks: int) -> int:
        """Blocks that an LRU of ``capacity_blocks`` hits."""
        return int(self.blocks_at_distance[: max(0, capacity_blocks) + 1].sum())

    def hit_tokens_at(self, capacity_blocks: int) -> int:
        """Tokens that an LRU of ``capacity_blocks`` hits."""
        return int(self.tokens_at_distance[: max(0, capacity_blocks) + 1].sum())

    def distance_quantile(self, share: float) -> int | None:
        """The smallest LRU, in blocks, that hits this share (0 to 1) of the ceiling; None if nothing is ever reused."""
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"a share lies in [0, 1], got {share}")
        hits = np.cumsum(self.blocks_at_distance)
        if not hits.size:
            return None
        return int(np.searchsorted(hits, max(1, math.ceil(share * int(hits[-1])))))


def measure_reuse(requests: Sequence[TraceRequest], *, hit_rule: HitRule = HitRule.TRACE) -> Reuse:
    """Measure the stack distance of every block access, from a cold cache.

    Args:
        requests: in order of arrival, with dense ids that have one predecessor and one position (``LoadedTrace``).
        hit_rule: ``SERVING`` counts no hit from block ``(input_len - 1) // block_tokens`` on; distances stay the same.
    """
    path_blocks = np.array([len(request.blocks) for request in requests], np.int64)
    input_len = np.array([request.input_len for request in requests], np.int64)
    block_tokens = np.array([request.block_tokens for request in requests], np.int64)
    unique_blocks = 1 + max((int(request.blocks.max()) for request in requests if len(request.blocks)), default=-1)
    returns = _find_returns(requests, unique_blocks)
    counted = returns
    if hit_rule is HitRule.SERVING:
        counted = returns.before(np.maximum(input_len - 1, 0) // block_tokens)
    blocks_at_distance = _histogram(counted, np.ones_like(counted.distance))
    return Reuse(
        hit_rule=hit_rule,
        block_accesses=int(path_blocks.sum()),
        input_tokens=int(input_len.sum()),
        unique_blocks=unique_blocks,
        hit_requests=len(np.unique(counted.request)),
        blocks_at_distance=blocks_at_distance,
        tokens_at_distance=_token_histogram(counted, input_len, block_tokens, len(blocks_at_distance)),
        returns=returns,
    )


def _find_returns(requests: Sequence[TraceRequest], unique_blocks: int) -> Returns:
    """The one pass over the trace."""
    last_request = np.full(unique_blocks, -1, np.int32)
    held = _HeldBlocks(len(requests))
    rows = array("q")
    for ordinal, request in enumerate(requests):
        blocks = request.blocks
        if not len(blocks):
            continue
        for previous, first, end in _stretches(last_request[blocks]):
            # The `first` blocks above have been taken out of `held` already; all of them are hotter.
            rows.extend((ordinal, previous, first, end - first, held.newer_than(previous) + first + 1))
            held.add(previous, first - end)
        last_request[blocks] = ordinal
        held.add(ordinal, len(blocks))
    table = np.array(rows, np.int64).reshape(-1, 5)
    request_, previous_, first_, count, distance = (np.ascontiguousarray(column) for column in table.T)
    return Returns(request=request_, previous=previous_, first_block=first_, block_count=count, distance=distance)


def _stretches(last_use: NDArray[np.int32]) -> Iterator[tuple[int, int, int]]:
    """The last user and the range ``[first, end)`` of each run of equal entries, up to the first unseen block."""
    first = 0
    for end in (*(np.flatnonzero(last_use[1:] != last_use[:-1]) + 1).tolist(), len(last_use)):
        previous = int(last_use[first])
        if previous < 0:
            return
        yield previous, first, end
        first = end


@final
class _HeldBlocks:
    """How many blocks each request was the last to use: a Fenwick tree, so that suffix sums cost O(log requests)."""

    def __init__(self, request_count: int) -> None:
        self._tree = [0] * (request_count + 1)
        self._total = 0

    def add(self, ordinal: int, block_count: int) -> None:
        """Change the count of one request."""
        tree = self._tree
        self._total += block_count
        node = ordinal + 1
        while node < len(tree):
            tree[node] += block_count
            node += node & -node

    def newer_than(self, ordinal: int) -> int:
        """Blocks that requests after ``ordinal`` were the last to use."""
        tree = self._tree
        newer = self._total
        node = ordinal + 1
        while node:
            newer -= tree[node]
            node &= node - 1
        return newer


def _histogram(returns: Returns, weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum a stretch's weight over the distances of its blocks; one entry per distance, from 0."""
    if not len(returns.distance):
        return np.zeros(0, np.int64)
    end = returns.distance + returns.block_count
    steps = np.zeros(int(end.max()) + 1, np.int64)
    np.add.at(steps, returns.distance, weights)
    np.subtract.at(steps, end, weights)
    return np.cumsum(steps[:-1])


def _token_histogram(
    returns: Returns, input_len: NDArray[np.int64], block_tokens: NDArray[np.int64], size: int
) -> NDArray[np.int64]:
    """Hit tokens by distance: whole blocks, then the started one that may follow them."""
    full_blocks = input_len // block_tokens
    whole = returns.before(full_blocks)
    tokens = np.zeros(size, np.int64)
    by_distance = _histogram(whole, block_tokens[whole.request])
    tokens[: len(by_distance)] = by_distance
    into = full_blocks[returns.request] - returns.first_block
    started = (into >= 0) & (into < returns.block_count)
    owner = returns.request[started]
    np.add.at(tokens, (returns.distance + into)[started], (input_len % block_tokens)[owner])
    return tokens
