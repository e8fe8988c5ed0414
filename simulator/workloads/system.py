"""``system``: single calls to applications that each put a long system prompt in front of a short question.

Which applications are popular follows a Zipf law that drifts. Not fitted to a trace: no public one has this traffic. It
tests whether a policy keeps what is used often over what was used last, and lets go when popularity moves on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from simulator.workloads.draws import Curve, Draws, zipf_weights
from simulator.workloads.recipe import Recipe, parameter
from simulator.workloads.traffic import NO_SESSION, NO_WAIT, Ints, Traffic, first_ids, scaled

__all__ = ["System"]

_PROMPT = Curve(((0, 300), (125, 768), (250, 1_280), (375, 2_048), (500, 3_328), (625, 5_120), (750, 8_192),
                 (875, 15_360), (1000, 25_000)))  # fmt: skip
_QUESTION = Curve(((0, 64), (330, 1_024), (500, 1_536), (670, 2_048), (830, 3_072), (1000, 4_608)))
_ANSWER = Curve(((0, 1), (100, 25), (500, 90), (900, 324), (990, 920), (1000, 3_000)))
#: How often each set of examples follows the system prompt, which it lengthens by a third.
_EXAMPLE_WEIGHTS = np.array([8, 4, 2, 1], np.int64)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class System(Recipe):
    """Parameters of ``system``."""

    name: ClassVar[str] = "system"
    description: ClassVar[str] = "single calls under long shared system prompts whose popularity drifts"

    requests: int = parameter(10_000, "requests in the trace", low=1, high=10_000_000)
    rate: float = parameter(6.0, "requests per second", low=1e-3, high=1e4)
    apps: int = parameter(300, "applications, each with its own system prompt", low=1, high=100_000)
    skew: float = parameter(1.0, "exponent of the Zipf law of their popularity", low=0.0, high=4.0)
    drift_s: float = parameter(600.0, "seconds until a tenth of them change places", low=1e-3, high=1e9)
    prompt_scale: float = parameter(1.0, "multiplies the system prompts", low=0.01, high=100)

    def traffic(self) -> Traffic:
        """Poisson arrivals of independent calls."""
        draws = Draws(self.seed)
        arrival_us = np.cumsum(draws.exponential(round(1e6 / self.rate), self.requests))
        rank = draws.pick(zipf_weights(self.apps, self.skew), self.requests)
        period = arrival_us // round(self.drift_s * 1e6)
        # Only periods in which something arrives matter: at a low rate there may be many more.
        _, period = np.unique(period, return_inverse=True)
        app = self._popularity(draws, int(period[-1]) + 1)[period, rank]
        examples = draws.pick(_EXAMPLE_WEIGHTS, self.requests)
        question_len = draws.along(_QUESTION, self.requests)
        prompt_len = np.maximum(1, scaled(draws.spread_along(_PROMPT, self.apps), self.prompt_scale))
        first, count, input_len = self._paths(prompt_len, app, examples, question_len)
        return Traffic(
            arrival_us=arrival_us,
            think_us=np.full(self.requests, NO_WAIT),
            input_len=input_len,
            output_len=draws.along(_ANSWER, self.requests),
            session=np.full(self.requests, NO_SESSION),
            turn=np.zeros(self.requests, np.int64),
            first=first,
            count=count,
        )

    def _popularity(self, draws: Draws, periods: int) -> Ints:
        """Which application holds each rank; [periods, apps]."""
        order = np.arange(self.apps)
        rows = []
        for _ in range(periods):
            rows.append(order.copy())
            swaps = self.apps // 10
            for left, right in zip(draws.below(self.apps, swaps), draws.below(self.apps, swaps), strict=True):
                order[left], order[right] = order[right], order[left]
        return np.stack(rows)

    def _paths(self, prompt_len: Ints, app: Ints, examples: Ints, question_len: Ints) -> tuple[Ints, Ints, Ints]:
        """Pieces (system prompt, examples, question) and the length of every request."""
        examples_end = prompt_len + prompt_len // 3
        input_len = examples_end[app] + question_len
        prompt_blocks = prompt_len // self.block_tokens
        example_blocks = examples_end // self.block_tokens - prompt_blocks
        own = input_len // self.block_tokens - (prompt_blocks + example_blocks)[app]
        prompt_first = first_ids(prompt_blocks, 0)
        sets = np.repeat(example_blocks, len(_EXAMPLE_WEIGHTS))
        example_first = first_ids(sets, int(prompt_blocks.sum())).reshape(self.apps, -1)
        own_first = first_ids(own, int(prompt_blocks.sum() + sets.sum()))
        first = np.stack([prompt_first[app], example_first[app, examples], own_first], axis=1)
        return first, np.stack([prompt_blocks[app], example_blocks[app], own], axis=1), input_len
