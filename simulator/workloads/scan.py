"""``scan``: a batch job floods a busy chat with long documents that nobody reads twice.

The chat is ``chat``; the documents share nothing. Tests whether a policy lets one-off traffic push out what comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from simulator.workloads.chat import Chat
from simulator.workloads.draws import Curve, Draws
from simulator.workloads.recipe import Recipe, parameter
from simulator.workloads.traffic import NO_SESSION, NO_WAIT, Traffic, first_ids, scaled

__all__ = ["Scan"]

_DOCUMENT = Curve(((0, 10_240), (1000, 61_440)))
_ANSWER = Curve(((0, 32), (1000, 96)))
_SPACING_US = 200_000  #: between two documents of one flood


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Recipe):
    """Parameters of ``scan``."""

    name: ClassVar[str] = "scan"
    description: ClassVar[str] = "the conversations of chat, flooded now and then by documents that are used once"

    requests: int = parameter(8_000, "requests in the trace", low=1, high=10_000_000)
    rate: float = parameter(3.6, "chat requests per second once sessions are under way", low=1e-3, high=1e4)
    flood_every_s: float = parameter(120.0, "mean seconds between two floods", low=1e-2, high=60_000.0)
    flood_documents: int = parameter(40, "documents of a flood", low=1, high=100_000)
    document_scale: float = parameter(1.0, "multiplies the documents", low=0.01, high=100)

    def traffic(self) -> Traffic:
        """Chat and floods, cut where both together make the requests."""
        chat = Chat(seed=self.seed, requests=self.requests, block_tokens=self.block_tokens, rate=self.rate).traffic()
        return chat.beside(self._floods(int(chat.arrival_us.max()))).earliest(self.requests)

    def _floods(self, end_us: int) -> Traffic:
        """Floods until the chat ends, but no more documents than could ever be taken."""
        draws = Draws(self.seed)
        every_us = round(self.flood_every_s * 1e6)
        floods = 1 + min(end_us // every_us * 2, self.requests // self.flood_documents)
        start_us = np.cumsum(draws.exponential(every_us, floods))
        spacing_us = np.arange(self.flood_documents) * _SPACING_US
        arrival_us = (start_us[:, None] + spacing_us).ravel()
        input_len = scaled(draws.along(_DOCUMENT, len(arrival_us)), self.document_scale)
        blocks = input_len // self.block_tokens
        nothing = np.zeros_like(blocks)
        return Traffic(
            arrival_us=arrival_us,
            think_us=np.full(len(arrival_us), NO_WAIT),
            input_len=input_len,
            output_len=draws.along(_ANSWER, len(arrival_us)),
            session=np.full(len(arrival_us), NO_SESSION),
            turn=nothing,
            first=np.stack([nothing, nothing, first_ids(blocks, 0)], axis=1),
            count=np.stack([nothing, nothing, blocks], axis=1),
        )
