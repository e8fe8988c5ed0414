"""``chat``: people talk with a model in turns, under one shared system prompt.

Fitted to the Mooncake conversation trace (kvcache-ai/Mooncake@3b5a5941, FAST25-release/traces): the curves are
quantiles of its 12,031 requests, where a request continues the earlier one of whose prompt it covers all but 5 %. How
often a session goes on grows with its turns and does not depend on its length. One first prompt in twelve comes again
with its later part rewritten. Answers are in the ids only once the next prompt contains them, as in the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from simulator.workloads.draws import Curve, Draws
from simulator.workloads.recipe import Recipe, parameter
from simulator.workloads.traffic import NO_WAIT, Ints, Traffic, first_ids, scaled

__all__ = ["Chat"]

_TURNS_MAX = 100
#: Chance that a session goes on after its first, second … turn; the last one holds from there on. The trace shows 0.26,
#: 0.39, 0.49, 0.57, 0.59, 0.66, 0.74, 0.73: a little less, since its end hides some of the next turns.
_GOES_ON = (0.27, 0.41, 0.52, 0.60, 0.64, 0.71, 0.80, 0.80, 0.82)
_TURNS_MEAN = 1.55  #: what these chances lead to

#: Tokens of a first prompt after the system prompt.
_FIRST = Curve(
    ((0, 379), (100, 396), (200, 663), (300, 1_660), (400, 3_876), (500, 5_442), (600, 8_027), (700, 11_583),
     (800, 16_427), (900, 25_844), (950, 37_952), (980, 66_079), (990, 86_723), (1000, 125_683))
)  # fmt: skip
#: Tokens that a user adds to what was said so far; one in six adds a document.
_ADDED = Curve(
    ((0, 1), (100, 1), (250, 9), (500, 26), (650, 90), (750, 364), (800, 698), (850, 2_552), (900, 4_228), (950, 6_936),
     (980, 11_767), (990, 16_747), (999, 38_818), (1000, 91_467))
)  # fmt: skip
_ANSWER = Curve(
    ((0, 1), (10, 3), (50, 10), (100, 24), (250, 156), (500, 350), (750, 472), (900, 597), (950, 698), (990, 1_118),
     (999, 2_000), (1000, 2_000))
)  # fmt: skip
#: Milliseconds from the arrival of one turn to that of the next, or of the rewritten prompt.
_GAP_MS = Curve(
    ((0, 1_000), (10, 12_000), (50, 27_000), (100, 39_000), (250, 66_000), (500, 123_000), (750, 267_000),
     (900, 474_000), (950, 607_000), (990, 1_453_000), (999, 2_667_000), (1000, 3_030_000))
)  # fmt: skip
#: Thousandths of a prompt that stay when it is rewritten.
_KEPT = Curve(((0, 10), (100, 70), (250, 110), (500, 210), (750, 420), (900, 770), (1000, 990)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chat(Recipe):
    """Parameters of ``chat``."""

    name: ClassVar[str] = "chat"
    description: ClassVar[str] = "conversations in turns under one system prompt, like the Mooncake conversation trace"

    requests: int = parameter(12_000, "requests in the trace", low=1, high=10_000_000)
    rate: float = parameter(3.6, "requests per second once sessions are under way", low=1e-3, high=1e4)
    system_tokens: int = parameter(512, "tokens of the system prompt that all sessions share", low=0, high=1_000_000)
    text_scale: float = parameter(1.0, "multiplies what users write", low=0.01, high=100)
    gap_scale: float = parameter(1.0, "multiplies the time between the turns of a session", low=1e-3, high=1e3)
    goes_on_scale: float = parameter(1.0, "multiplies the chance that a session goes on", low=0.0, high=1.25)
    rewritten_share: float = parameter(0.09, "share of first prompts that come again rewritten", low=0.0, high=1.0)
    context_tokens: int = parameter(131_072, "longest prompt after the system prompt", low=1, high=100_000_000)

    def traffic(self) -> Traffic:
        """Sessions start as a Poisson process; as many as there are requests, so that the trace is always filled."""
        draws = Draws(self.seed)
        mean_us = round(1e6 / self.rate * _TURNS_MEAN * (1 + self.rewritten_share))
        start_us = np.cumsum(draws.exponential(mean_us, self.requests))
        own_len = self._within_context(scaled(draws.along(_FIRST, self.requests), self.text_scale))
        original = np.flatnonzero(draws.chance(self.rewritten_share, self.requests))
        again_us = start_us[original] + self._gap_us(draws, len(original))
        kept_len = own_len[original] * draws.along(_KEPT, len(original)) // 1000
        nothing = np.zeros(self.requests, np.int64)
        return self._sessions(
            draws,
            start_us=np.concatenate([start_us, again_us]),
            own_len=np.concatenate([own_len, own_len[original]]),
            original=np.concatenate([nothing, original]),
            kept_len=np.concatenate([nothing, kept_len]),
        ).earliest(self.requests)

    def _sessions(self, draws: Draws, *, start_us: Ints, own_len: Ints, original: Ints, kept_len: Ints) -> Traffic:
        """All turns of all sessions, turn by turn.

        Args:
            own_len: [sessions] tokens of the first prompt after the system prompt.
            original: [sessions] the session whose first prompt this one's begins with, for ``kept_len`` tokens.
        """
        session, arrival_us = np.arange(len(start_us)), start_us
        prompt_len = self.system_tokens + own_len
        columns: list[tuple[Ints, Ints, Ints, Ints, Ints]] = []
        for turn in range(_TURNS_MAX):
            answer_len = draws.along(_ANSWER, len(session))
            columns.append((session, np.full_like(session, turn), arrival_us, prompt_len, answer_len))
            added_len = scaled(draws.along(_ADDED, len(session)), self.text_scale)
            next_len = prompt_len + answer_len + added_len
            next_us = arrival_us + self._gap_us(draws, len(session))
            chance = min(1.0, _GOES_ON[min(turn, len(_GOES_ON) - 1)] * self.goes_on_scale)
            on = draws.chance(chance, len(session)) & (next_len <= self.system_tokens + self.context_tokens)
            session, arrival_us, prompt_len = session[on], next_us[on], next_len[on]
        session, turn_, arrival_us, prompt_len, answer_len = map(np.concatenate, zip(*columns, strict=True))
        first, count = self._paths(session, prompt_len, original, kept_len)
        return Traffic(
            arrival_us=arrival_us,
            think_us=np.full_like(arrival_us, NO_WAIT),
            input_len=prompt_len,
            output_len=answer_len,
            session=session,
            turn=turn_,
            first=first,
            count=count,
        )

    def _paths(self, session: Ints, prompt_len: Ints, original: Ints, kept_len: Ints) -> tuple[Ints, Ints]:
        """Pieces of every request: the system prompt, what a rewritten prompt kept, the session's own text."""
        system = self.system_tokens // self.block_tokens
        kept = (self.system_tokens + kept_len) // self.block_tokens - system
        own = prompt_len // self.block_tokens - system - kept[session]
        own_count = np.zeros(len(kept), np.int64)
        np.maximum.at(own_count, session, own)
        own_first = first_ids(own_count, system)
        # An original keeps nothing, so its own text begins right after the system prompt, as the rewritten one's does.
        first = np.stack([np.zeros_like(session), own_first[original[session]], own_first[session]], axis=1)
        return first, np.stack([np.full_like(session, system), kept[session], own], axis=1)

    def _within_context(self, own_len: Ints) -> Ints:
        return np.clip(own_len, 1, self.context_tokens)

    def _gap_us(self, draws: Draws, count: int) -> Ints:
        return scaled(draws.along(_GAP_MS, count), 1000 * self.gap_scale)
