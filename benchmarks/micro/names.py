"""What does a block's name cost, when somebody asks for it?

*chain*: the SHA-256 chain alone over packed tokens. *first*: ``KVStore.block_names`` of a cached prompt that nobody
asked for before. *again*: the same once more, from the names that the runs keep.

Estimate, for a block of 16 tokens: three calls into hashlib, a slice and an append, 0.5 us; *first* also cuts the names
apart, 0.6 us; *again* joins, cuts and looks at the path only: 0.1 us.

Yardstick: SHA-256 of the same bytes in one call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.micro.cell import Benchmark, Cell, Setup, timed_cell
from benchmarks.micro.timing import floor_us, time_each, time_repeated
from benchmarks.micro.workload import BLOCK_TOKENS, draw, new_store, serve, size_name, token_source
from benchmarks.peers.clocks import settle
from kvstore import Prompt
from kvstore.names import chain_names

__all__ = ["BENCHMARK"]

_TOKEN_COUNTS = (1 << 10, 1 << 13, 1 << 17)
_FIRST_SAMPLES = {1 << 10: 203, 1 << 13: 63, 1 << 17: 14}
_SYMBOL_BYTES = 4 * BLOCK_TOKENS


def _measure(setup: Setup) -> Iterator[Cell]:
    for token_count in _TOKEN_COUNTS:
        blocks = token_count // BLOCK_TOKENS
        source = token_source(setup.seed, f"names {token_count}")
        tokens = draw(source, token_count)
        store = new_store((_FIRST_SAMPLES[token_count] + 1) * blocks)
        seed, symbols = store.namespace.digest, tokens.tobytes()
        whole_us = floor_us(partial(hashlib.sha256, symbols))
        size = size_name(token_count)
        settle()
        chain = time_repeated(partial(chain_names, seed, symbols, _SYMBOL_BYTES))
        yield timed_cell(f"chain, {size}", chain, estimate=0.5, yardstick=whole_us, parts=blocks)

        prompts = [draw(source, token_count) for _ in range(_FIRST_SAMPLES[token_count])]
        calls: list[Callable[[], object]] = []
        for prompt in prompts:
            serve(store, prompt)
            calls.append(partial(store.block_names, Prompt.of_tokens(prompt)))
        yield timed_cell(f"first, {size}", time_each(calls), estimate=0.6, yardstick=whole_us, parts=blocks)
        yield timed_cell(f"again, {size}", time_repeated(calls[-1]), estimate=0.1, yardstick=whole_us, parts=blocks)


BENCHMARK = Benchmark(unit="µs a block", yardstick="SHA-256 of the bytes in one call, µs a block", measure=_measure)
