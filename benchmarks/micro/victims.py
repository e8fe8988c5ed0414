"""What does room cost in a full pool, and does it depend on how much is cached?

*n of m pages*: a new request reserves n pages of a full pool of m, which are prompts of 128 pages in 64 families that
share 32; what was taken is given back, and prompts of 128 pages that share nothing fill it again before the next sample
(a pool of 10,000 soon has only these). *One page, k leaves*: a request takes one page after the other (as decoding
does) out of k cached prompts of 8 pages; *half held*: the older half of them is in use by running requests, so that
each walk from the cold end could meet them first.

Estimate. A reservation 3 us, taking a run off the tree 4 us (policy, log, dict, parent), and each run yields 96 pages:
1 page 8 us (it shortens a run), 1,000 pages 3 + 11 * 4 = 47 us, 10,000 pages 3 + 105 * 4 = 420 us, at any size of
pool. Pages held by others are passed at 0.1 us each, once: with 50,000 held the worst call takes 5 ms, the median and
the p99 stay at 8 us.

Yardstick: taking as many pages from an allocator that has them free, and giving none back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.micro.cell import Benchmark, Cell, Setup, timed_cell
from benchmarks.micro.timing import core_ns, time_each, timing_of
from benchmarks.micro.workload import BLOCK_TOKENS, draw, fill, new_store, serve, token_source
from benchmarks.peers.clocks import settle
from kvstore import BlockAllocator, KVStore, Prompt

__all__ = ["BENCHMARK"]

_CASES = ((1_000, 10_000), (1_000, 100_000), (10_000, 100_000), (1_000, 1_000_000), (10_000, 1_000_000))
_SAMPLES = {1_000: 103, 10_000: 23}
_LEAF_COUNTS = (1_000, 10_000, 100_000)
_HELD_LEAVES = 100_000
_LEAF_PAGES = 8
_ONE_BY_ONE = 3_000
_WARM_UP = 100
_RUN_PAGES = 96


def _measure(setup: Setup) -> Iterator[Cell]:
    for pool in sorted({pool for _, pool in _CASES}):
        store = new_store(pool)
        source = token_source(setup.seed, f"pool {pool}")
        fill(store, source, pool)
        settle()
        for count in (count for count, size in _CASES if size == pool):
            runs = -(-count // _RUN_PAGES)
            yield timed_cell(
                f"{count:,} of {pool:,} pages",
                time_each(_reservations(store, source, count)),
                estimate=3 + 4 * runs,
                yardstick=_allocator_us(count),
            )
    for leaves in _LEAF_COUNTS:
        yield _one_by_one(setup, leaves, held=0)
    yield _one_by_one(setup, _HELD_LEAVES, held=_HELD_LEAVES // 2)


def _reservations(store: KVStore, source: np.random.Generator, count: int) -> Iterator[Callable[[], object]]:
    for _ in range(_SAMPLES[count]):
        sequence = store.begin(Prompt.of_tokens(draw(source, count * BLOCK_TOKENS)))
        yield partial(sequence.reserve, through=count * BLOCK_TOKENS)
        sequence.abandon()
        fill(store, source, count)


def _one_by_one(setup: Setup, leaves: int, *, held: int) -> Cell:
    store = new_store(leaves * _LEAF_PAGES + held)
    prompts = draw(token_source(setup.seed, f"leaves {leaves}"), leaves * _LEAF_PAGES * BLOCK_TOKENS)
    prompts = prompts.reshape(leaves, _LEAF_PAGES * BLOCK_TOKENS)
    for prompt in prompts:
        serve(store, prompt)
    holders = [store.begin(Prompt.of_tokens(prompt)) for prompt in prompts[:held]]
    spare = store.stats().free_pages
    with store.begin(Prompt.of_tokens(np.array([2**31 - 1], np.int32))) as taker:
        taker.reserve(through=spare * BLOCK_TOKENS)  # from here on every page has to be evicted
        settle()
        samples = []
        for page in range(spare + 1, spare + _ONE_BY_ONE + 1):
            start = core_ns()
            taker.reserve(through=page * BLOCK_TOKENS)
            samples.append(core_ns() - start)
    assert store.stats().evicted_blocks["capacity"] == _ONE_BY_ONE
    for holder in holders:
        holder.release()
    return timed_cell(
        f"one page, {leaves:,} leaves{', half held' if held else ''}",
        timing_of(samples[_WARM_UP:]),
        estimate=8,
        yardstick=_allocator_us(1),
        more={"slowest µs": max(samples) / 1e3},
    )


def _allocator_us(count: int) -> float:
    allocator = BlockAllocator(count * _SAMPLES.get(count, _ONE_BY_ONE))
    return time_each([partial(allocator.take, count)] * _SAMPLES.get(count, _ONE_BY_ONE)).median_us


BENCHMARK = Benchmark(unit="µs", yardstick="as many pages from an allocator that has them free, µs", measure=_measure)
