"""What does a decoding step cost a batch, and what would it cost one sequence after the other?

A step: every sequence gets a token, has room for the next, and publishes the blocks that are full. The sequences are
out of phase, as in an engine: in a step one in 16 of them fills a block.

Estimate. In a batch ``append`` is ten small numpy calls, ``reserve`` three, ``commit`` four, 0.6 us each: 10 us
whatever its size; a sequence that fills a block takes 10 us more (append to it, one page, grow its run). So 10 us for
1, 10 + 2 * 10 = 30 us for 32, 10 + 16 * 10 = 170 us for 256; the p99 for 1 is a step with a block, 20 us. One by one
the three calls take 6 us: 6, 190 and 1,500 us.

Yardstick: the same steps one sequence after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.micro.cell import Benchmark, Cell, Setup, timed_cell
from benchmarks.micro.timing import Timing, core_ns, timing_of
from benchmarks.micro.workload import BLOCK_TOKENS, draw, new_store, token_source
from benchmarks.peers.clocks import settle
from kvstore import KVStore, Prompt, Sequence

__all__ = ["BENCHMARK"]

_BATCHES = {1: (10.0, 6.0), 32: (30.0, 190.0), 256: (170.0, 1500.0)}  #: sequences → estimates: batch, one by one
_PROMPT_TOKENS = 1000
_STEPS = 512
_WARM_UP = 64


def _measure(setup: Setup) -> Iterator[Cell]:
    for count, (together, apart) in _BATCHES.items():
        one_by_one = _run(setup, count, _one_by_one_step)
        batch = _run(setup, count, _batch_step)
        yield timed_cell(f"batch of {count}", batch, estimate=together, yardstick=one_by_one.median_us)
        yield timed_cell(f"{count} one by one", one_by_one, estimate=apart)


_Step = Callable[[NDArray[np.int32]], object]


def _run(setup: Setup, count: int, make_step: Callable[[KVStore, list[Sequence]], _Step]) -> Timing:
    steps = _WARM_UP + _STEPS
    pages = -(-(_PROMPT_TOKENS + BLOCK_TOKENS + steps + 1) // BLOCK_TOKENS)
    store = new_store(count * pages)
    source = token_source(setup.seed, f"decode {count}")
    sequences = []
    for number in range(count):
        prompt = Prompt.of_tokens(draw(source, _PROMPT_TOKENS + number % BLOCK_TOKENS))
        sequence = store.begin(prompt)
        sequence.reserve(through=prompt.token_count)
        sequence.commit(through=prompt.token_count)
        sequences.append(sequence)
    step = make_step(store, sequences)
    settle()
    samples = []
    for _ in range(steps):
        tokens = draw(source, count)
        start = core_ns()
        step(tokens)
        samples.append(core_ns() - start)
    assert store.stats().published_blocks > count * (_PROMPT_TOKENS + _STEPS) // BLOCK_TOKENS
    return timing_of(samples[_WARM_UP:])


def _batch_step(store: KVStore, sequences: list[Sequence]) -> _Step:
    batch = store.batch(sequences)

    def step(tokens: NDArray[np.int32]) -> None:
        batch.append(tokens)
        batch.reserve()
        batch.commit(batch.token_counts - 1)  # the last token was only sampled yet

    return step


def _one_by_one_step(store: KVStore, sequences: list[Sequence]) -> _Step:
    del store  # only a batch is made by it

    def step(tokens: NDArray[np.int32]) -> None:
        for sequence, token in zip(sequences, tokens.tolist(), strict=True):
            sequence.append([token])
            sequence.reserve(through=sequence.token_count + 1)
            sequence.commit(through=sequence.token_count - 1)

    return step


BENCHMARK = Benchmark(unit="µs a step", yardstick="the same steps one by one, µs", measure=_measure)
