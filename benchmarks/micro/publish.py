"""What does it cost to take in a prompt of which nothing is cached?

A call is the life of such a request: snapshot, ``begin``, ``reserve`` all of it, read the page table, ``commit``,
``release``. Nothing is evicted, each prompt is served once; the columns at the end say what the stages take.

Estimate. The fixed part is begin 4 us, reserve 3 us (five small numpy calls), commit 5 us (a hash, a node, a dict
entry, the policy), release 3 us: 15 us. The run keeps 4 bytes a token in memory that nobody has touched before, which
this machine hands out at 1.7 GB/s: 2.4 ns a token. The snapshot with its check is 0.14 ns a token, page ids and the
allocator's marks 0.2 ns. So 15 us + 2.7 ns a token: 18 us at 1 k, 370 us at 128 k, 2.9 ms at 1 M.

Yardstick: the snapshot (memcpy), and a copy of it that stays (memcpy into new memory).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.micro.cell import Benchmark, Cell, Setup, timed_cell
from benchmarks.micro.timing import Timing, core_ns, timing_of
from benchmarks.micro.workload import TOKEN_COUNTS, draw, fill, new_store, size_name, token_source
from benchmarks.peers.clocks import settle
from kvstore import KVStore, Prompt

__all__ = ["BENCHMARK"]

_POOL_PAGES = 1 << 21
_BACKGROUND_PAGES = 20_000
_SAMPLES = {1 << 10: 800, 1 << 13: 300, 1 << 15: 80, 1 << 17: 25, 1 << 20: 11}
_WARM_UP = 5


def _measure(setup: Setup) -> Iterator[Cell]:
    store = new_store(_POOL_PAGES)
    fill(store, token_source(setup.seed, "background"), _BACKGROUND_PAGES)
    for token_count in TOKEN_COUNTS:
        source = token_source(setup.seed, f"publish {token_count}")
        settle()
        stages = [_stages(store, draw(source, token_count)) for _ in range(_WARM_UP + _SAMPLES[token_count])]
        begin, reserve, commit, release = zip(*stages[_WARM_UP:], strict=True)
        yield timed_cell(
            f"new, numpy, {size_name(token_count)}",
            timing_of([sum(times) for times in stages[_WARM_UP:]], clocks_read=4),
            estimate=15 + token_count * 2.7 / 1e3,
            yardstick=_copies(source, token_count).median_us,
            more={
                "begin µs": timing_of(begin).median_us,
                "reserve µs": timing_of(reserve).median_us,
                "commit µs": timing_of(commit).median_us,
                "release µs": timing_of(release).median_us,
            },
        )


def _stages(store: KVStore, tokens: NDArray[np.int32]) -> tuple[int, ...]:
    """Nanoseconds of begin, reserve, commit and release."""
    through = len(tokens)
    marks = [core_ns()]
    sequence = store.begin(Prompt.of_tokens(tokens))
    marks.append(core_ns())
    sequence.reserve(through=through)
    _ = sequence.page_table
    marks.append(core_ns())
    sequence.commit(through=through)
    marks.append(core_ns())
    sequence.release()
    marks.append(core_ns())
    return tuple(np.diff(marks).tolist())


def _copies(source: np.random.Generator, token_count: int) -> Timing:
    kept, samples = [], []
    for _ in range(_WARM_UP + _SAMPLES[token_count]):
        tokens = draw(source, token_count)
        start = core_ns()
        kept.append(bytearray(tokens.tobytes()))
        samples.append(core_ns() - start)
    return timing_of(samples[_WARM_UP:])


BENCHMARK = Benchmark(unit="µs", yardstick="snapshot and a copy that stays, µs", measure=_measure)
