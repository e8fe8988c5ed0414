"""What a trace format is, and what all readers of formats share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["NO_BLOCKS", "BlockRule", "Clock", "HashedPrompt", "ReadContext", "TraceFormat", "hashed_prompt"]

#: The blocks of a request whose ids are unknown, or not derived yet.
NO_BLOCKS: NDArray[np.int32] = np.empty(0, np.int32)
NO_BLOCKS.flags.writeable = False


class BlockRule(Enum):
    """Which blocks of a prompt have an id in the file."""

    CEIL = "ceil"  #: every started block, so the last may be partial
    FLOOR = "floor"  #: full blocks only
    EITHER = "in row"  #: full blocks, and the started last one or not
    TOKENS = "from tokens"  #: none: ids are derived from the tokens, for any block size
    NONE = "none"  #: none: the file has lengths only


@dataclass(slots=True, kw_only=True)
class ReadContext:
    """What a reader of one format needs to know besides the rows, and what it reports back."""

    block_tokens: int  #: tokens that one id of the file stands for
    seed: int = 0  #: for formats that draw their requests
    whole: bool = False  #: the caller will keep every request, so their number must be bounded
    repair: bool = False  #: mend rows whose ids do not cover their prompt instead of refusing them
    notes: Counter[str] = field(
        default_factory=Counter
    )  #: what was odd and how often; ``{count}`` stands for the number


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """One kind of trace file.

    ``read`` yields requests with what the file says and nothing more: ids as in the file, requests with tokens without
    blocks, ``arrival_s`` None where a stamp is missing, ``after.request`` -1 for the one before in the session.
    """

    name: str
    summary: str  #: one line for a list of formats
    time_unit: str
    block_rule: BlockRule
    block_tokens: int  #: tokens of one id; for other rules the block size that is used unless asked otherwise
    recognises: Callable[[Mapping[str, object]], bool]  #: whether a first row is of this format
    read: Callable[[Iterator[Row], ReadContext], Iterator[TraceRequest]]
    session_clock: bool = False  #: times count from the start of the session
    counts_bytes: bool = False  #: what it calls a token is a UTF-8 byte
    local_ids: bool = False  #: equal ids of two sessions are two prefixes
    link: Callable[[Sequence[TraceRequest]], None] | None = None  #: tell sessions once all requests are known


@final
class Clock:
    """Seconds from stamps.

    Args:
        field: the row's field.
        per_second: stamps in one second.
        absolute: stamps count from an epoch; seconds then count from the first stamp that is there. The difference is
            taken before the division: a float cannot hold microseconds since 1970 to the microsecond.
    """

    def __init__(self, field: str, *, per_second: int, absolute: bool = False) -> None:
        self._field = field
        self._per_second = per_second
        self._origin: int | float | None = None if absolute else 0

    def seconds(self, row: Row) -> float | None:
        """When the row's request arrived; None where the row does not say."""
        return self.since_origin(row.stamp(self._field))

    def since_origin(self, stamp: int | float | None) -> float | None:
        """Seconds of a stamp that was read otherwise."""
        if stamp is None:
            return None
        if self._origin is None:
            self._origin = stamp
        return (stamp - self._origin) / self._per_second


class HashedPrompt(NamedTuple):
    """A prompt by the ids of its blocks."""

    input_len: int
    ids: NDArray[np.integer]


def hashed_prompt(
    row: Row, context: ReadContext, rule: BlockRule, *, length: str = "input_length", ids: str = "hash_ids"
) -> HashedPrompt:
    """Read a prompt's length and ids, and check one against the other.

    In repair mode ids beyond the prompt's end are cut off, and a prompt longer than its ids is cut to what they cover.

    Raises:
        TraceError: the number of ids does not fit the length, or the row has a block size of its own.
    """
    input_len, blocks, size = row.count(length), row.ids(ids), context.block_tokens
    if row.count_or("block_size", size) != size:
        raise row.error("block_size", f"must stay {size} through the file, got {row.count('block_size')}")
    full, started = input_len // size, -(-input_len // size)
    fewest = started if rule is BlockRule.CEIL else full
    most = full if rule is BlockRule.FLOOR else started
    if fewest <= len(blocks) <= most:
        return HashedPrompt(input_len, blocks)
    if not context.repair:
        want = f"{fewest}" if fewest == most else f"{fewest} or {most}"
        raise row.error(ids, f"{length} {input_len} at {size} tokens a block needs {want} ids, got {len(blocks)}")
    if len(blocks) > most:
        context.notes["rows with ids beyond the prompt's end, cut off: {count}"] += 1
        return HashedPrompt(input_len, blocks[:most])
    context.notes["rows with a prompt longer than their ids, cut to what the ids cover: {count}"] += 1
    return HashedPrompt(len(blocks) * size, blocks)
