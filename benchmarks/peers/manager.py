"""What does every measured cache manager have to be able to do?

One adapter a file behind this one interface; each calls its manager's public classes in the order in which that
manager's own scheduler does, and nothing else: what an adapter adds would be measured as the manager's.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["MANAGERS", "Admitted", "Demand", "Manager", "ManagerSpec", "Tokens"]

Tokens: TypeAlias = "NDArray[np.int32] | list[int] | array[int]"


class Admitted(NamedTuple):
    """A request that holds its pages."""

    handle: Any  #: the manager's own object; only its adapter looks inside
    cached_tokens: int  #: leading tokens whose pages were found


class Demand(Protocol):
    """So many pages wanted from a full pool."""

    def take(self) -> None:
        """Evict as many pages and allocate them: the timed part."""

    def give_back(self) -> None:
        """Return the pages to the free ones, empty."""


class Manager(Protocol):
    """A cache manager of one pool of pages on the device."""

    def engine_buffer(self, tokens: NDArray[np.int32]) -> Tokens:
        """The prompt as this manager's own engine keeps it, so that nothing has to be converted inside a call."""

    def visit(self, tokens: Tokens) -> int:
        """Begin and end a request whose prompt is cached; returns the cached tokens.

        Includes hashing where the manager hashes, the page ids that it hands to the engine, pinning and recency.
        """

    def match(self, tokens: Tokens) -> int:
        """Find what is cached of a prompt; returns the cached tokens.

        Protects it too where the manager can do that without allocating the rest (all but vLLM's).
        """

    def admit(self, tokens: Tokens) -> Admitted:
        """Begin a request and publish its prompt: pin what is cached, allocate the rest, evict where the pool is full.

        Raises:
            MemoryError: the pages do not suffice.
        """

    def release(self, admitted: Admitted) -> None:
        """End a request; its pages stay cached."""

    def demand(self, page_count: int) -> Demand:
        """Prepare to take this many pages, untimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSpec:
    """Where an adapter lives and what the reader should know of it."""

    title: str  #: column heading
    module: str
    factory: str
    package: str | None  #: distribution whose version is reported; None for our own
    buffers: bool  #: whether it makes use of a token array; if not, an array costs it a ``tolist()``

    def load(self) -> Callable[[int, int], Manager]:
        """Import the adapter (and with it the manager); returns ``make(page_count, page_tokens)``."""
        made: Callable[[int, int], Manager] = getattr(importlib.import_module(self.module), self.factory)
        return made


#: In the order of the table's columns.
MANAGERS: dict[str, ManagerSpec] = {
    "kvstore": ManagerSpec(title="kvstore", module="our_manager", factory="OurManager", package=None, buffers=True),
    "sglang-rust": ManagerSpec(
        title="SGLang, Rust unified tree",
        module="sglang_managers",
        factory="RustUnifiedManager",
        package="sglang",
        buffers=True,
    ),
    "sglang-python": ManagerSpec(
        title="SGLang, Python RadixCache",
        module="sglang_managers",
        factory="RadixManager",
        package="sglang",
        buffers=True,
    ),
    "vllm": ManagerSpec(title="vLLM", module="vllm_manager", factory="VllmManager", package="vllm", buffers=False),
}
