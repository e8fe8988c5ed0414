"""How large a tier is asked to be: ``4M`` tokens, or ``5%`` of what the trace holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from simulator.errors import SimulatorError
from simulator.words import counted

__all__ = ["Size", "SizeError", "exact_tokens", "format_tokens", "parse_size"]

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<suffix>[KMGkmg%]?)", re.ASCII)
_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_EXAMPLES = "write tokens such as 65536, 16K, 4M or 1G, or a share of the trace's unique blocks such as 5%"


class SizeError(SimulatorError, ValueError):
    """A size cannot be read, or does not hold one block.

    Args:
        problem: what is wrong with it.
        text: the size as it was written.
    """

    def __init__(self, problem: str, *, text: str) -> None:
        super().__init__(f"size {text!r}: {problem}; {_EXAMPLES}")
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A tier's capacity as written: tokens, or a share of a trace's unique blocks; exactly one of the two is set."""

    text: str
    tokens: int | None = None
    share: Decimal | None = None  #: of the trace's unique blocks, 1 = all of them

    def blocks(self, *, block_tokens: int, unique_blocks: int) -> int:
        """Whole blocks of this size in one trace; a share is rounded down, to no less than one block.

        Raises:
            SizeError: a number of tokens that does not hold one block.
        """
        if self.share is not None:
            return max(1, int(self.share * unique_blocks))
        assert self.tokens is not None
        if self.tokens < block_tokens:
            raise SizeError(f"holds no block of {counted(block_tokens, 'token')}", text=self.text)
        return self.tokens // block_tokens


def parse_size(text: str) -> Size:
    """Read a size: K, M and G are 2^10, 2^20 and 2^30 tokens, % is a share of the trace's unique blocks.

    Parts of a token are dropped.

    Raises:
        SizeError: it is not such a size, or is zero.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise SizeError("not a size", text=text)
    number, suffix = Decimal(match["number"]), match["suffix"].upper()
    share = number / 100 if suffix == "%" else None
    tokens = None if suffix == "%" else int(number * _FACTORS[suffix])
    if not share and not tokens:
        raise SizeError("must be more than zero", text=text)
    return Size(text=text, tokens=tokens, share=share)


def exact_tokens(tokens: int) -> str:
    """Tokens for people who compare them with other counts: ``1,882,624 tokens (1.8M)``, as M is 2^20."""
    short = format_tokens(tokens)
    return counted(tokens, "token") + ("" if short == str(tokens) else f" ({short})")


def format_tokens(tokens: int) -> str:
    """Tokens for people: the largest suffix that leaves at least 1, with one decimal only where it is needed."""
    for suffix, factor in reversed(_FACTORS.items()):
        if tokens >= factor and suffix:
            return f"{tokens / factor:.1f}".removesuffix(".0") + suffix
    return str(tokens)
