"""How bytes move: layouts and page pools."""

from transfer.errors import LayoutError, PageError, TransferError
from transfer.layout import ElementType, Layout
from transfer.page_pool import NumpyPagePool, PageIds, PagePool, VirtualPagePool

__all__ = [
    "ElementType",
    "Layout",
    "LayoutError",
    "NumpyPagePool",
    "PageError",
    "PageIds",
    "PagePool",
    "TransferError",
    "VirtualPagePool",
]
