"""How is vLLM's cache manager driven? As its scheduler drives it: hash, look up, allocate slots, free."""

from __future__ import annotations

import numpy as np
import torch
from manager import Admitted, Demand, Tokens
from numpy.typing import NDArray
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock, get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

__all__ = ["VllmManager"]


class VllmManager:
    """``KVCacheManager`` with one full-attention group and the default hash (sha256); events and metrics are off.

    Its hit ends one block early by design: the last token is computed again, in a block of its own.
    """

    def __init__(self, page_count: int, page_tokens: int) -> None:
        hash_function = get_hash_fn_by_name("sha256")
        init_none_hash(hash_function)
        self._hasher = get_request_block_hasher(page_tokens, hash_function)
        spec = FullAttentionSpec(block_size=page_tokens, num_kv_heads=8, head_size=128, dtype=torch.float16)
        config = KVCacheConfig(
            num_blocks=page_count + 1,  # block 0 is never handed out
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        self._manager = KVCacheManager(
            config, max_model_len=1 << 20, scheduler_block_size=page_tokens, hash_block_size=page_tokens
        )
        self._sampling = SamplingParams(max_tokens=1)
        self._serial = 0

    def engine_buffer(self, tokens: NDArray[np.int32]) -> Tokens:
        ids: list[int] = tokens.tolist()
        return ids

    def visit(self, tokens: Tokens) -> int:
        admitted = self.admit(tokens)
        self.release(admitted)
        return admitted.cached_tokens

    def match(self, tokens: Tokens) -> int:
        blocks, cached, _ = self._manager.get_computed_blocks(self._request(tokens))
        blocks.get_block_ids()
        return int(cached)

    def admit(self, tokens: Tokens) -> Admitted:
        request = self._request(tokens)
        blocks, cached, _ = self._manager.get_computed_blocks(request)
        allocated = self._manager.allocate_slots(request, request.num_tokens - cached, cached, blocks)
        if allocated is None:
            raise MemoryError
        self._manager.get_block_ids(request.request_id)
        return Admitted(request, cached)

    def release(self, admitted: Admitted) -> None:
        self._manager.free(admitted.handle)

    def demand(self, page_count: int) -> Demand:
        return _Blocks(self._manager.block_pool, page_count)

    def _request(self, tokens: Tokens) -> Request:
        self._serial += 1
        return Request(
            request_id=str(self._serial),
            prompt_token_ids=tokens if isinstance(tokens, list) else tokens.tolist(),
            sampling_params=self._sampling,
            pooling_params=None,
            block_hasher=self._hasher,
        )


class _Blocks:
    def __init__(self, pool: BlockPool, page_count: int) -> None:
        self._pool = pool
        self._page_count = page_count
        self._held: list[KVCacheBlock] = []

    def take(self) -> None:
        self._held = self._pool.get_new_blocks(self._page_count)  # evicts as it takes

    def give_back(self) -> None:
        self._pool.free_blocks(self._held)
