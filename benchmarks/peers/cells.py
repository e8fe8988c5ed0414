"""What is each measured figure called? One name for worker, table and goals, so that they cannot disagree."""

from __future__ import annotations

__all__ = [
    "BUFFER",
    "CONVERSATION_TURNS",
    "EVICTED_PAGE_COUNTS",
    "LIST",
    "LONG_CONVERSATION_TOKEN_COUNTS",
    "LONG_CONVERSATION_TURNS",
    "NATIVE",
    "OURS",
    "POOL_PAGE_COUNTS",
    "TOKEN_COUNTS",
    "cached",
    "evict",
    "half",
    "memory",
    "miss",
    "new",
    "trace",
]

OURS = "kvstore"
TOKEN_COUNTS = (1 << 10, 1 << 13, 1 << 15, 1 << 17)
CONVERSATION_TURNS = 32
LONG_CONVERSATION_TOKEN_COUNTS = (1 << 13, 1 << 15, 1 << 17)  #: those of which a turn fills whole pages
LONG_CONVERSATION_TURNS = 256  #: for our own alone: it must not matter in how many commits a prompt came
POOL_PAGE_COUNTS = (100_000, 1_000_000)
EVICTED_PAGE_COUNTS = (1_000, 10_000)

BUFFER = "numpy"  #: int32 array; a manager that takes only lists gets ``tolist()`` inside the timed call
LIST = "list"  #: Python ints
NATIVE = "native"  #: whatever the manager's own engine holds: int32 array, ``array('q')``, list


def cached(token_count: int, form: str, *, turns: int = 1) -> str:
    """Begin and end a request whose whole prompt is cached, having come in ``turns`` commits."""
    return f"cached/{turns}-turns/{_size(token_count)}/{form}"


def half(token_count: int, form: str) -> str:
    """Match a prompt whose second half is new, at a place where nothing was split before."""
    return f"half/{_size(token_count)}/{form}"


def miss(token_count: int, form: str) -> str:
    """Match a prompt that shares nothing."""
    return f"miss/{_size(token_count)}/{form}"


def new(token_count: int, form: str) -> str:
    """Reserve, commit and release a prompt that shares nothing."""
    return f"new/{_size(token_count)}/{form}"


def evict(evicted: int, pool: int) -> str:
    """Evict so many pages of a full pool and allocate them."""
    return f"evict/{evicted}-of-{pool}"


def memory(pool: int) -> str:
    """Growth of the process for each page of a full pool, in bytes, with what an empty pool costs."""
    return f"memory/{pool}"


def trace(form: str) -> str:
    """Replay of a trace."""
    return f"trace/{form}"


def _size(token_count: int) -> str:
    return f"{token_count >> 10}k"
