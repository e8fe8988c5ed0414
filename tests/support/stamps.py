"""Pages that say whose KV they hold: silent corruption becomes a failing assertion.

An engine under test writes a *stamp* into every page that it computes: bytes derived from the namespace, *all* tokens
and media from position 0 to the end of that page, the layer, and K or V. Whoever reads a page computes the stamp again.
A page with another stamp holds somebody else's bytes, or stale ones.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvstore import BlockAllocator, MediaSpan
from transfer import ElementType, Layout, NumpyPagePool

__all__ = ["Content", "GarblingAllocator", "StampedPages", "stamped_pages"]


@dataclass(slots=True)
class Content:
    """What a sequence's pages must hold: everything that its KV depends on."""

    namespace: bytes
    tokens: list[int]
    media: tuple[MediaSpan, ...] = ()
    stamps: list[bytes] = field(default_factory=list, repr=False)  #: of leading blocks, computed when asked

    def stamps_to(self, end: int, *, block_tokens: int, page_bytes: int) -> list[bytes]:
        """Stamps of the blocks ``[0, end)``. Tokens may be appended between calls, not changed."""
        assert end * block_tokens <= len(self.tokens), "nobody knows yet what these pages should hold"
        if len(self.stamps) < end:
            self.stamps = list(self._chain(end, block_tokens, page_bytes))
        return self.stamps[:end]

    def _chain(self, end: int, block_tokens: int, page_bytes: int) -> Iterator[bytes]:
        state = hashlib.blake2b(self.namespace)
        for start in range(0, end * block_tokens, block_tokens):
            state.update(struct.pack(f"<{block_tokens}i", *self.tokens[start : start + block_tokens]))
            for span in self.media:
                if span.start < start + block_tokens and start < span.start + span.token_count:
                    state.update(struct.pack("<qq", span.start, span.token_count) + span.digest)
            # One stream over the page in its own order: every layer, K and V get bytes of their own.
            yield hashlib.shake_128(state.digest()).digest(page_bytes)


class StampedPages:
    """A pool, and the engine that writes and reads it."""

    def __init__(self, pool: NumpyPagePool) -> None:
        self.pool = pool
        self._bytes = pool.pages.reshape(pool.page_count, -1).view(np.uint8)
        self._garbles = 0

    def write(self, page_table: NDArray[np.int32], content: Content, *, start: int, end: int) -> None:
        """What a forward pass does to the blocks ``[start, end)``."""
        for page, stamp in zip(page_table[start:end].tolist(), self._stamps(content, end)[start:], strict=True):
            self._bytes[page] = np.frombuffer(stamp, np.uint8)

    def garble(self, pages: Iterable[int]) -> None:
        """Overwrite pages that nobody may read any more, never twice with the same bytes."""
        for page in pages:
            self._garbles += 1
            self._bytes[page] = self._garbles * 0x9E37 % 251

    def check(self, page_table: NDArray[np.int32], content: Content, *, end: int) -> None:
        """What attention reads in the blocks ``[0, end)``: the right stamps, or ``AssertionError``."""
        found = self._bytes[page_table[:end]].tobytes()
        stamps = self._stamps(content, end)
        if found != b"".join(stamps):
            size = self._bytes.shape[1]
            wrong = [block for block in range(end) if found[block * size : (block + 1) * size] != stamps[block]]
            raise AssertionError(f"blocks {wrong} of {content} hold wrong bytes; page table {page_table.tolist()}")

    def _stamps(self, content: Content, end: int) -> list[bytes]:
        return content.stamps_to(end, block_tokens=self.pool.block_tokens, page_bytes=self._bytes.shape[1])


class GarblingAllocator:
    """A page source that garbles what it gets back, and keeps books of its own."""

    def __init__(self, pages: StampedPages) -> None:
        self._pages = pages
        self._inner = BlockAllocator(pages.pool.page_count)
        self.out: set[int] = set()

    @property
    def page_count(self) -> int:
        return self._inner.page_count

    @property
    def free_count(self) -> int:
        return self._inner.free_count

    def take(self, count: int) -> array[int]:
        taken = self._inner.take(count)
        assert self.out.isdisjoint(taken), "a page was handed out twice"
        self.out.update(taken)
        return taken

    def give(self, pages: Sequence[int]) -> None:
        assert len(set(pages)) == len(pages), "a page came back twice in one call"
        assert self.out.issuperset(pages), "a page came back that was not out"
        self._inner.give(pages)
        self.out.difference_update(pages)
        self._pages.garble(pages)
        self._inner.check_invariants()


def stamped_pages(*, page_count: int, block_tokens: int) -> StampedPages:
    """A small pool: 2 layers of K and V, 8 bytes a token in each."""
    layout = Layout(layers=2, kv_heads=1, head_dim=2, block_tokens=block_tokens, element=ElementType.FLOAT32)
    return StampedPages(NumpyPagePool(layout, page_count=page_count))
