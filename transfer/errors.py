"""What ``transfer`` raises on purpose."""

from __future__ import annotations

__all__ = ["LayoutError", "PageError", "TransferError"]


class TransferError(Exception):
    """Root of everything this package raises on purpose."""


class LayoutError(TransferError, ValueError):
    """A layout or a pool was described wrongly; raised at construction."""


class PageError(TransferError, ValueError):
    """Page ids or buffers do not fit the pool; nothing was copied."""
