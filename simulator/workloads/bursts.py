"""``bursts``: code completions that come in bursts with long pauses between them.

Lengths and arrivals are fitted to the Azure code trace of 2023 (Azure/AzurePublicDataset@b469a113), which tells bursts
apart by pauses of more than 5 s. That trace has no prefixes; the ones here are assumed: editors complete one file
several times in a row, the prompt is the file up to the cursor, and only its last part has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from simulator.workloads.draws import Curve, Draws, zipf_weights
from simulator.workloads.recipe import Recipe, parameter
from simulator.workloads.traffic import NO_WAIT, Ints, Traffic, first_ids, scaled

__all__ = ["Bursts"]

_BURST = Curve(((0, 12), (100, 38), (250, 64), (500, 113), (750, 200), (900, 327), (1000, 583)))  #: requests
_PAUSE_MS = Curve(((0, 5_401), (100, 7_628), (250, 10_334), (500, 25_147), (750, 49_069), (900, 105_645),
                   (1000, 217_168)))  # fmt: skip
_GAP_US = Curve(((0, 5), (50, 87), (100, 204), (200, 1_171), (250, 2_050), (300, 3_246), (500, 62_004), (750, 103_312),
                 (900, 248_025), (950, 392_508), (980, 614_035), (990, 939_244), (1000, 3_997_663)))  # fmt: skip
_PROMPT = Curve(((0, 3), (50, 75), (100, 147), (250, 578), (400, 1_075), (500, 1_469), (600, 1_909), (750, 2_744),
                 (850, 3_920), (900, 5_187), (950, 7_303), (1000, 7_437)))  # fmt: skip
_ANSWER = Curve(((0, 6), (100, 7), (250, 9), (500, 13), (750, 24), (900, 55), (950, 90), (990, 251), (999, 825),
                 (1000, 1_899)))  # fmt: skip
#: Tokens before the cursor that changed since the last completion.
_CHANGED = Curve(((0, 4), (500, 60), (900, 400), (1000, 2_000)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts(Recipe):
    """Parameters of ``bursts``."""

    name: ClassVar[str] = "bursts"
    description: ClassVar[str] = "code completions in bursts, arriving like the Azure code trace"

    requests: int = parameter(8_800, "requests in the trace", low=1, high=10_000_000)
    block_tokens: int = parameter(16, "tokens per block", low=1, high=65_536)
    rate: float = parameter(2.57, "requests per second over the whole trace", low=1e-3, high=1e4)
    peak: float = parameter(3.5, "rate within a burst ÷ rate over the whole trace", low=1.0, high=1e3)
    burst_requests: int = parameter(152, "mean requests of a burst", low=1, high=1_000_000)
    text_scale: float = parameter(1.0, "multiplies the prompts", low=0.1, high=100)
    files: int = parameter(500, "files that are worked on; few of them get most requests", low=1, high=100_000)
    stays: float = parameter(0.8, "chance that a request completes the file of the one before", low=0.0, high=1.0)

    def traffic(self) -> Traffic:
        """Arrivals burst by burst; files visit by visit."""
        draws = Draws(self.seed)
        arrival_us = self._arrivals(draws)
        begins = ~draws.chance(self.stays, self.requests)
        begins[0] = True
        visit = np.cumsum(begins) - 1
        visit_count = int(visit[-1]) + 1
        file = draws.pick(zipf_weights(self.files, 1.0), visit_count)[visit]
        prompt_len = np.maximum(1, scaled(draws.spread_along(_PROMPT, visit_count), self.text_scale))[visit]
        first, count = self._paths(file, prompt_len, draws.along(_CHANGED, self.requests))
        return Traffic(
            arrival_us=arrival_us,
            think_us=np.full(self.requests, NO_WAIT),
            input_len=prompt_len,
            output_len=draws.along(_ANSWER, self.requests),
            session=visit,
            turn=np.arange(self.requests) - np.flatnonzero(begins)[visit],
            first=first,
            count=count,
        )

    def _arrivals(self, draws: Draws) -> Ints:
        """A pause before each burst but the first; the larger a burst, the faster, as its root."""
        size = np.maximum(1, scaled(draws.spread_along(_BURST, self._burst_count()), self.burst_requests / _BURST.mean))
        begins = np.cumsum(size) - size
        begins, size = begins[begins < self.requests], size[begins < self.requests]
        burst = np.repeat(np.arange(len(size)), size)[: self.requests]
        gap_s = 1 / self.rate / self.peak
        pause_s = 1 / self.rate - gap_s
        weights = scaled(draws.along(_GAP_US, self.requests), 1000 / np.sqrt(size[burst]))
        gaps_us = _filling(weights, self.requests * gap_s)
        gaps_us[begins[1:]] += _filling(draws.spread_along(_PAUSE_MS, len(begins) - 1), self.requests * pause_s)
        arrival_us: Ints = np.cumsum(gaps_us) - gaps_us[0]
        return arrival_us

    def _burst_count(self) -> int:
        """Enough for all requests, however small the bursts turn out."""
        return 2 + 2 * self.requests // self.burst_requests

    def _paths(self, file: Ints, prompt_len: Ints, changed_len: Ints) -> tuple[Ints, Ints]:
        """Pieces of every request: the file up to what changed, then text of its own."""
        known = np.maximum(0, prompt_len - changed_len) // self.block_tokens
        own = prompt_len // self.block_tokens - known
        file_blocks = np.zeros(self.files, np.int64)
        np.maximum.at(file_blocks, file, known)
        file_first = first_ids(file_blocks, 0)
        own_first = first_ids(own, int(file_blocks.sum()))
        return np.stack([file_first[file], own_first], axis=1), np.stack([known, own], axis=1)


def _filling(weights: Ints, total_s: float) -> Ints:
    """Microseconds in proportion to the weights, ``total_s`` in all."""
    return scaled(weights, total_s * 1e6 / max(1, int(weights.sum())))
