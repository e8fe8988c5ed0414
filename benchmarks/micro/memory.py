"""How much memory does a cached page cost the store, beside the page itself?

What a fresh process grows by when it makes a store of a million pages and fills it, over a million. *prompts*: 128
pages each, in 64 families that share 32. *turns*: conversations of 512 pages that grew by 8 pages a turn. *short*:
prompts of 8 pages that share nothing.

Estimate. A block's 16 tokens are 64 bytes, its page id 4: 68, the yardstick. The allocator has 9 bytes a page. A run is
a node of 120 bytes, two arrays of 120 in all, a dict entry with its key of 200, two places in the policy of 250: some
700 bytes. So *prompts* 68 + 9 + 700 / 96 = 84; *turns* also have spare capacity of a 16th on average, 68 * 1.06 + 9 +
700 / 512 = 83; *short* 68 + 9 + 700 / 8 = 165.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.micro.cell import Benchmark, Cell, Setup
from benchmarks.micro.workload import BLOCK_TOKENS, draw, fill, new_store, serve, token_source
from kvstore import KVStore

__all__ = ["BENCHMARK"]

_PAGES = 1_000_000
_ESTIMATES = {"prompts": 84.0, "turns": 83.0, "short": 165.0}
_FLOOR_BYTES = 4.0 * BLOCK_TOKENS + 4
_CHAT_PAGES, _TURN_PAGES = 512, 8
_SHORT_PAGES = 8


def _measure(setup: Setup) -> Iterator[Cell]:
    for shape, estimate in _ESTIMATES.items():
        command = [sys.executable, "-m", __spec__.name, shape, str(setup.seed)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        yield Cell(
            case=f"{shape}, {_PAGES:,} pages",
            median=found["bytes"],
            p99=None,
            samples=1,
            estimate=estimate,
            yardstick=_FLOOR_BYTES,
            more={"empty pool": found["empty_bytes"], "runs": found["runs"]},
        )


def _turns(store: KVStore, source: np.random.Generator, page_count: int) -> None:
    for start in range(0, page_count, _CHAT_PAGES):
        tokens = draw(source, min(_CHAT_PAGES, page_count - start) * BLOCK_TOKENS)
        for end in range(_TURN_PAGES, len(tokens) // BLOCK_TOKENS + 1, _TURN_PAGES):
            serve(store, tokens[: end * BLOCK_TOKENS])


def _short(store: KVStore, source: np.random.Generator, page_count: int) -> None:
    for _ in range(0, page_count, _SHORT_PAGES):
        serve(store, draw(source, _SHORT_PAGES * BLOCK_TOKENS))


_SHAPES: dict[str, Callable[[KVStore, np.random.Generator, int], None]] = {
    "prompts": fill,
    "turns": _turns,
    "short": _short,
}


def _grow() -> None:
    """In a process of its own: fill a store and say what it took."""
    parser = argparse.ArgumentParser(description=_grow.__doc__)
    parser.add_argument("shape", choices=_SHAPES)
    parser.add_argument("seed", type=int)
    asked = parser.parse_args()
    source = token_source(asked.seed, asked.shape)
    fill_store = _SHAPES[asked.shape]
    fill_store(new_store(1024), source, 1024)  # what the first use costs is not the pages'
    before = _resident_bytes()
    store = new_store(_PAGES)
    empty = _resident_bytes()
    fill_store(store, source, _PAGES)
    full = _resident_bytes()
    stats = store.stats()
    assert stats.cached_pages == _PAGES
    found = {"bytes": (full - before) / _PAGES, "empty_bytes": (empty - before) / _PAGES, "runs": stats.nodes}
    print(json.dumps(found))


def _resident_bytes() -> int:
    gc.collect()
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


BENCHMARK = Benchmark(unit="bytes a page", yardstick="16 tokens and a page id, bytes", measure=_measure)

if __name__ == "__main__":
    _grow()
