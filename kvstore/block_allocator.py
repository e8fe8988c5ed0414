"""Which pages are free? A stack of page ids."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Sequence
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from kvstore.errors import ConfigError, InvalidRequest, OutOfPages

__all__ = ["BlockAllocator", "PageSource"]


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

    __slots__ = ("_free", "_free_count", "_order", "_out", "_rank")

    def __init__(self, page_count: int) -> None:
        count = _checked_count(page_count)
        if count < 1:
            raise ConfigError(f"a pool has at least one page, got {page_count}")
        # Descending, so that the first pages handed out are 0, 1, 2 ... in order: easier to read in a debugger.
        self._free: NDArray[np.int32] = np.arange(count - 1, -1, -1, dtype=np.int32)
        self._free_count = count
        self._out: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._rank: NDArray[np.int32] = np.empty(count, np.int32)  # scratch: finds a page named twice in one call
        self._order: NDArray[np.int32] = np.arange(count, dtype=np.int32)

    @property
    def page_count(self) -> int:
        """Pages of the pool."""
        return len(self._free)

    @property
    def free_count(self) -> int:
        """Pages on the stack."""
        return self._free_count

    def take(self, count: int) -> array[int]:
        """Hand out ``count`` pages.

        Raises:
            InvalidRequest: not a whole number, or negative.
            OutOfPages: fewer are free.
        """
        count = _checked_count(count)
        rest = self._free_count - count
        if rest < 0:
            raise OutOfPages(needed=count, free=self._free_count, evictable=0)
        ids = self._free[rest : self._free_count][::-1]
        self._out[ids] = True
        self._free_count = rest
        return array("i", ids.tobytes())

    def give(self, pages: Sequence[int]) -> None:
        """Take pages back.

        Raises:
            InvalidRequest: a page is not of this pool, not out, or named twice.
        """
        count = len(pages)
        if not count:
            return
        ids = np.frombuffer(pages, np.int32) if type(pages) is array and pages.typecode == "i" else np.asarray(pages)
        self._check_out(ids)
        self._out[ids] = False
        end = self._free_count + count
        self._free[self._free_count : end] = ids[::-1]
        self._free_count = end

    def is_out(self, page: int) -> bool:
        """Whether the page was handed out and has not come back."""
        return 0 <= page < len(self._out) and bool(self._out[page])

    def check_invariants(self) -> None:
        """INV-4, from scratch."""
        free = self._free[: self._free_count]
        assert len(np.unique(free)) == self._free_count, "a page lies on the free stack twice"
        assert not self._out[free].any(), "a free page counts as handed out"
        assert int(self._out.sum()) + self._free_count == len(self._free), "pages went missing"

    def _check_out(self, ids: NDArray[np.integer]) -> None:
        if ids.dtype.kind not in "iu" or ids.ndim != 1:
            raise InvalidRequest(f"page ids are one row of integers, got {ids.dtype} of shape {ids.shape}")
        if ids.min() < 0 or ids.max() >= len(self._out):
            raise InvalidRequest(f"page ids lie in [0, {len(self._out)}), got {int(ids.min())} to {int(ids.max())}")
        if not self._out[ids].all():
            raise InvalidRequest(f"page {int(ids[~self._out[ids]][0])} is already free")
        if len(ids) > 1:
            order = self._order[: len(ids)]
            if len(order) == len(ids):
                self._rank[ids] = order
            if len(order) < len(ids) or not np.array_equal(self._rank[ids], order):
                raise InvalidRequest("a page is named twice in one call")


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
