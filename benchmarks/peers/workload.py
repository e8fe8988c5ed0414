"""Which prompts does every manager see? The same ones: a seed and a name give the same tokens in every process."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from manager import Manager, ManagerSpec, Tokens
from numpy.typing import NDArray

__all__ = [
    "FAMILY_PAGES",
    "PAGE_TOKENS",
    "SHARED_PAGES",
    "Trace",
    "TraceRow",
    "expand",
    "fill",
    "novel_prompts",
    "read_trace",
    "refill",
    "token_source",
]

PAGE_TOKENS = 16
FAMILY_PAGES = 128  #: pages of a background prompt: 2,048 tokens
SHARED_PAGES = 32  #: of which it shares this many with its family: a system prompt of 512 tokens
_FAMILIES = 64
_VOCABULARY = 128_000
_TRACE_BLOCK_TOKENS = 512
_TRACE_VOCABULARY = 120_000


def token_source(seed: int, name: str) -> np.random.Generator:
    """Random tokens that depend on the seed and on what they are for, not on what was drawn before."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def novel_prompts(source: np.random.Generator, count: int, token_count: int) -> list[NDArray[np.int32]]:
    """Prompts that share nothing."""
    return [_draw(source, token_count) for _ in range(count)]


def fill(manager: Manager, spec: ManagerSpec, source: np.random.Generator, page_count: int) -> None:
    """Cache prompts of 64 families, one after the other, until exactly ``page_count`` pages are used."""
    systems = [_draw(source, SHARED_PAGES * PAGE_TOKENS) for _ in range(_FAMILIES)]
    left, number = page_count, 0
    while left:
        shared = SHARED_PAGES if number >= _FAMILIES else 0
        own = min(FAMILY_PAGES - SHARED_PAGES, left) if shared else min(FAMILY_PAGES, left)
        tokens = _draw(source, own * PAGE_TOKENS)
        if shared:
            tokens = np.concatenate([systems[number % _FAMILIES], tokens])
        else:
            tokens[: SHARED_PAGES * PAGE_TOKENS] = systems[number % _FAMILIES][: len(tokens)]
        _serve(manager, spec, tokens)
        left -= own
        number += 1


def refill(manager: Manager, spec: ManagerSpec, source: np.random.Generator, page_count: int) -> None:
    """Cache new prompts of at most 128 pages that take exactly ``page_count`` pages."""
    for start in range(0, page_count, FAMILY_PAGES):
        _serve(manager, spec, _draw(source, min(FAMILY_PAGES, page_count - start) * PAGE_TOKENS))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a hashed trace: each id stands for 512 tokens, the last possibly for fewer."""

    token_count: int
    ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace in order of arrival."""

    rows: tuple[TraceRow, ...]
    unique_tokens: int  #: tokens that all different ids stand for


def read_trace(path: Path) -> Trace:
    """Read Mooncake's JSON lines, gzipped."""
    rows = tuple(_rows(path))
    unique = np.unique(np.concatenate([row.ids for row in rows])).size
    return Trace(rows=rows, unique_tokens=unique * _TRACE_BLOCK_TOKENS)


def expand(row: TraceRow) -> NDArray[np.int32]:
    """Tokens of a row: the same 512 for the same id, different ones for different ids."""
    pattern = np.random.default_rng(3).integers(0, _TRACE_VOCABULARY, _TRACE_BLOCK_TOKENS)
    grid = (pattern[None, :] + row.ids[:, None] * 7) % _TRACE_VOCABULARY
    grid[:, 0], grid[:, 1] = np.divmod(row.ids, 100_000)
    return grid.reshape(-1)[: row.token_count].astype(np.int32)


def _rows(path: Path) -> Iterator[TraceRow]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            yield TraceRow(token_count=fields["input_length"], ids=np.array(fields["hash_ids"], np.int64))


def _draw(source: np.random.Generator, token_count: int) -> NDArray[np.int32]:
    return source.integers(0, _VOCABULARY, token_count, dtype=np.int32)


def _serve(manager: Manager, spec: ManagerSpec, tokens: NDArray[np.int32]) -> None:
    prompt: Tokens = tokens if spec.buffers else tokens.tolist()
    manager.release(manager.admit(prompt))
