"""Stack distances: against a plain list of blocks, against what is published, against the clock."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.result import HitRule
from simulator.reuse import Reuse, measure_reuse
from simulator.traces.record import TraceRequest

BLOCK_TOKENS = 4


def request(blocks: list[int], input_len: int | None = None, block_tokens: int = BLOCK_TOKENS) -> TraceRequest:
    length = len(blocks) * block_tokens if input_len is None else input_len
    return TraceRequest(
        input_len=length, output_len=1, block_tokens=block_tokens, blocks=np.array(blocks, np.int32), arrival_s=0.0
    )


def requests_of(prompts: list[tuple[list[int], int]]) -> list[TraceRequest]:
    """Requests from symbols and how many tokens the last block lacks; an id names a prefix, numbered by first sight."""
    ids: dict[tuple[int, ...], int] = {}
    requests = []
    for symbols, missing in prompts:
        # A started block is another block than the full one of the same text.
        path = [*symbols[:-1], (symbols[-1], missing)] if symbols else []
        blocks = [ids.setdefault(tuple(path[: end + 1]), len(ids)) for end in range(len(path))]
        requests.append(request(blocks, max(0, len(blocks) * BLOCK_TOKENS - missing)))
    return requests


prompts = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=7), st.integers(0, BLOCK_TOKENS - 1)), min_size=1, max_size=40
).map(requests_of)


def hits_of_a_list(requests: list[TraceRequest], capacity: int, rule: HitRule) -> tuple[int, int, int]:
    """Hit blocks, hit tokens and requests with a hit of an LRU kept as a list, hottest first."""
    cached: list[int] = []
    hit_blocks = hit_tokens = hit_requests = 0
    for item in requests:
        found = 0
        while found < len(item.blocks) and int(item.blocks[found]) in cached:
            found += 1
        if rule is HitRule.SERVING:
            found = min(found, max(0, item.input_len - 1) // item.block_tokens)
        hit_blocks += found
        hit_tokens += min(found * item.block_tokens, item.input_len)
        hit_requests += found > 0
        for block in reversed(item.blocks.tolist()):
            if block in cached:
                cached.remove(block)
            cached.insert(0, block)
        del cached[capacity:]
    return hit_blocks, hit_tokens, hit_requests


@given(prompts, st.sampled_from(HitRule))
def test_every_capacity_hits_what_a_list_hits(requests: list[TraceRequest], rule: HitRule) -> None:
    reuse = measure_reuse(requests, hit_rule=rule)
    for capacity in range(reuse.unique_blocks + 2):
        hit_blocks, hit_tokens, _ = hits_of_a_list(requests, capacity, rule)
        assert (reuse.hits_at(capacity), reuse.hit_tokens_at(capacity)) == (hit_blocks, hit_tokens)


@given(prompts, st.sampled_from(HitRule))
def test_the_ceiling_is_what_a_cache_without_end_hits(requests: list[TraceRequest], rule: HitRule) -> None:
    reuse = measure_reuse(requests, hit_rule=rule)
    assert (reuse.hit_blocks, reuse.hit_tokens, reuse.hit_requests) == hits_of_a_list(requests, 10**6, rule)
    assert reuse.block_accesses == sum(len(item.blocks) for item in requests)
    assert reuse.input_tokens == sum(item.input_len for item in requests)
    assert reuse.unique_blocks == len({block for item in requests for block in item.blocks.tolist()})


@given(prompts)
def test_a_quantile_is_the_smallest_capacity_that_hits_its_share(requests: list[TraceRequest]) -> None:
    reuse = measure_reuse(requests)
    for share in (0.1, 0.5, 0.9, 0.99, 1.0):
        capacity = reuse.distance_quantile(share)
        if reuse.hit_blocks == 0:
            assert capacity is None
            continue
        assert capacity is not None
        assert reuse.hits_at(capacity) >= share * reuse.hit_blocks
        assert reuse.hits_at(capacity - 1) < share * reuse.hit_blocks


@given(prompts)
def test_returns_name_the_last_user_of_every_reused_block(requests: list[TraceRequest]) -> None:
    returns = measure_reuse(requests).returns
    named = {
        (int(ordinal), position): int(previous)
        for ordinal, previous, first, count in zip(
            returns.request, returns.previous, returns.first_block, returns.block_count, strict=True
        )
        for position in range(int(first), int(first + count))
    }
    expected = {}
    last_user: dict[int, int] = {}
    for ordinal, item in enumerate(requests):
        for position, block in enumerate(item.blocks.tolist()):
            if block in last_user:
                expected[ordinal, position] = last_user[block]
            last_user[block] = ordinal
    assert named == expected


def test_a_started_last_block_counts_with_the_tokens_it_has() -> None:
    reuse = measure_reuse([request([0, 1], 6), request([0, 1], 6)])
    assert (reuse.hit_blocks, reuse.hit_tokens) == (2, 6)
    assert (reuse.hits_at(1), reuse.hit_tokens_at(1)) == (1, 4)


def test_serving_leaves_the_last_token_to_compute() -> None:
    requests = [request([0, 1]), request([0, 1])]
    assert measure_reuse(requests, hit_rule=HitRule.TRACE).hit_blocks == 2
    serving = measure_reuse(requests, hit_rule=HitRule.SERVING)
    assert (serving.hit_blocks, serving.hit_tokens) == (1, 4)
    assert serving.returns.block_count.sum() == 2


def test_a_trace_without_blocks_or_requests_hits_nothing() -> None:
    for requests in ([], [request([], 100), request([], 3)]):
        reuse = measure_reuse(requests)
        assert (reuse.hit_blocks, reuse.hits_at(10), reuse.hit_requests, reuse.unique_blocks) == (0, 0, 0, 0)
        assert reuse.distance_quantile(0.5) is None


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        measure_reuse([]).distance_quantile(share)


def mooncake(name: str) -> list[TraceRequest]:
    folder = Path(os.environ.get("KVSTORE_TRACES") or Path(__file__).parents[2].parent / "shared" / "traces")
    path = folder / name
    if not path.exists():
        pytest.skip(f"no real traces at {folder}")
    ids: dict[int, int] = {}
    requests = []
    with gzip.open(path, "rt") as lines:
        for row in map(json.loads, lines):
            blocks = [ids.setdefault(block, len(ids)) for block in row["hash_ids"]]
            requests.append(request(blocks, row["input_length"], 512))
    return requests


def percent(tokens: int, reuse: Reuse) -> float:
    return round(100 * tokens / reuse.input_tokens, 2)


@pytest.mark.traces
def test_conversation_hits_as_published() -> None:
    requests = mooncake("mooncake_conversation_trace.jsonl.gz")
    reuse = measure_reuse(requests)
    assert (reuse.block_accesses, reuse.unique_blocks, reuse.hit_blocks) == (288_500, 182_790, 105_710)
    assert [reuse.hits_at(blocks) for blocks in (2_048, 8_192, 32_768)] == [15_857, 52_381, 96_618]
    assert reuse.hit_tokens_at(8_192) == 26_803_109
    tokens = [*(reuse.hit_tokens_at(blocks) for blocks in (2_048, 8_192, 32_768)), reuse.hit_tokens]
    assert [percent(count, reuse) for count in tokens] == [5.60, 18.51, 34.15, 37.36]
    assert reuse.hit_requests == len(requests) - 1
    # Published: 48 / 8,355 / 31,588 / 85,267, of a list that is touched root first, where the blocks of the arriving
    # request itself lie in between: 11 % of all reuses are of block 0, which an arriving request finds at the very top.
    assert [reuse.distance_quantile(share) for share in (0.1, 0.5, 0.9, 0.99)] == [1, 8_295, 31_435, 85_219]
    assert measure_reuse(requests, hit_rule=HitRule.SERVING).hit_blocks == 105_592


@pytest.mark.traces
def test_synthetic_hits_as_published() -> None:
    requests = mooncake("mooncake_synthetic_trace.jsonl.gz")
    reuse = measure_reuse(requests)
    assert (reuse.block_accesses, reuse.unique_blocks, reuse.hit_blocks) == (121_877, 43_924, 77_953)
    assert [reuse.hits_at(blocks) for blocks in (2_048, 8_192)] == [18_226, 46_087]
    assert round(100 * reuse.hit_requests / len(requests), 1) == 44.6


def test_long_paths_cost_no_python_per_block() -> None:
    """12 M accesses, as in the merged coding-agent trace; per block in Python they would take minutes."""
    path = np.arange(2_400, dtype=np.int32)
    requests = [
        TraceRequest(input_len=512 * 2_400, output_len=1, block_tokens=512, blocks=path + 2_400 * (turn % 50))
        for turn in range(5_000)
    ]
    begun = time.perf_counter()
    reuse = measure_reuse(requests)
    assert time.perf_counter() - begun < 20
    assert reuse.hit_blocks == 2_400 * 4_950
    assert reuse.hits_at(50 * 2_400 - 1) < reuse.hits_at(50 * 2_400) == reuse.hit_blocks
