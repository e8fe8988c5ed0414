"""Obviously correct block-wise models of the orders that have one: a plain list of blocks, coldest first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from eviction import NEVER, RequestFacts
from tests.support.forest import Node

__all__ = ["BlockList", "min_hits"]

Prefix = tuple[int, ...]


class BlockList:
    """A list of single blocks as an eviction policy; runs are only remembered to translate. Every call is O(blocks).

    Blocks of one call enter deepest first, so that heads end up hottest. Blocks that a run gains later count as if they
    had entered with it. Runs may always merge, since a list of blocks can't tell.

    Args:
        renews: use moves blocks to the hot end (least recently used), or it does not (first in, first out).
    """

    def __init__(self, *, renews: bool) -> None:
        self.name = "block list"
        self._renews = renews
        self._blocks = count()
        self._cold_to_hot: list[int] = []
        self._runs: dict[Node, list[int]] = {}
        self._offered: dict[Node, None] = {}

    def insert(self, key: Node, *, first_block: int, block_count: int, ghost_id: int) -> None:
        self._runs[key] = [next(self._blocks) for _ in range(block_count)]
        self._cold_to_hot += reversed(self._runs[key])

    def grow(self, key: Node, block_count: int) -> None:
        tail = self._cold_to_hot.index(self._runs[key][-1])
        new = [next(self._blocks) for _ in range(block_count)]
        self._cold_to_hot[tail:tail] = reversed(new)
        self._runs[key] += new

    def shrink(self, key: Node, block_count: int) -> None:
        for _ in range(block_count):
            self._cold_to_hot.remove(self._runs[key].pop())

    def remove(self, key: Node) -> None:
        for block in self._runs.pop(key):
            self._cold_to_hot.remove(block)
        self._offered.pop(key, None)

    def split(self, key: Node, upper: Node, upper_block_count: int, *, ghost_id: int) -> None:
        blocks = self._runs[key]
        self._runs[upper], self._runs[key] = blocks[:upper_block_count], blocks[upper_block_count:]

    def can_merge(self, upper: Node, key: Node) -> bool:
        return True

    def merge(self, upper: Node, key: Node) -> None:
        self._runs[key] = self._runs.pop(upper) + self._runs[key]

    def offer(self, key: Node) -> None:
        self._offered[key] = None

    def withdraw(self, key: Node) -> None:
        del self._offered[key]

    def used(self, request: RequestFacts, path: Sequence[Node]) -> None:
        if self._renews:
            blocks = [block for key in path for block in self._runs[key]]
            self._cold_to_hot = [block for block in self._cold_to_hot if block not in set(blocks)] + blocks[::-1]

    def victims(self) -> Iterator[tuple[Node, int]]:
        tails = {self._runs[key][-1]: key for key in self._offered}
        for block in self._cold_to_hot:
            if block in tails:
                yield tails[block], 1

    def check_invariants(self) -> None:
        assert sorted(self._cold_to_hot) == sorted(block for blocks in self._runs.values() for block in blocks)


def min_hits(prompts: Iterable[Sequence[int]], capacity: int) -> list[int]:
    """Blocks hit by each prompt under Belady's MIN with bypass on single blocks, without any tree."""
    names = [[tuple(prompt[:end]) for end in range(1, len(prompt) + 1)] for prompt in prompts]
    uses: dict[Prefix, list[int]] = {}
    for ordinal, blocks in enumerate(names):
        for block in blocks:
            uses.setdefault(block, []).append(ordinal)
    cached: set[Prefix] = set()
    hits = []
    for ordinal, blocks in enumerate(names):
        hits.append(next((depth for depth, block in enumerate(blocks) if block not in cached), len(blocks)))
        cached |= set(blocks)
        while len(cached) > capacity:
            cached.remove(max(cached, key=lambda block: (_next(uses[block], ordinal), len(block), block)))
    return hits


def _next(ordinals: list[int], now: int) -> int:
    later = bisect_right(ordinals, now)
    return ordinals[later] if later < len(ordinals) else NEVER
