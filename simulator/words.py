"""How counts read: ``1 block``, ``3,677 blocks``."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun; the plural takes an s unless it is given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
