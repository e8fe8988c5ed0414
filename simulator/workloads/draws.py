"""Random draws that are equal on every machine and with every numpy.

Only the raw bits of PCG64 are used, whose stream numpy promises not to change, and everything made of them is integer
arithmetic: no logarithm or power of a library decides a length, an order or a block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curve", "Draws", "zipf_weights"]

_VALUE_END = 2**31
_EXPONENTIAL_CELLS = 1024
_EXPONENTIAL_UNIT = 20  #: the table counts in 2^-20 of the mean
#: Quantiles of the exponential law; rounded far coarser than any two math libraries differ.
_EXPONENTIAL = np.array(
    [round(-math.log(1 - cell / _EXPONENTIAL_CELLS) * 2**_EXPONENTIAL_UNIT) for cell in range(_EXPONENTIAL_CELLS)],
    np.int64,
)


@final
@dataclass(frozen=True, slots=True)
class Curve:
    """A law given by quantiles, straight in between: ``((0, 10), (500, 40), (1000, 90))`` has a median of 40.

    Args:
        knots: (share in thousandths, value), both never decreasing, from 0 to 1000; values in [0, 2^31).
    """

    knots: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        shares, values = [share for share, _ in self.knots], [value for _, value in self.knots]
        assert (shares[0], shares[-1]) == (0, 1000), shares
        assert shares == sorted(set(shares)), shares
        assert values == sorted(values), values
        assert min(values) >= 0, values
        assert max(values) < _VALUE_END, values

    @property
    def mean(self) -> float:
        """Mean of the law."""
        pairs = zip(self.knots, self.knots[1:], strict=False)
        return sum((high - low) * (left + right) / 2000 for (low, left), (high, right) in pairs)


@final
class Draws:
    """One seeded stream of draws; the order of calls matters, the time and the machine do not."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.PCG64(seed)

    def below(self, bounds: int | NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Integers in ``[0, bound)``, bound in [1, 2^31); [count] int64."""
        return (self._uniform(count) * bounds) >> 32

    def chance(self, share: float, count: int) -> NDArray[np.bool_]:
        """True with the probability ``share``; [count]."""
        true: NDArray[np.bool_] = self._uniform(count) < math.floor(share * 2**32)
        return true

    def spread_chance(self, share: float, count: int) -> NDArray[np.bool_]:
        """True in random places, in exactly that share of them, rounded; [count]."""
        true: NDArray[np.bool_] = self._shuffled(count) < round(share * count)
        return true

    def pick(self, weights: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Places in ``weights``, each as likely as its weight; their sum is below 2^62. [count] int64."""
        ends = np.cumsum(weights)
        bits = self._generator.random_raw(count) >> np.uint64(2)
        return np.searchsorted(ends, (bits % np.uint64(ends[-1])).astype(np.int64), side="right").astype(np.int64)

    def along(self, curve: Curve, count: int) -> NDArray[np.int64]:
        """Independent values of a law; [count] int64."""
        return _values_at(curve, self._uniform(count))

    def spread_along(self, curve: Curve, count: int) -> NDArray[np.int64]:
        """Values of a law in random order, one from each of ``count`` equal shares: a few already have its mean."""
        return _values_at(curve, ((self._shuffled(count) << 32) + self._uniform(count)) // max(1, count))

    def exponential(self, mean: int, count: int) -> NDArray[np.int64]:
        """Exponential values of a mean in [1, 2^36), rounded down; [count] int64."""
        total = np.zeros(count, np.int64)
        open_ended = np.arange(count)
        while len(open_ended):
            # The law has no memory: what falls into the last cell starts over from that cell's left end.
            position = self._uniform(len(open_ended)) * _EXPONENTIAL_CELLS
            cell, within = position >> 32, position & (2**32 - 1)
            total[open_ended] += _EXPONENTIAL[cell]
            closed = cell < _EXPONENTIAL_CELLS - 1
            width = _EXPONENTIAL[cell[closed] + 1] - _EXPONENTIAL[cell[closed]]
            total[open_ended[closed]] += (width * within[closed]) >> 32
            open_ended = open_ended[~closed]
        return (total * mean) >> _EXPONENTIAL_UNIT

    def _shuffled(self, count: int) -> NDArray[np.int64]:
        """The integers in ``[0, count)`` in random order."""
        return np.argsort(self._generator.random_raw(count), kind="stable").astype(np.int64)

    def _uniform(self, count: int) -> NDArray[np.int64]:
        """Integers in [0, 2^32)."""
        return (self._generator.random_raw(count) >> np.uint64(32)).astype(np.int64)


def zipf_weights(count: int, skew: float) -> NDArray[np.int64]:
    """Weights of ranks 1 to ``count``, falling as rank^-skew, for ``Draws.pick``."""
    weights: Sequence[int] = [max(1, round(2**30 / rank**skew)) for rank in range(1, count + 1)]
    return np.array(weights, np.int64)


def _values_at(curve: Curve, uniform: NDArray[np.int64]) -> NDArray[np.int64]:
    """The quantile function at ``uniform`` / 2^32."""
    shares, values = np.array(curve.knots, np.int64).T
    position = uniform * 1000
    cell = np.searchsorted(shares << 32, position, side="right") - 1
    within = (position - (shares[cell] << 32)) // (shares[cell + 1] - shares[cell])
    interpolated: NDArray[np.int64] = values[cell] + (((values[cell + 1] - values[cell]) * within) >> 32)
    return interpolated
