"""Which pages are free? A stack of page ids."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from typing import Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kvstore.errors import ConfigError, InvalidRequest, OutOfPages

__all__ = ["BlockAllocator", "PageSource"]


@runtime_checkable
class PageSource(Protocol):
    """Hands out page ids. An engine that has a free list of its own brings it as one of these."""

    @property
    def page_count(self) -> int:
        """Pages there are; ids are in ``[0, page_count)``."""

    @property
    def free_count(self) -> int:
        """Pages that ``take`` could hand out now."""

    def take(self, count: int) -> array[int]:
        """Hand out ``count`` different free pages, or raise ``OutOfPages`` and change nothing."""

    def give(self, pages: Sequence[int]) -> None:
        """Take pages back; all of them must be out, each named once, or nothing is changed."""


@final
class BlockAllocator:
    """A ``PageSource`` over one pool: a numpy stack of free ids, so that n pages cost one slice.

    INV-4: a page is either on the stack or out, never both; ``free_count + out = page_count``.

    Cost: O(pages named), a handful of array operations whatever their number.
    """

    __slots__ = ("_free", "_out", "_out_flags", "_rank", "_top")

    def __init__(self, page_count: int) -> None:
        count = _checked_count(page_count)
        if count < 1:
            raise ConfigError(f"a pool has at least one page, got {page_count}")
        # The stack grows downwards, free ids in [_top, page_count): n pages are one forward slice, and a fresh pool
        # hands out 0, 1, 2 ... in order, which is easier to read in a debugger.
        self._free: NDArray[np.int32] = np.arange(count, dtype=np.int32)
        self._top = 0
        self._out_flags = bytearray(count)  # one byte a page; Python reads a bytearray faster than an array
        self._out: NDArray[np.bool_] = np.frombuffer(self._out_flags, np.bool_)
        self._rank: NDArray[np.int32] = np.zeros(count, np.int32)  # scratch: finds a page named twice in one call

    @property
    def page_count(self) -> int:
        """Pages of the pool."""
        return len(self._free)

    @property
    def free_count(self) -> int:
        """Pages on the stack."""
        return len(self._free) - self._top

    def take(self, count: int) -> array[int]:
        """Hand out ``count`` pages.

        Raises:
            InvalidRequest: not a whole number, or negative.
            OutOfPages: fewer are free.
        """
        count = _checked_count(count)
        if count > self.free_count:
            raise OutOfPages(needed=count, free=self.free_count, evictable=0)
        end = self._top + count
        ids = self._free[self._top : end]
        self._out[ids.astype(np.intp)] = True  # an int32 index costs 1 us more than this copy
        self._top = end
        return array("i", ids.tobytes())

    def give(self, pages: Sequence[int]) -> None:
        """Take pages back.

        Raises:
            InvalidRequest: a page is not of this pool, not out, or named twice.
        """
        count = len(pages)
        if not count:
            return
        if (
            count == 1 and type(pages) is array and pages.typecode == "i"
        ):  # the last, partial page of a request that ends
            self._give_one(pages[0])
            return
        ids = self._checked_out(pages)
        self._out[ids] = False
        start = self._top - count
        self._free[start : self._top] = ids
        self._top = start

    def is_out(self, page: int) -> bool:
        """Whether the page was handed out and has not come back."""
        return 0 <= page < len(self._out_flags) and self._out_flags[page] == 1

    def check_invariants(self) -> None:
        """INV-4, from scratch."""
        free = self._free[self._top :]
        assert len(np.unique(free)) == len(free), "a page lies on the free stack twice"
        assert not self._out[free].any(), "a free page counts as handed out"
        assert int(self._out.sum()) == self._top, "pages went missing"

    def _give_one(self, page: int) -> None:
        if not self.is_out(page):
            raise InvalidRequest(f"page {page} is already free, or not one of the {len(self._out_flags)} of this pool")
        self._out_flags[page] = 0
        self._top -= 1
        self._free[self._top] = page

    def _checked_out(self, pages: Sequence[int]) -> NDArray[np.intp]:
        found = np.asarray(pages)
        if found.dtype.kind not in "iu" or found.ndim != 1:
            raise InvalidRequest(f"page ids are one row of integers, got {found.dtype} of shape {found.shape}")
        ids = found.astype(np.intp)
        low, high = int(np.minimum.reduce(ids)), int(np.maximum.reduce(ids))
        if low < 0 or high >= len(self._out):
            raise InvalidRequest(f"page ids lie in [0, {len(self._out)}), got {low} to {high}")
        out = self._out[ids]
        if not np.logical_and.reduce(out):
            raise InvalidRequest(f"page {int(ids[~out][0])} is already free")
        if len(ids) > 1:
            order = np.arange(len(ids), dtype=np.int32)
            self._rank[ids] = order
            if not np.logical_and.reduce(self._rank[ids] == order):
                raise InvalidRequest("a page is named twice in one call")
        return ids


def _checked_count(count: int) -> int:
    if isinstance(count, bool):
        raise InvalidRequest("a page count is a whole number, got a bool")
    try:
        number = operator.index(count)
    except TypeError as wrong:
        raise InvalidRequest(f"a page count is a whole number, got {count!r}") from wrong
    if number < 0:
        raise InvalidRequest(f"a page count cannot be negative, got {number}")
    return number
