"""How is kvstore driven? As an engine drives it: begin, reserve, commit, release."""

from __future__ import annotations

import numpy as np
from manager import Admitted, Demand, Tokens
from numpy.typing import NDArray

from kvstore import KVStore, OutOfPages, Prompt, Sequence
from transfer import VirtualPagePool

__all__ = ["OurManager"]


class OurManager:
    """A store over a pool that has pages but no bytes, with its default policy."""

    def __init__(self, page_count: int, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._store = KVStore(VirtualPagePool(page_count=page_count, block_tokens=page_tokens))

    def engine_buffer(self, tokens: NDArray[np.int32]) -> Tokens:
        return tokens

    def visit(self, tokens: Tokens) -> int:
        sequence = self._store.begin(Prompt.of_tokens(tokens))
        _ = sequence.page_table
        sequence.release()
        return sequence.matched_tokens

    match = visit  # there is no cheaper look-up that also protects what it found

    def admit(self, tokens: Tokens) -> Admitted:
        prompt = Prompt.of_tokens(tokens)
        sequence = self._store.begin(prompt)
        try:
            sequence.reserve(through=prompt.token_count)
        except OutOfPages as full:
            sequence.abandon()
            raise MemoryError from full
        _ = sequence.page_table
        sequence.commit(through=prompt.token_count)
        return Admitted(sequence, sequence.matched_tokens)

    def release(self, admitted: Admitted) -> None:
        admitted.handle.release()

    def demand(self, page_count: int) -> Demand:
        token_count = page_count * self._page_tokens
        novel = np.full(token_count, 2**31 - 1, np.int32)  # no workload has this token, so nothing matches
        return _Reservation(self._store.begin(Prompt.of_tokens(novel)), token_count)


class _Reservation:
    def __init__(self, sequence: Sequence, token_count: int) -> None:
        self._sequence = sequence
        self._token_count = token_count

    def take(self) -> None:
        self._sequence.reserve(through=self._token_count)

    def give_back(self) -> None:
        self._sequence.abandon()
