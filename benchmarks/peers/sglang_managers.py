"""How are SGLang's radix trees driven? As its scheduler does: match, read page ids, lock, allocate, insert, unlock."""

from __future__ import annotations

import logging
from array import array
from typing import Protocol

import gpu_stubs
import numpy as np
from manager import Admitted, Demand, Tokens
from numpy.typing import NDArray

gpu_stubs.prepare_sglang()
logging.disable(logging.WARNING)

import torch  # noqa: E402 - the stubs have to be in place before anything of SGLang's is imported
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import (  # noqa: E402
    BasePrefixCache,
    EvictParams,
    InsertParams,
    MatchPrefixParams,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.components import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402

__all__ = ["RadixManager", "RustUnifiedManager"]

torch.set_num_threads(1)  # these tensors are too small to share; a second thread would only add to the CPU time


class _MakeTree(Protocol):
    def __call__(self, allocator: PagedTokenToKVPoolAllocator, page_tokens: int) -> BasePrefixCache: ...


class _SglangManager:
    """A tree and the page-aligned allocator over CPU tensors of slot ids."""

    def __init__(self, page_count: int, page_tokens: int, make_tree: _MakeTree) -> None:
        self._page_tokens = page_tokens
        self._allocator = PagedTokenToKVPoolAllocator(
            page_count * page_tokens, page_tokens, torch.int64, "cpu", kvcache=None, need_sort=False
        )
        self._tree = make_tree(self._allocator, page_tokens)

    def engine_buffer(self, tokens: NDArray[np.int32]) -> Tokens:
        return array("q", tokens.tolist())  # what its Req holds

    def visit(self, tokens: Tokens) -> int:
        tree = self._tree
        found = tree.match_prefix(MatchPrefixParams(key=self._key(tokens)))
        slots = tree.path_device_indices(found.last_device_node)
        tree.unlock(tree.lock(found.last_device_node))
        return len(slots)

    match = visit

    def admit(self, tokens: Tokens) -> Admitted:
        tree, key = self._tree, self._key(tokens)
        found = tree.match_prefix(MatchPrefixParams(key=key))
        slots = tree.path_device_indices(found.last_device_node)
        matched_lock = tree.lock(found.last_device_node)
        cached = len(slots)
        if len(key) > cached:
            slots = torch.cat([slots, self._allocate(len(key) - cached)])
        inserted = tree.insert(InsertParams(key=key, value=slots, prev_prefix_len=cached, inserted_len=cached))
        lock = tree.lock(inserted.last_device_node)
        tree.unlock(matched_lock)
        return Admitted(lock, cached)

    def release(self, admitted: Admitted) -> None:
        self._tree.unlock(admitted.handle)

    def demand(self, page_count: int) -> Demand:
        return _Slots(self._tree, self._allocator, page_count * self._page_tokens)

    def _allocate(self, token_count: int) -> torch.Tensor:
        short = token_count - self._allocator.available_size()
        if short > 0:
            self._tree.evict(EvictParams(num_tokens=short))
        slots = self._allocator.alloc(token_count)
        if slots is None:
            raise MemoryError
        return slots

    def _key(self, tokens: Tokens) -> RadixKey:
        if isinstance(tokens, np.ndarray):  # the cheapest way from an array into its array('q')
            ids: array[int] = array("q")
            ids.frombytes(tokens.astype(np.int64).tobytes())
        else:
            ids = tokens if isinstance(tokens, array) else array("q", tokens)
        return RadixKey(ids).page_aligned(self._page_tokens)


class RadixManager(_SglangManager):
    """``RadixCache``: the tree in Python."""

    def __init__(self, page_count: int, page_tokens: int) -> None:
        super().__init__(page_count, page_tokens, _make_radix_tree)


class RustUnifiedManager(_SglangManager):
    """``UnifiedRadixCache`` with its full-attention component and the Rust core that the wheel brings."""

    def __init__(self, page_count: int, page_tokens: int) -> None:
        super().__init__(page_count, page_tokens, _make_rust_tree)


class _Slots:
    def __init__(self, tree: BasePrefixCache, allocator: PagedTokenToKVPoolAllocator, token_count: int) -> None:
        self._tree = tree
        self._allocator = allocator
        self._token_count = token_count
        self._held: torch.Tensor | None = None

    def take(self) -> None:
        self._tree.evict(EvictParams(num_tokens=self._token_count))  # frees whole leaves, so a little more than asked
        self._held = self._allocator.alloc(self._token_count)
        if self._held is None:
            raise MemoryError

    def give_back(self) -> None:
        self._allocator.free_segment(self._held, start_pos=0)


def _make_radix_tree(allocator: PagedTokenToKVPoolAllocator, page_tokens: int) -> BasePrefixCache:
    return RadixCache(
        CacheInitParams(
            disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=allocator, page_size=page_tokens
        )
    )


def _make_rust_tree(allocator: PagedTokenToKVPoolAllocator, page_tokens: int) -> BasePrefixCache:
    tree = UnifiedRadixCache(
        CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=allocator,
            page_size=page_tokens,
            tree_components=(ComponentType.FULL,),
            tree_core_backend="rust",
        )
    )
    core = type(tree.tree_core).__name__
    if core != "RustUnifiedTreeCore":
        raise RuntimeError(f"asked for the Rust tree, got {core}")
    return tree
