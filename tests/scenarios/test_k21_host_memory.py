"""K21: host memory: more than was asked for, or never given back."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from kvstore import BlockFate, BlockFormat, KVStore, Namespace, Prompt
from transfer import ElementType, Layout, NumpyPagePool, VirtualPagePool


def _serve(store: KVStore, tokens: list[int], *, namespace: Namespace | None = None) -> None:
    with store.begin(Prompt.of_tokens(tokens), namespace=namespace) as sequence:
        sequence.reserve(through=len(tokens))
        sequence.commit(through=len(tokens))


def _evict(store: KVStore, *, by: str | None = None) -> None:
    """One block loses its page."""
    stats = store.stats()
    taker = store.begin(Prompt.of_tokens([0]), request_id=by, skip_read=True, skip_write=True)
    taker.reserve(through=(stats.free_pages + 1) * 4)
    taker.abandon()


@pytest.mark.parametrize("page_count", [1, 255, 256, 257, 1025])
def test_b156_a_pool_takes_what_was_asked_for(page_count: int) -> None:
    """B156: one tier, numpy: 2^k - 1, 2^k, 2^k + 1 pages are exactly their bytes."""
    layout = Layout(layers=2, kv_heads=1, head_dim=3, block_tokens=5, element=ElementType.FLOAT8_E4M3)
    gc.collect()
    tracemalloc.start()
    try:
        pool = NumpyPagePool(layout, page_count=page_count)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pool.pages.nbytes == page_count * layout.page_bytes
    assert taken <= 1.05 * pool.pages.nbytes + 4096


def test_b117_metadata_of_evicted_chains_goes_with_them() -> None:
    """B117 (of K14), in the tree itself: 7 000 unique chains come and go; nodes, roots and bytes do not add up."""
    store = KVStore(VirtualPagePool(page_count=64, block_tokens=4))
    spaces = [Namespace(model=f"m{at}", format=BlockFormat.of_tokens(4)) for at in range(8)]

    def churn(start: int, count: int) -> None:
        for chain in range(start, start + count):
            _serve(store, [chain, *range(7)], namespace=spaces[chain % 8])

    tracemalloc.start()
    try:
        churn(0, 6000)  # the bounded memory of evictions is full now
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        churn(6000, 1000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000, "some 20 bytes for each chain that is gone"
    stats = store.stats()
    assert stats.nodes <= 32
    assert stats.namespaces <= 8
    store.reset()
    stats = store.stats()
    assert (stats.nodes, stats.namespaces, stats.cached_pages, stats.free_pages) == (0, 0, 0, 64)
    store.audit()


def test_b117_a_namespace_that_is_only_asked_about_takes_nothing() -> None:
    """B117: peek, explain, names and abandoned requests in 1 000 namespaces leave none behind."""
    store = KVStore(VirtualPagePool(page_count=8, block_tokens=4))
    prompt = Prompt.of_tokens(range(9))
    for at in range(1000):
        space = Namespace(model=f"m{at}", format=BlockFormat.of_tokens(4))
        assert store.peek(prompt, namespace=space) == 0
        store.explain(prompt, namespace=space)
        store.block_names(prompt, namespace=space)
        store.begin(prompt, namespace=space).abandon()
        parked = store.begin(prompt, namespace=space)
        parked.park()
        parked.resume()
        parked.release()
    assert store.stats().namespaces == 0
    store.audit()


def test_b117_the_memory_of_evictions_is_bounded_and_forgets_the_oldest_first() -> None:
    """B117: thousands of evictions later the first is forgotten, and what went of its like meanwhile is not."""
    store = KVStore(VirtualPagePool(page_count=24, block_tokens=4))
    old, renewed = [list(range(at, at + 32)) for at in (10_000, 20_000)]

    def fate(tokens: list[int], span: int = -1) -> BlockFate:
        return store.explain(Prompt.of_tokens(tokens)).spans[span].fate

    for prompt in (old, renewed):
        _serve(store, prompt)
    for _ in range(8):
        _evict(store, by="old")
    for _ in range(4):
        _evict(store, by="renewed")
    assert [fate(old), fate(renewed)] == [BlockFate.EVICTED] * 2

    def churn(count: int) -> None:
        for _ in range(count):
            churn.number += 1  # type: ignore[attr-defined]
            _serve(store, [churn.number, 1, 2, 3])  # type: ignore[attr-defined]

    churn.number = 100_000  # type: ignore[attr-defined]
    held = store.begin(Prompt.of_tokens(renewed[:16]))
    churn(3000)
    held.release()
    while store.peek(Prompt.of_tokens(renewed)) == 16:
        churn(1)
    churn(3000)
    assert fate(renewed, 0) is BlockFate.EVICTED
    assert fate(old, 0) is BlockFate.UNSEEN
    churn(5000)
    assert fate(renewed, 0) is BlockFate.UNSEEN
    store.audit()


def test_b117_a_block_that_is_cut_off_takes_its_bytes_along() -> None:
    """B117: a run that shrinks keeps only the bytes of its blocks; what is evicted is remembered up to a megabyte."""
    store = KVStore(VirtualPagePool(page_count=40_960, block_tokens=64))
    tokens = np.arange(64 * 40_000, dtype=np.int32)
    gc.collect()
    tracemalloc.start()
    try:
        with store.begin(Prompt.of_tokens(tokens)) as sequence:
            sequence.reserve(through=len(tokens))
            sequence.commit(through=len(tokens))
        del sequence
        full, _ = tracemalloc.get_traced_memory()
        taker = store.begin(Prompt.of_tokens([0]), skip_read=True, skip_write=True)
        taker.reserve(through=64 * 40_954)
        taker.abandon()
        gc.collect()
        empty, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.peek(Prompt.of_tokens(tokens)) == 64 * 6
    assert full > 10_000_000  # 260 bytes a block
    assert empty < full / 4
    store.audit()
