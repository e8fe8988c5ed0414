"""Hit rate over cache size: exact for LRU at once, for the optimum by a replay per size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eviction import OptimalPolicy
from simulator.replay import ReplayOptions, replay
from simulator.reuse import Reuse
from simulator.sizes import Size
from simulator.traces.record import LoadedTrace

__all__ = ["CurvePoint", "curve_capacities", "lru_curve", "optimum_point"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What a device tier of one size hits."""

    capacity_tokens: int
    hit_blocks: int
    hit_tokens: int


def curve_capacities(*, point_count: int, unique_blocks: int, include: Iterable[int] = ()) -> list[int]:
    """Cache sizes in blocks, ascending, evenly spread on a logarithmic axis from 1/512 of the unique blocks to all.

    Args:
        include: sizes in blocks that belong to the curve's range besides, and widen it if need be.
    """
    extra = sorted(include)
    low = max(1, min(unique_blocks // 512, *extra[:1]) if extra else unique_blocks // 512)
    high = max(unique_blocks, low, *extra)
    spread = np.geomspace(low, high, point_count).round().astype(np.int64).tolist()
    return sorted({*spread, *extra})


def lru_curve(reuse: Reuse, capacities: Iterable[int], *, block_tokens: int) -> list[CurvePoint]:
    """What LRU hits at these sizes in blocks, exactly, without a replay."""
    return [
        CurvePoint(
            capacity_tokens=blocks * block_tokens,
            hit_blocks=reuse.hits_at(blocks),
            hit_tokens=reuse.hit_tokens_at(blocks),
        )
        for blocks in capacities
    ]


def optimum_point(trace: LoadedTrace, reuse: Reuse, *, capacity_blocks: int) -> CurvePoint:
    """What the offline optimum hits at one size, by a replay."""
    tokens = capacity_blocks * trace.block_tokens
    options = ReplayOptions(
        device_tokens=Size(text=str(tokens), tokens=tokens), policy=OptimalPolicy.name, hit_rule=reuse.hit_rule
    )
    result = replay(trace, options, reuse=reuse)
    return CurvePoint(capacity_tokens=tokens, hit_blocks=result.hit_blocks, hit_tokens=result.hit_tokens)
