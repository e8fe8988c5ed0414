"""Where do pages live? The contract of a pool, a pool of numpy arrays, and a pool that only counts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from transfer.errors import LayoutError, PageError
from transfer.layout import Layout

__all__ = ["NumpyPagePool", "PageIds", "PagePool", "VirtualPagePool"]

#: Page ids, distinct, any order.
PageIds: TypeAlias = "Sequence[int] | NDArray[np.integer]"

#: Pools hold pages as unsigned words: on some backends a scatter into bf16 or fp8 converts the whole pool.
_WORDS: Final[dict[int, np.dtype[np.unsignedinteger]]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
}


@runtime_checkable
class PagePool(Protocol):
    """Pages of one tier, by number."""

    @property
    def page_count(self) -> int:
        """Pages of the pool; ids are in ``[0, page_count)``."""

    @property
    def block_tokens(self) -> int:
        """Tokens whose KV one page holds."""


@final
class VirtualPagePool:
    """A pool without bytes: for simulation, and for engines that keep their pages to themselves."""

    __slots__ = ("block_tokens", "page_count")

    def __init__(self, *, page_count: int, block_tokens: int) -> None:
        self.page_count = _at_least_one("page_count", page_count)
        self.block_tokens = _at_least_one("block_tokens", block_tokens)


@final
class NumpyPagePool:
    """Pages as one numpy array: the reference that every other pool is compared with.

    Shapes:
        pages: [page_count, *layout.page_shape] of unsigned words as wide as an element
    """

    __slots__ = ("layout", "pages")

    def __init__(self, layout: Layout, *, page_count: int) -> None:
        self.layout = layout
        self.pages: NDArray[np.unsignedinteger] = np.zeros(
            (_at_least_one("page_count", page_count), *layout.page_shape), _WORDS[layout.element.item_bytes]
        )

    @property
    def page_count(self) -> int:
        """Pages of the pool."""
        return len(self.pages)

    @property
    def block_tokens(self) -> int:
        """Tokens of one page."""
        return self.layout.block_tokens

    def gather(self, ids: PageIds, out: NDArray[np.unsignedinteger]) -> None:
        """Copy pages out.

        Args:
            ids: pages to read.
            out: [len(ids), *layout.page_shape], written in the order of ``ids``.

        Raises:
            PageError: an id or ``out`` does not fit; nothing was copied.

        Cost: one memcpy for each page.
        """
        np.take(self.pages, self._checked(ids, out), axis=0, out=out, mode="clip")

    def scatter(self, ids: PageIds, source: NDArray[np.unsignedinteger]) -> None:
        """Copy pages in: ``source`` [len(ids), *layout.page_shape], in the order of ``ids``. Errors and cost as
        ``gather``.
        """
        self.pages[self._checked(ids, source)] = source

    def copy_within(self, source: int, target: int) -> None:
        """Copy one page onto another (a partial block that is about to diverge).

        Raises:
            PageError: a page is not of this pool, or both are the same.
        """
        if source == target:
            raise PageError(f"page {source} cannot be copied onto itself")
        pair = self._checked_ids([source, target])
        self.pages[pair[1]] = self.pages[pair[0]]

    def _checked(self, ids: PageIds, buffer: NDArray[np.unsignedinteger]) -> NDArray[np.intp]:
        checked = self._checked_ids(ids)
        shape = (len(checked), *self.layout.page_shape)
        if buffer.shape != shape or buffer.dtype != self.pages.dtype:
            raise PageError(
                f"buffer must be {self.pages.dtype} of shape {shape}, got {buffer.dtype} of shape {buffer.shape}"
            )
        return checked

    def _checked_ids(self, ids: PageIds) -> NDArray[np.intp]:
        found = np.asarray(ids)
        if found.size and (found.dtype.kind not in "iu" or found.ndim != 1):
            raise PageError(f"page ids are one row of integers, got {found.dtype} of shape {found.shape}")
        checked = found.astype(np.intp)
        if checked.size and (checked.min() < 0 or checked.max() >= self.page_count):
            raise PageError(f"page ids lie in [0, {self.page_count}), got {int(checked.min())} to {int(checked.max())}")
        if len(np.unique(checked)) != checked.size:
            raise PageError("a page is named twice in one call")
        return checked


def _at_least_one(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError as wrong:
        raise LayoutError(f"{name} must be a whole number, got {value!r}") from wrong
    if isinstance(value, bool) or number < 1:
        raise LayoutError(f"{name} must be at least 1, got {value!r}")
    return number
