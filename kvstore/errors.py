"""What the store raises on purpose; a class of its own only where the caller would react differently."""

from __future__ import annotations

from functools import partial

__all__ = [
    "CapacityError",
    "ConfigError",
    "InvalidRequest",
    "KVStoreError",
    "OutOfPages",
    "ResetRefused",
    "SequenceLost",
    "StoreBroken",
]


class KVStoreError(Exception):
    """Root of everything the store raises on purpose."""


class InvalidRequest(KVStoreError, ValueError):
    """Fix the call; retrying cannot help. Nothing was changed."""


class ConfigError(InvalidRequest):
    """A setting is wrong; raised at construction."""


class SequenceLost(InvalidRequest):
    """The store was reset by force while this sequence ran. Release it and begin again; its pages are its own until
    then.
    """


class CapacityError(KVStoreError):
    """Release something or ask for less, then retry. Nothing was changed."""


class OutOfPages(CapacityError):
    """The device has too few pages.

    Attributes:
        needed: pages the call had to take.
        free: pages that were free.
        evictable: pages that evicting everything unheld would have freed besides.
    """

    def __init__(self, *, needed: int, free: int, evictable: int) -> None:
        super().__init__(f"need {needed} pages, have {free} free and {evictable} evictable")
        self.needed = needed
        self.free = free
        self.evictable = evictable

    def __reduce__(self) -> tuple[partial[OutOfPages], tuple[()]]:
        return partial(OutOfPages, needed=self.needed, free=self.free, evictable=self.evictable), ()


class ResetRefused(CapacityError):
    """A reset would pull pages from under running sequences. Release them, or reset by force.

    Attributes:
        running: sequences that hold pages.
    """

    def __init__(self, *, running: int) -> None:
        super().__init__(f"{running} sequences still run; release them first or reset(force=True)")
        self.running = running

    def __reduce__(self) -> tuple[partial[ResetRefused], tuple[()]]:
        return partial(ResetRefused, running=self.running), ()


class StoreBroken(KVStoreError):
    """An exception from outside (an interrupt, a policy that raised) tore a change apart; make a new store.

    Nothing that the store says can be trusted any more, so it says nothing. Releasing sequences is a no-op.
    """
