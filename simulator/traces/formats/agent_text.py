"""LMCache agent traces: whole prompts and replies as text, calls of one session share ``session_id``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, Clock, ReadContext, TraceFormat
from simulator.traces.formats.text import TEXT_BLOCK_TOKENS, byte_tokens
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["AGENT_TEXT"]

_KNOWN: Final = ("timestamp", "input", "output", "session_id")


def _recognises(row: Mapping[str, object]) -> bool:
    return {"input", "output", "session_id"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    clock = Clock("timestamp", per_second=1_000_000, absolute=True)
    for row in rows:
        tokens = byte_tokens(row.text("input"))
        output_tokens = byte_tokens(row.text("output"))
        yield TraceRequest(
            input_len=len(tokens),
            output_len=len(output_tokens),
            block_tokens=context.block_tokens,
            blocks=NO_BLOCKS,
            arrival_s=clock.seconds(row),
            session=row.label("session_id"),
            tokens=tokens,
            extra={**row.rest(*_KNOWN), "output_tokens": output_tokens},
        )


AGENT_TEXT: Final = TraceFormat(
    name="agent-text",
    summary="agent calls as text, a token is a byte (LMCache agent traces)",
    time_unit="µs",
    block_rule=BlockRule.TOKENS,
    block_tokens=TEXT_BLOCK_TOKENS,
    recognises=_recognises,
    read=_read,
    counts_bytes=True,
)
