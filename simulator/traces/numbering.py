"""Dense numbers for block ids, and the proof that each id names one whole prefix."""

from __future__ import annotations

from array import array
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BrokenPrefix", "PathNumbers", "TokenNumbers"]

_ROOT: Final = -1


class BrokenPrefix(Exception):
    """An id follows one id here and another one earlier, so it does not name a prefix."""

    def __init__(self, block: int, here: int | None, earlier: int | None) -> None:
        after = ["nothing" if before is None else str(before) for before in (here, earlier)]
        super().__init__(f"id {block} follows {after[0]} here, but {after[1]} earlier")


@final
class PathNumbers:
    """Numbers ids from 0 by first sight.

    Each id keeps the one predecessor it was first seen with. One predecessor implies one position: the position of an
    id is that of its predecessor plus one, and the first has none.

    A prompt mostly repeats the one before it, so paths are compared with the last one and only the rest is looked up.

    Args:
        rechain: an id names a block's own tokens only: number pairs of predecessor and id instead of refusing.
    """

    def __init__(self, *, rechain: bool = False) -> None:
        self._rechain = rechain
        self._numbers: dict[int | tuple[int, int], int] = {}
        self._parents = array("i")
        self._last_ids: NDArray[np.integer] = np.empty(0, np.int64)
        self._last_numbers: NDArray[np.int32] = np.empty(0, np.int32)

    @property
    def count(self) -> int:
        """Numbers given so far."""
        return len(self._parents)

    def new_scope(self) -> None:
        """Forget all ids: from here on, equal ids are other blocks. Numbers go on."""
        self._numbers = {}
        self._last_ids, self._last_numbers = self._last_ids[:0], self._last_numbers[:0]

    def of(self, ids: NDArray[np.integer]) -> NDArray[np.int32]:
        """The numbers of one prompt's ids.

        Raises:
            BrokenPrefix: an id follows another id than when it was seen first.

        Shapes:
            ids: [blocks] integers in prefix order
            result: [blocks] int32
        """
        shared = _common_prefix(self._last_ids, ids)
        parent = int(self._last_numbers[shared - 1]) if shared else _ROOT
        number = self._rechained if self._rechain else self._proven
        tail = number(ids[shared:].tolist(), parent)
        result = np.concatenate((self._last_numbers[:shared], np.array(tail, np.int32)))
        self._last_ids, self._last_numbers = ids, result
        return result

    def _proven(self, ids: list[int], parent: int) -> list[int]:
        """Numbers of ids below ``parent``: a known head, then only new ones, or some id names no prefix."""
        numbers, parents = self._numbers, self._parents
        path = []
        for block in ids:
            number = numbers.get(block)
            if number is None:
                break
            if parents[number] != parent:
                raise BrokenPrefix(block, self._id_of(parent), self._id_of(parents[number]))
            path.append(number)
            parent = number
        new, first = ids[len(path) :], len(parents)
        if new:
            fresh = range(first, first + len(new))
            parents.append(parent)
            parents.extend(fresh[:-1])
            given = list(map(numbers.setdefault, new, fresh))
            if given != list(fresh):
                at = next(place for place, number in enumerate(given) if number != fresh[place])
                raise BrokenPrefix(new[at], self._id_of(parents[fresh[at]]), self._id_of(parents[given[at]]))
            path += given
        return path

    def _rechained(self, ids: list[int], parent: int) -> list[int]:
        numbers, parents = self._numbers, self._parents
        path = []
        for block in ids:
            number = numbers.get((parent, block), _ROOT)
            if number < 0:
                number = numbers[parent, block] = len(parents)
                parents.append(parent)
            path.append(number)
            parent = number
        return path

    def _id_of(self, number: int) -> int | None:
        """The id of a number, by search: for one message only."""
        return next((key for key, known in self._numbers.items() if known == number and isinstance(key, int)), None)


@final
class TokenNumbers:
    """Numbers blocks of tokens from 0 by first sight; a block is its tokens and all before them.

    Blocks are compared by their bytes, so no two prefixes can be taken for one.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._numbers: dict[tuple[int, bytes], int] = {}

    @property
    def count(self) -> int:
        """Numbers given so far."""
        return len(self._numbers)

    def of(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """The numbers of one prompt's full blocks.

        Shapes:
            tokens: [tokens] int32
            result: [tokens // block_tokens] int32
        """
        numbers, size = self._numbers, self._block_tokens * tokens.itemsize
        data = tokens.tobytes()
        path, parent = [], _ROOT
        for start in range(0, len(data) - size + 1, size):
            parent = numbers.setdefault((parent, data[start : start + size]), len(numbers))
            path.append(parent)
        return np.array(path, np.int32)


def _common_prefix(one: NDArray[np.integer], other: NDArray[np.integer]) -> int:
    """How many leading elements are equal."""
    length = min(len(one), len(other))
    if not length:
        return 0
    differ = one[:length] != other[:length]
    first = int(differ.argmax())
    return first if differ[first] else length
