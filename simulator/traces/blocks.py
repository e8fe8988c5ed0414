"""From what a file says of prompts to dense block ids of one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from simulator.errors import TraceError
from simulator.traces.formats.format import NO_BLOCKS, BlockRule
from simulator.traces.numbering import BrokenPrefix, PathNumbers, TokenNumbers
from simulator.traces.record import TraceRequest
from simulator.traces.regroup import Regroup
from simulator.traces.trace import Trace

__all__ = ["BlockNames", "renumber", "share_prefixes"]

_NAMES_MAX: Final = 2**31

#: Where ids are split, a few bytes of a file ask for the memory of many blocks. One id may stand for so many, and all
#: of them for so many that a table of them takes half a GiB.
_SPLIT_INTO_MAX: Final = 2**16
_SPLIT_NAMES_MAX: Final = 2**27


@final
class BlockNames:
    """Names the blocks of a trace's requests while it is read: dense within bounds, not yet by first sight.

    Args:
        trace: where the requests come from; its place is where errors point.
        block_tokens: the block size wanted; None takes that of the file.
        count_started: a hashed trace's started last block is a block.
        rechain: ids name a block's own tokens, not its prefix.

    Raises:
        TraceError: the size wanted neither divides the file's nor is a multiple of it.
    """

    def __init__(self, trace: Trace, *, block_tokens: int | None, count_started: bool, rechain: bool) -> None:
        rule, id_tokens = trace.format.block_rule, trace.block_tokens
        self.block_tokens = block_tokens or id_tokens
        self._trace = trace
        self._local_ids = trace.format.local_ids
        self._hashed = rule in (BlockRule.CEIL, BlockRule.FLOOR, BlockRule.EITHER)
        if self._hashed and max(self.block_tokens, id_tokens) % min(self.block_tokens, id_tokens):
            problem = f"blocks of {self.block_tokens} tokens cannot be made of the trace's {id_tokens}"
            raise TraceError(f"{problem}: take a multiple or a divisor", source=trace.path)
        started = count_started and rule is not BlockRule.FLOOR
        self._regroup = Regroup(id_tokens=id_tokens, block_tokens=self.block_tokens, started=started)
        self._paths = PathNumbers(rechain=rechain)
        self._tokens = TokenNumbers(self.block_tokens)
        self._scope_line = trace.line

    @property
    def bound(self) -> int:
        """All names are below this."""
        return max(self._tokens.count, self._paths.count * self._regroup.names_per_number)

    @property
    def warning(self) -> str | None:
        """What to know about blocks that were split."""
        if not self._hashed or self._regroup.names_per_number == 1:
            return None
        return (
            f"blocks of {self.block_tokens} tokens are finer than the trace's {self._trace.block_tokens}: "
            "sharing inside a hashed block is unknown and not counted"
        )

    def of(self, request: TraceRequest) -> NDArray[np.int32]:
        """The names of a request's blocks.

        Raises:
            TraceError: an id does not name one prefix or is split too finely, or the trace has too many blocks.
        """
        if request.tokens is not None:
            return self._tokens.of(request.tokens)
        if not self._hashed:
            return NO_BLOCKS
        parts = self._regroup.names_per_number
        if parts > _SPLIT_INTO_MAX:
            problem = f"an id of {self._trace.block_tokens:,} tokens splits into at most {_SPLIT_INTO_MAX:,} blocks"
            raise self._error(f"{problem}, got blocks of {self.block_tokens} tokens", field="block_size")
        if self._local_ids and self._trace.line != self._scope_line:
            self._scope_line = self._trace.line
            self._paths.new_scope()
        try:
            numbers = self._paths.of(request.blocks)
        except BrokenPrefix as error:
            problem = (
                f"{error}: an id must name one prefix; prefix='rechain' (--rechain) names blocks by their path instead"
            )
            place = "" if request.turn is None else f" (session {request.session}, turn {request.turn})"
            raise self._error(problem + place) from error
        most = _NAMES_MAX if parts == 1 else _SPLIT_NAMES_MAX
        if self.bound > most:
            raise self._error(f"more than {most:,} blocks of {self.block_tokens} tokens")
        return self._regroup.names(numbers, request.input_len)

    def _error(self, problem: str, *, field: str = "hash_ids") -> TraceError:
        return TraceError(problem, source=self._trace.path, line=self._trace.line, field=field)


def share_prefixes(requests: Sequence[TraceRequest]) -> None:
    """Let requests whose blocks all begin the next request's hold a view of those instead of a copy.

    An id names its whole prefix, so one comparison tells. A session of 200 turns then holds its last prompt once.
    """
    for earlier, later in zip(reversed(requests[:-1]), reversed(requests[1:]), strict=True):
        length = len(earlier.blocks)
        if 0 < length <= len(later.blocks) and earlier.blocks[-1] == later.blocks[length - 1]:
            earlier.blocks = later.blocks[:length]


def renumber(requests: Sequence[TraceRequest], bound: int) -> int:
    """Number the blocks of all requests from 0 by first sight, in place.

    Args:
        requests: in order of arrival, with int32 names in ``[0, bound)``.
        bound: above every name.

    Returns:
        How many blocks there are.
    """
    table = np.full(bound, -1, np.int32)
    count = 0
    for request in requests:
        new = request.blocks[_known_head(table, request.blocks) :]
        table[new] = np.arange(count, count + len(new), dtype=np.int32)
        count += len(new)
    done: set[int] = set()
    for request in requests:
        owner = request.blocks if request.blocks.base is None else request.blocks.base
        if len(request.blocks) and id(owner) not in done:
            done.add(id(owner))  # requests that share an array share its new numbers
            owner[:] = table[owner]
    return count


def _known_head(table: NDArray[np.int32], blocks: NDArray[np.integer]) -> int:
    """How many leading blocks have a number, by bisection: whoever used a block used all before it."""
    if len(blocks) and table[blocks[-1]] >= 0:
        return len(blocks)
    known, unknown = 0, max(len(blocks) - 1, 0)
    while known < unknown:
        middle = (known + unknown) // 2
        if table[blocks[middle]] >= 0:
            known = middle + 1
        else:
            unknown = middle
    return known
