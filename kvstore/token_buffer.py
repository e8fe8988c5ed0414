"""Where do a batch's tokens wait until their sequence needs them? In one matrix that both refer to.

Neither the batch nor a sequence refers to the other through it: a sequence that is dropped is cleaned up at once, and
a batch that is dropped loses no token.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["TokenBuffer"]


@final
class TokenBuffer:
    """Tokens that were appended to a batch and that their sequences do not know yet.

    Shapes:
        tokens: [sequences, tokens at most] int32; fill: [sequences] how many of a row are in use
    """

    __slots__ = ("fill", "tokens", "touched")

    def __init__(self, rows: int, columns: int) -> None:
        self.tokens: NDArray[np.int32] = np.zeros((rows, columns), np.int32)
        self.fill: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.touched = True  #: a sequence was used without its batch, which must look at its members again

    def take(self, row: int) -> NDArray[np.int32]:
        """The row's tokens, in order; the row is empty afterwards."""
        fill = int(self.fill[row])
        self.fill[row] = 0
        return self.tokens[row, :fill].copy()
