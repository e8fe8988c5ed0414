"""``rag``: questions to a corpus; each prompt is shared instructions, a few retrieved documents, then the question.

Documents are popular by a Zipf law. A document's blocks depend on what stands before it, so the same documents in
another order share nothing: ``ordered_share`` of the prompts put them in one fixed order, as a careful prompt builder
would. Not fitted to a trace: no public one has this traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from simulator.workloads.draws import Curve, Draws, zipf_weights
from simulator.workloads.recipe import Recipe, parameter
from simulator.workloads.traffic import NO_SESSION, NO_WAIT, Ints, Traffic, first_ids, scaled

__all__ = ["Rag"]

_DOCUMENT = Curve(((0, 150), (100, 300), (500, 800), (900, 1_800), (1000, 4_000)))
_QUESTION = Curve(((0, 5), (100, 12), (500, 30), (900, 120), (1000, 600)))
_ANSWER = Curve(((0, 1), (100, 40), (500, 180), (900, 450), (1000, 1_200)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rag(Recipe):
    """Parameters of ``rag``."""

    name: ClassVar[str] = "rag"
    description: ClassVar[str] = "questions with retrieved documents, in varying order, after shared instructions"

    block_tokens: int = parameter(64, "tokens per block", low=1, high=65_536)
    rate: float = parameter(2.0, "requests per second", low=1e-3, high=1e4)
    documents: int = parameter(2_000, "documents of the corpus", low=16, high=100_000)
    retrieved: int = parameter(4, "documents per prompt", low=1, high=16)
    skew: float = parameter(1.0, "exponent of the Zipf law of their popularity", low=0.0, high=4.0)
    ordered_share: float = parameter(0.3, "share of prompts with documents in one fixed order", low=0.0, high=1.0)
    head_tokens: int = parameter(1_000, "tokens of the instructions that all prompts share", low=0, high=1_000_000)
    document_scale: float = parameter(1.0, "multiplies the documents", low=0.01, high=100)

    def traffic(self) -> Traffic:
        """Poisson arrivals of independent questions."""
        draws = Draws(self.seed)
        arrival_us = np.cumsum(draws.exponential(round(1e6 / self.rate), self.requests))
        document_len = np.maximum(1, scaled(draws.spread_along(_DOCUMENT, self.documents), self.document_scale))
        chosen = self._retrieve(draws)
        ends = self.head_tokens + np.cumsum(document_len[chosen], axis=1)
        input_len = ends[:, -1] + draws.along(_QUESTION, self.requests)
        first, count = self._paths(chosen, ends, input_len)
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

    def _retrieve(self, draws: Draws) -> Ints:
        """Distinct documents in prompt order; [requests, retrieved]."""
        weights = zipf_weights(self.documents, self.skew)
        chosen = np.empty((self.requests, self.retrieved), np.int64)
        for place in range(self.retrieved):
            picks = draws.pick(weights, self.requests)
            # A document that is there already gives way to the next less popular one.
            while (repeated := (chosen[:, :place] == picks[:, None]).any(axis=1)).any():
                picks = np.where(repeated, (picks + 1) % self.documents, picks)
            chosen[:, place] = picks
        ordered = draws.chance(self.ordered_share, self.requests)
        chosen[ordered] = np.sort(chosen[ordered], axis=1)
        return chosen

    def _paths(self, chosen: Ints, ends: Ints, input_len: Ints) -> tuple[Ints, Ints]:
        """Pieces of every request: instructions, each document after the ones before it, question."""
        head = self.head_tokens // self.block_tokens
        end_blocks = np.concatenate([np.full((self.requests, 1), head), ends // self.block_tokens], axis=1)
        counts, firsts = [end_blocks[:, 0]], [np.zeros(self.requests, np.int64)]
        before = np.zeros(self.requests, np.int64)  # names the documents so far, in order
        next_id = head
        for place in range(self.retrieved):
            count = end_blocks[:, place + 1] - end_blocks[:, place]
            _, one_of_each, before = np.unique(
                before * self.documents + chosen[:, place], return_index=True, return_inverse=True
            )
            ranges = count[one_of_each]
            firsts.append(first_ids(ranges, next_id)[before])
            counts.append(count)
            next_id += int(ranges.sum())
        own = input_len // self.block_tokens - end_blocks[:, -1]
        firsts.append(first_ids(own, next_id))
        counts.append(own)
        return np.stack(firsts, axis=1), np.stack(counts, axis=1)
