"""Which stores and prompts are measured? The same in every run: a seed and a name give the same tokens."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from kvstore import KVStore, Prompt
from transfer import VirtualPagePool

__all__ = ["BLOCK_TOKENS", "TOKEN_COUNTS", "draw", "fill", "new_store", "serve", "size_name", "token_source"]

BLOCK_TOKENS = 16
TOKEN_COUNTS = (1 << 10, 1 << 13, 1 << 15, 1 << 17, 1 << 20)  #: prompts from a short chat to a whole code base
_VOCABULARY = 128_000
_PROMPT_PAGES = 128  #: of a background prompt: 2,048 tokens
_SYSTEM_PAGES = 32  #: of which it shares this many with its family: a system prompt of 512 tokens
_FAMILIES = 64


def new_store(page_count: int) -> KVStore:
    """A store with its default policy over pages without bytes."""
    return KVStore(VirtualPagePool(page_count=page_count, block_tokens=BLOCK_TOKENS))


def token_source(seed: int, name: str) -> np.random.Generator:
    """Random tokens that depend on the seed and on what they are for, not on what was drawn before."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def draw(source: np.random.Generator, token_count: int) -> NDArray[np.int32]:
    """Tokens that no other prompt has."""
    return source.integers(0, _VOCABULARY, token_count, dtype=np.int32)


def serve(store: KVStore, tokens: NDArray[np.int32]) -> None:
    """A request from its prompt to its end: all its blocks are cached then."""
    prompt = Prompt.of_tokens(tokens)
    sequence = store.begin(prompt)
    sequence.reserve(through=prompt.token_count)
    sequence.commit(through=prompt.token_count)
    sequence.release()


def fill(store: KVStore, source: np.random.Generator, page_count: int) -> None:
    """Cache prompts of 64 families, one after the other, until exactly ``page_count`` more pages are used."""
    systems = [draw(source, _SYSTEM_PAGES * BLOCK_TOKENS) for _ in range(_FAMILIES)]
    left, number = page_count, 0
    while left:
        shared = _SYSTEM_PAGES if number >= _FAMILIES else 0  # the first of a family also brings the system prompt
        own = min(_PROMPT_PAGES - shared, left)
        tokens = np.concatenate([systems[number % _FAMILIES], draw(source, _PROMPT_PAGES * BLOCK_TOKENS)])
        serve(store, tokens[: (shared + own) * BLOCK_TOKENS])
        left -= own
        number += 1


def size_name(count: int) -> str:
    """``128k``, ``1M``."""
    return f"{count >> 20}M" if count >= 1 << 20 else f"{count >> 10}k"
