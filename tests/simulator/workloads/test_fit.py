"""Workloads resemble the traces they are fitted to. Published figures, with the tolerance stated at each."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from simulator.describe import Description, describe
from simulator.traces.record import LoadedTrace
from simulator.workloads import workload

SEEDS = (0, 1, 2)


@cache
def made(text: str) -> tuple[LoadedTrace, Description]:
    trace = workload(text)
    return trace, describe(trace)


def lru_percent(found: Description, capacity_blocks: int) -> float:
    assert found.reuse is not None
    return next(100 * p.token_hit_rate for p in found.reuse.lru if p.capacity_blocks == capacity_blocks)


@pytest.mark.parametrize("seed", SEEDS)
class TestChat:
    """Against the Mooncake conversation trace."""

    def test_lengths(self, seed: int) -> None:
        _, found = made(f"workload:chat?seed={seed}")
        assert found.input.mean == pytest.approx(12_035, rel=0.15)
        assert found.input.p50 == pytest.approx(6_909, rel=0.15)
        assert found.input.p90 == pytest.approx(27_367, rel=0.20)
        assert found.input.p99 == pytest.approx(85_400, rel=0.20)
        assert found.output.mean == pytest.approx(343, rel=0.10)
        assert found.output.p50 == pytest.approx(350, rel=0.10)

    def test_arrivals(self, seed: int) -> None:
        _, found = made(f"workload:chat?seed={seed}")
        assert found.arrivals is not None
        assert found.arrivals.rate_per_s == pytest.approx(3.40, rel=0.10)
        assert found.arrivals.peak_minute_over_mean == pytest.approx(1.21, abs=0.15)

    def test_reuse(self, seed: int) -> None:
        _, found = made(f"workload:chat?seed={seed}")
        reuse = found.reuse
        assert reuse is not None
        assert 100 * reuse.ceiling_token_hit_rate == pytest.approx(37.4, abs=3)
        assert 100 * reuse.used_once_share == pytest.approx(74, abs=4)  # of full blocks; 76 with started ones
        assert reuse.block_accesses == pytest.approx(276_491, rel=0.15)  # of full blocks
        assert reuse.unique_blocks == pytest.approx(170_899, rel=0.15)
        assert reuse.gap_s is not None
        assert reuse.gap_s.p50 == pytest.approx(114, rel=0.20)
        assert reuse.gap_s.p90 == pytest.approx(519, rel=0.25)

    def test_lru_of_three_sizes(self, seed: int) -> None:
        _, found = made(f"workload:chat?seed={seed}")
        for blocks, percent in ((2_048, 5.6), (8_192, 18.5), (32_768, 34.1)):
            assert lru_percent(found, blocks) == pytest.approx(percent, abs=3)


def test_a_chat_goes_on_as_often_as_published() -> None:
    turns = [request.turn for seed in SEEDS for request in made(f"workload:chat?seed={seed}")[0].requests]
    counts = np.bincount(turns)
    goes_on = counts[1:9] / counts[:8]
    assert goes_on == pytest.approx([0.26, 0.39, 0.50, 0.57, 0.59, 0.66, 0.74, 0.73], abs=0.06)


@pytest.mark.parametrize("seed", SEEDS)
class TestAgent:
    """Against the recorded Claude Code sessions, 16 users at a time."""

    def test_lengths(self, seed: int) -> None:
        _, found = made(f"workload:agent?seed={seed}")
        assert found.input.mean == pytest.approx(122_379, rel=0.15)
        assert found.input.p50 == pytest.approx(103_659, rel=0.15)
        # Of some 85 sessions a few long ones decide the tail.
        assert found.input.p90 == pytest.approx(233_633, rel=0.35)
        assert found.input.p99 == pytest.approx(498_519, rel=0.35)
        assert found.output.p50 == pytest.approx(216, rel=0.10)
        assert found.output.mean == pytest.approx(440, rel=0.30)

    def test_reuse(self, seed: int) -> None:
        _, found = made(f"workload:agent?seed={seed}")
        reuse = found.reuse
        assert reuse is not None
        assert 100 * reuse.ceiling_token_hit_rate == pytest.approx(96.1, abs=1.5)
        assert 100 * reuse.hit_request_share == pytest.approx(98.4, abs=1.6)
        assert reuse.gap_s is not None
        assert reuse.gap_s.p50 == pytest.approx(20, rel=0.20)

    def test_lru_of_two_sizes(self, seed: int) -> None:
        _, found = made(f"workload:agent?seed={seed}")
        assert lru_percent(found, 2_048) == pytest.approx(91.9, abs=3)
        assert lru_percent(found, 8_192) == pytest.approx(96.2, abs=2)

    def test_sessions_and_think_times(self, seed: int) -> None:
        trace, _ = made(f"workload:agent?seed={seed}")
        steps = np.bincount([request.session for request in trace.requests])
        assert np.percentile(steps, [50, 90]) == pytest.approx([46, 157], rel=0.20)
        think_s = [request.after.think_s for request in trace.requests if request.after is not None]
        assert np.percentile(think_s, [50, 90]) == pytest.approx([10, 162], rel=0.20)
        assert np.percentile(think_s, 99) == pytest.approx(3_014, rel=0.35)


def test_agent_scaled_down_keeps_its_shape() -> None:
    _, large = made("workload:agent?seed=0")
    _, small = made("workload:agent?seed=0&text_scale=0.1&block_tokens=64")
    assert large.reuse is not None
    assert small.reuse is not None
    assert small.input.mean == pytest.approx(large.input.mean / 10, rel=0.01)
    assert small.reuse.ceiling_token_hit_rate == pytest.approx(large.reuse.ceiling_token_hit_rate, abs=0.01)


@pytest.mark.parametrize("seed", SEEDS)
class TestBursts:
    """Against the Azure code trace, which has lengths and arrivals only."""

    def test_lengths(self, seed: int) -> None:
        _, found = made(f"workload:bursts?seed={seed}")
        assert found.input.mean == pytest.approx(2_048, rel=0.10)
        assert found.input.p50 == pytest.approx(1_469, rel=0.15)
        assert found.input.p90 == pytest.approx(5_188, rel=0.15)
        assert found.output.p50 == pytest.approx(13, rel=0.15)
        assert found.output.mean == pytest.approx(28, rel=0.25)

    def test_arrivals(self, seed: int) -> None:
        _, found = made(f"workload:bursts?seed={seed}")
        assert found.arrivals is not None
        assert found.arrivals.rate_per_s == pytest.approx(2.57, rel=0.02)
        assert found.arrivals.gap_cv == pytest.approx(13.2, rel=0.15)
        assert found.arrivals.fano_10s == pytest.approx(71.6, rel=0.20)
        assert found.arrivals.peak_minute_over_mean == pytest.approx(4.18, rel=0.30)


def test_bursts_can_be_smoothed() -> None:
    _, bursty = made("workload:bursts?seed=0")
    _, smooth = made("workload:bursts?seed=0&peak=1.2")
    assert bursty.arrivals is not None
    assert smooth.arrivals is not None
    assert smooth.arrivals.rate_per_s == pytest.approx(bursty.arrivals.rate_per_s, rel=0.02)
    assert smooth.arrivals.fano_10s < bursty.arrivals.fano_10s / 2


def test_system_prompts_are_what_is_shared() -> None:
    _, found = made("workload:system")
    assert found.reuse is not None
    # 71.0 % is published for a like workload of 300 applications (twice as many requests, another order of draws).
    assert 100 * found.reuse.ceiling_token_hit_rate == pytest.approx(71, abs=3)
    assert found.reuse.top_tenth_reuse_share > 0.9
    _, flat = made("workload:system?skew=0")
    assert lru_percent(flat, 1_024) < lru_percent(found, 1_024) - 10


def test_drifting_popularity_brings_more_prompts_into_play() -> None:
    _, steady = made("workload:system?requests=6000&apps=1000&drift_s=1e6")
    _, drifting = made("workload:system?requests=6000&apps=1000&drift_s=10")
    assert steady.reuse is not None
    assert drifting.reuse is not None
    assert drifting.reuse.ceiling_token_hit_rate < steady.reuse.ceiling_token_hit_rate
    assert drifting.reuse.unique_blocks > 1.1 * steady.reuse.unique_blocks


def test_documents_in_one_order_share_more() -> None:
    _, shuffled = made("workload:rag?ordered_share=0")
    _, ordered = made("workload:rag?ordered_share=1")
    assert shuffled.reuse is not None
    assert ordered.reuse is not None
    assert ordered.reuse.ceiling_token_hit_rate > shuffled.reuse.ceiling_token_hit_rate + 0.05
    assert shuffled.input == ordered.input


def test_documents_of_a_prompt_are_distinct() -> None:
    """With 16 documents in the corpus and 16 retrieved, every prompt is all of them, so all are equally long."""
    trace, _ = made("workload:rag?requests=50&documents=16&retrieved=16&skew=3&ordered_share=1")
    # Questions add fewer than 601 tokens.
    lengths = [request.input_len for request in trace.requests]
    assert max(lengths) - min(lengths) <= 600
    shared = min(length for length in lengths) // trace.block_tokens - 10
    assert all(np.array_equal(request.blocks[:shared], trace.requests[0].blocks[:shared]) for request in trace.requests)


def test_floods_push_a_warm_chat_out_of_an_lru() -> None:
    _, flooded = made("workload:scan?requests=6000")
    _, calm = made("workload:scan?requests=6000&flood_every_s=60000")
    assert flooded.reuse is not None
    assert calm.reuse is not None
    assert flooded.input.total > 1.1 * calm.input.total
    assert flooded.reuse.used_once_share > calm.reuse.used_once_share + 0.05
    # Of what could be hit, a cache of 8,192 blocks keeps less.
    kept = [lru_percent(found, 8_192) / 100 / found.reuse.ceiling_token_hit_rate for found in (flooded, calm)]
    assert kept[0] < kept[1] - 0.03
