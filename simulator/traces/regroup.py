"""Blocks of another size than a trace was hashed with.

A block of ``block_tokens`` tokens made of hashed blocks of ``id_tokens`` is named by the last of them, since an id
names its whole prefix:

    hashed (64)    a  b  c  d  e  f  g  h  i  j
    coarser (256)  └────d────┘└────h────┘└─j         j only if started blocks count
    finer (32)     a0 a1 b0 b1 …                     sharing within a hashed block is unknown
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Regroup"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Turns the numbers of hashed blocks into names of blocks of another size; the one size divides the other."""

    id_tokens: int  #: tokens of a hashed block
    block_tokens: int  #: tokens of a block wanted
    started: bool  #: a started last block is a block

    @property
    def names_per_number(self) -> int:
        """How many names a number can turn into: the names of number n lie in [n × this, (n + 1) × this)."""
        return max(1, self.id_tokens // self.block_tokens)

    def names(self, numbers: NDArray[np.int32], input_len: int) -> NDArray[np.int32]:
        """Names of a prompt's blocks.

        Args:
            numbers: one per hashed block of the prompt.
            input_len: the prompt's tokens.

        Shapes:
            numbers: [full or started hashed blocks] int32
            result: [blocks] int32
        """
        if not self.started:
            numbers = numbers[: input_len // self.id_tokens]
        if self.block_tokens == self.id_tokens:
            return numbers
        if self.block_tokens > self.id_tokens:
            return self._coarser(numbers, input_len)
        return self._finer(numbers, input_len)

    def _coarser(self, numbers: NDArray[np.int32], input_len: int) -> NDArray[np.int32]:
        step = self.block_tokens // self.id_tokens
        names = numbers[step - 1 :: step]
        covered = len(numbers) * self.id_tokens >= input_len
        if self.started and covered and len(numbers) % step:
            return np.append(names, numbers[-1:])
        return names.copy()  # a view would keep all hashed blocks in memory

    def _finer(self, numbers: NDArray[np.int32], input_len: int) -> NDArray[np.int32]:
        parts = self.names_per_number
        full = input_len // self.block_tokens
        length = -(-input_len // self.block_tokens) if self.started else full
        names = np.repeat(numbers * np.int32(parts), parts)
        names += np.tile(np.arange(parts, dtype=np.int32), len(numbers))
        return names[:length].copy()
