"""LMCache's multi-agent web research, its text replaced by hashes: a "token" is a UTF-8 byte, a block 64 of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import BlockRule, Clock, ReadContext, TraceFormat, hashed_prompt
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["MAGAGENT"]

#: In milliseconds from a start, as mooncake's sessions count, this would be the year 5138; in microseconds it is 1973.
_EPOCH_US_MIN: Final = 10**14

_KNOWN: Final = ("timestamp", "session_id", "input_length", "output_length", "hash_ids")


def _recognises(row: Mapping[str, object]) -> bool:
    stamp = row.get("timestamp")
    is_epoch = isinstance(stamp, int) and stamp >= _EPOCH_US_MIN
    return is_epoch and {"session_id", "input_length", "hash_ids"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    clock = Clock("timestamp", per_second=1_000_000, absolute=True)
    for row in rows:
        prompt = hashed_prompt(row, context, BlockRule.FLOOR)
        yield TraceRequest(
            input_len=prompt.input_len,
            output_len=row.count("output_length"),
            block_tokens=context.block_tokens,
            blocks=prompt.ids,
            arrival_s=clock.seconds(row),
            session=row.label("session_id"),
            extra=row.rest(*_KNOWN),
        )


MAGAGENT: Final = TraceFormat(
    name="magagent",
    summary="multi-agent web research by hashes of 64 bytes (LMCache)",
    time_unit="µs",
    block_rule=BlockRule.FLOOR,
    block_tokens=64,
    recognises=_recognises,
    read=_read,
    counts_bytes=True,
)
