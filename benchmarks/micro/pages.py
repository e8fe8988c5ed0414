"""How fast do pages move in host memory, as a share of memcpy?

A call moves 8 MiB in pages of 64 KiB (one layer) to 4 MiB between a pool of 256 MiB and a touched buffer; the pages are
scattered and change from call to call, so that they come from memory and not from a cache.

Estimate. One memcpy for each page at 13 GB/s: 645 us for 8 MiB; checking the ids costs 15 us (five numpy calls over at
most 128 ids). So 660 us, 12.7 GB/s, at any page size, both ways.

Yardstick: memcpy of 8 MiB in one piece, from a place in the pool that changes from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.micro.cell import Benchmark, Cell, Setup, timed_cell
from benchmarks.micro.timing import Timing, core_ns, timing_of
from benchmarks.micro.workload import BLOCK_TOKENS, token_source
from transfer import Layout, NumpyPagePool

__all__ = ["BENCHMARK"]

_LAYERS = (1, 4, 16, 32, 64)  #: 64 KiB a layer: 8 heads of 128, bf16; 32 layers are Llama-3.1-8B
_MOVED_BYTES = 8 << 20
_POOL_BYTES = 256 << 20
_SAMPLES = 200
_WARM_UP = 3


def _measure(setup: Setup) -> Iterator[Cell]:
    for layers in _LAYERS:
        yield from _of_size(setup, Layout(layers=layers, kv_heads=8, head_dim=128, block_tokens=BLOCK_TOKENS))


def _of_size(setup: Setup, layout: Layout) -> Iterator[Cell]:
    pool = NumpyPagePool(layout, page_count=_POOL_BYTES // layout.page_bytes)
    pool.pages.fill(1)
    count = _MOVED_BYTES // layout.page_bytes
    buffer = np.ones((count, *layout.page_shape), pool.pages.dtype)
    source = token_source(setup.seed, f"pages {layout.layers}")
    size = f"{layout.page_bytes >> 10} KiB" if layout.page_bytes < 1 << 20 else f"{layout.page_bytes >> 20} MiB"
    copies, gathers, scatters = _in_turns(
        lambda: source.permutation(pool.page_count)[:count],
        lambda pages: _copy(pool.pages, int(pages[0]), buffer),
        lambda pages: pool.gather(pages, buffer),
        lambda pages: pool.scatter(pages, buffer),
    )
    for name, timing in (("gather", gathers), ("scatter", scatters)):
        yield timed_cell(
            f"{name}, {count} pages of {size}",
            timing,
            estimate=660,
            yardstick=copies.median_us,
            more={"GB/s": _MOVED_BYTES / timing.median_us / 1e3, "memcpy GB/s": _MOVED_BYTES / copies.median_us / 1e3},
        )


def _in_turns(
    draw_pages: Callable[[], NDArray[np.int64]], *moves: Callable[[NDArray[np.int64]], object]
) -> list[Timing]:
    """One move after the other, each of other pages, again and again."""
    samples: list[list[int]] = [[] for _ in moves]
    for _ in range(_WARM_UP + _SAMPLES):
        for move, found in zip(moves, samples, strict=True):
            pages = draw_pages()
            start = core_ns()
            move(pages)
            found.append(core_ns() - start)
    return [timing_of(found[_WARM_UP:]) for found in samples]


def _copy(pages: NDArray[np.unsignedinteger], first: int, buffer: NDArray[np.unsignedinteger]) -> None:
    first = min(first, len(pages) - len(buffer))
    np.copyto(buffer, pages[first : first + len(buffer)])


BENCHMARK = Benchmark(unit="µs for 8 MiB", yardstick="memcpy in one piece, µs", measure=_measure)
