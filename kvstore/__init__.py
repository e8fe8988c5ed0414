"""What is cached, where, for whom: prefix tree, block allocator and the store that joins them."""

from kvstore._version import __version__
from kvstore.batch import SequenceBatch
from kvstore.block_allocator import BlockAllocator, PageSource
from kvstore.counters import StoreStats
from kvstore.errors import (
    CapacityError,
    ConfigError,
    InvalidRequest,
    KVStoreError,
    OutOfPages,
    ResetRefused,
    SequenceLost,
    StoreBroken,
)
from kvstore.eviction_log import Eviction, EvictionReason
from kvstore.explain import BlockFate, Explanation, Span
from kvstore.namespace import BlockFormat, Namespace, SymbolKind
from kvstore.prompt import MediaSpan, Prompt, TokenIds
from kvstore.sequence import Commit, Sequence
from kvstore.store import KVStore

__all__ = [
    "BlockAllocator",
    "BlockFate",
    "BlockFormat",
    "CapacityError",
    "Commit",
    "ConfigError",
    "Eviction",
    "EvictionReason",
    "Explanation",
    "InvalidRequest",
    "KVStore",
    "KVStoreError",
    "MediaSpan",
    "Namespace",
    "OutOfPages",
    "PageSource",
    "Prompt",
    "ResetRefused",
    "Sequence",
    "SequenceBatch",
    "SequenceLost",
    "Span",
    "StoreBroken",
    "StoreStats",
    "SymbolKind",
    "TokenIds",
    "__version__",
]
