"""An obviously correct store of one tier: a dictionary of single blocks, no tree, no runs, no pages.

A block is named by its whole prefix: ``(namespace digest, block, block, ...)``, a block being its tokens and the media
that touches them. Everything is recomputed by scanning; a pool has some dozens of blocks. Who is evicted is exact: each
block has a rank, and the coldest unprotected block without a cached child goes.

Ranks follow the words of the two policies, block by block:

* published blocks get a new rank; those that continue a run which only this request holds get the rank of that run;
* under least recently used, a release ranks the request's whole path anew; under first in first out, nothing does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from kvstore import MediaSpan

__all__ = ["ModelCommit", "ModelRequest", "ModelStore", "NoRoom", "Prefix"]

Prefix = tuple[object, ...]


class NoRoom(NamedTuple):
    """The numbers of an OutOfPages."""

    needed: int
    free: int
    evictable: int


class ModelCommit(NamedTuple):
    tokens: int
    remapped: range


@dataclass(slots=True, eq=False)
class ModelRequest:
    """One running request."""

    space: bytes
    tokens: list[int]
    media: tuple[MediaSpan, ...]
    skip_read: bool
    skip_write: bool
    prompt_tokens: int
    pin: Prefix  #: the deepest block that it protects; its ancestors are protected with it
    hit_tokens: int = 0  #: usable tokens found at its begin
    shared: int = 0  #: leading blocks of its page table that are the tree's
    own: int = 0  #: pages of its page table behind those
    private: int = 0  #: pages of its page table that it kept though the tree has the same block
    grown: Prefix | None = None  #: end of the run that it published itself
    parked: bool = False
    admitted: bool = False
    lost: int = 0  #: number of the forced reset that it survived, 0 for none


@dataclass(slots=True)
class ModelStore:
    page_count: int
    block_tokens: int
    retained: int
    renews: bool
    ranks: dict[Prefix, int] = field(default_factory=dict)  #: every cached block
    running: list[ModelRequest] = field(default_factory=list)
    ever: set[Prefix] = field(default_factory=set)  #: every block that was ever published
    counts: Counter[str] = field(default_factory=Counter)
    clock: int = 0

    def blocks(self, tokens: list[int], media: tuple[MediaSpan, ...], end: int) -> Prefix:
        size = self.block_tokens
        found: list[object] = []
        for start in range(0, end * size, size):
            touching = [
                (span.start - start, span.token_count, span.digest)
                for span in media
                if span.start < start + size and start < span.start + span.token_count
            ]
            found.append((tuple(tokens[start : start + size]), tuple(touching)))
        return tuple(found)

    def resident(self, space: bytes, blocks: Prefix) -> int:
        """How many leading blocks are cached."""
        prefix = (space, *blocks)
        return next((n for n in range(len(blocks)) if prefix[: n + 2] not in self.ranks), len(blocks))

    def match(self, space: bytes, tokens: list[int], media: tuple[MediaSpan, ...]) -> int:
        return self.resident(space, self.blocks(tokens, media, len(tokens) // self.block_tokens))

    @property
    def protected(self) -> set[Prefix]:
        return {pin for request in self.running if not request.lost for pin in _path(request.pin)}

    @property
    def evictable(self) -> int:
        return len(self.ranks.keys() - self.protected)

    @property
    def reserved(self) -> int:
        lost = {(request.lost, block) for request in self.running if request.lost for block in _path(request.pin)}
        return len(lost) + sum(request.own + request.private for request in self.running)

    @property
    def free(self) -> int:
        return self.page_count - len(self.ranks) - self.reserved

    @property
    def spaces(self) -> set[object]:
        """Namespaces that have something cached or running."""
        running = {request.space for request in self.running if not request.lost}
        return running | {block[0] for block in self.ranks}

    def begin(
        self, space: bytes, tokens: list[int], media: tuple[MediaSpan, ...], *, skip_read: bool, skip_write: bool
    ) -> ModelRequest:
        request = ModelRequest(space, list(tokens), media, skip_read, skip_write, len(tokens), (space,))
        self._find(request)
        request.hit_tokens = request.shared * self.block_tokens
        self.running.append(request)
        return request

    def reserve(self, request: ModelRequest, *, through: int) -> NoRoom | None:
        need = self.shortfall(request, through)
        if need > 0:
            self.let_last_go(request, need)
            if need > self.free + self.evictable:
                self.counts["out_of_pages"] += 1
                return NoRoom(need, self.free, self.evictable)
            self._evict(need - self.free, "capacity")
            request.own += need
        self._admit(request)
        return None

    def let_last_go(self, request: ModelRequest, need: int) -> None:
        """Stop pinning a last block that is computed again, if its page is the one that is missing."""
        if need == self.free + self.evictable + 1 and self._last_is_spare(request):
            request.pin = request.pin[:-1]

    def shortfall(self, request: ModelRequest, through: int) -> int:
        return max(0, -(-through // self.block_tokens) - request.shared - request.own)

    def commit(self, request: ModelRequest, *, through: int, fold: bool) -> ModelCommit:
        full, shared = through // self.block_tokens, request.shared
        if request.skip_write or full <= shared:
            return ModelCommit(shared * self.block_tokens, range(0))
        path: Prefix = (request.space, *self.blocks(request.tokens, request.media, full))
        joined = self.resident(request.space, path[1:])
        request.pin = max(request.pin, path[: joined + 1], key=len)
        self.counts["duplicate_blocks"] += joined - shared
        request.own -= joined - shared
        request.private += 0 if fold else joined - shared
        self._publish(request, path, joined)
        request.own -= full - joined
        request.shared = full
        return ModelCommit(full * self.block_tokens, range(shared, joined) if fold and joined > shared else range(0))

    def park(self, request: ModelRequest) -> None:
        if not request.parked:
            self._admit(request)
            request.own = request.private = request.shared = 0
            request.pin, request.grown, request.parked = (request.space,), None, True
            self._trim()

    def resume(self, request: ModelRequest) -> None:
        request.parked = False
        if not request.skip_write:
            request.skip_read = False  # its own blocks, at least, must be found again
        self._find(request)
        self.counts["resumed_tokens"] += request.shared * self.block_tokens

    def end(self, request: ModelRequest, *, used: bool) -> None:
        self.running.remove(request)
        if request.lost:
            return
        if used:
            self._admit(request)
            if self.renews:
                self.clock += 1
                self.ranks.update(dict.fromkeys(_path(request.pin), self.clock))
        self._trim()

    def reset(self) -> int:
        dropped = len(self.ranks)
        self.counts["reset"] += dropped
        self.counts["resets"] += 1
        self.ranks.clear()
        for request in self.running:
            request.lost = request.lost or self.counts["resets"]
        return dropped

    def _find(self, request: ModelRequest) -> None:
        tokens = request.tokens
        found = 0 if request.skip_read else self.match(request.space, tokens, request.media)
        request.pin = (request.space, *self.blocks(tokens, request.media, found))
        request.shared = min(found, (len(tokens) - 1) // self.block_tokens)

    def _last_is_spare(self, request: ModelRequest) -> bool:
        """Whether it alone protects a last block that it does not use, since its last token is computed again."""
        holders = [other for other in self.running if not other.lost and other.pin[: len(request.pin)] == request.pin]
        return len(request.pin) - 1 > request.shared and holders == [request]

    def _publish(self, request: ModelRequest, path: Prefix, start: int) -> None:
        if start + 1 == len(path):
            return
        alone = sum(other.pin == request.pin for other in self.running if not other.lost) == 1
        childless = not any(block[:-1] == request.pin for block in self.ranks)
        if request.pin == request.grown and alone and childless:
            rank = self.ranks[request.pin]
        else:
            self.clock += 1
            rank = self.clock
        blocks = [path[: n + 2] for n in range(start, len(path) - 1)]
        self.ranks.update(dict.fromkeys(blocks, rank))
        self.ever.update(blocks)
        self.counts["published_blocks"] += len(blocks)
        request.pin = request.grown = path

    def _admit(self, request: ModelRequest) -> None:
        if not request.admitted:
            request.admitted = True
            self.counts["requests"] += 1
            if not request.skip_read:
                self.counts["queried_tokens"] += request.prompt_tokens
                self.counts["hit_tokens"] += request.hit_tokens

    def _trim(self) -> None:
        self._evict(min(len(self.ranks) - self.retained, self.evictable), "retention")

    def _evict(self, count: int, reason: str) -> None:
        for _ in range(count):
            parents = {block[:-1] for block in self.ranks}
            leaves = [block for block in self.ranks.keys() - self.protected if block not in parents]
            coldest = min(leaves, key=lambda block: self.ranks[block])
            assert sum(self.ranks[leaf] == self.ranks[coldest] for leaf in leaves) == 1, "the coldest is not unique"
            del self.ranks[coldest]
            self.counts[reason] += 1


def _path(prefix: Prefix) -> list[Prefix]:
    """The blocks from below the root to ``prefix``."""
    return [prefix[:end] for end in range(2, len(prefix) + 1)]
