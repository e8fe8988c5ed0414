"""Mooncake: production chat and its relatives, one request a row, a block id per 512 tokens.

``mooncake`` is the published form; its stamps are milliseconds from the start. ``mooncake-sessions`` is the multi-turn
form of aiperf and DynoSim: rows of one ``session_id`` are its turns, the first carries ``timestamp``, the later ones
``delay``, the milliseconds between the end of the turn before and this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import BlockRule, Clock, ReadContext, TraceFormat, hashed_prompt
from simulator.traces.record import After, TraceRequest
from simulator.traces.rows import Row

__all__ = ["MOONCAKE", "MOONCAKE_SESSIONS"]

_BLOCK_TOKENS: Final = 512
_KNOWN: Final = ("timestamp", "delay", "session_id", "input_length", "output_length", "hash_ids", "block_size")


def _is_mooncake(row: Mapping[str, object]) -> bool:
    hashed = {"input_length", "hash_ids"} <= row.keys() and not {"session_id", "chat_id"} & row.keys()
    # The first time may be missing; without any time, a block size is the mark of kvcache-simulator.
    return hashed and ("timestamp" in row or "block_size" not in row)


def _is_sessions(row: Mapping[str, object]) -> bool:
    return {"session_id", "input_length", "hash_ids"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    clock = Clock("timestamp", per_second=1000)
    for row in rows:
        prompt = hashed_prompt(row, context, BlockRule.CEIL)
        yield TraceRequest(
            input_len=prompt.input_len,
            output_len=row.count_or("output_length", 0),
            block_tokens=context.block_tokens,
            blocks=prompt.ids,
            arrival_s=clock.seconds(row),
            after=After(request=-1, think_s=row.number("delay") / 1000) if row.has("delay") else None,
            session=row.label("session_id"),
            extra=row.rest(*_KNOWN),
        )


MOONCAKE: Final = TraceFormat(
    name="mooncake",
    summary="production chat by prefix hashes (Mooncake, FAST 2025)",
    time_unit="ms",
    block_rule=BlockRule.CEIL,
    block_tokens=_BLOCK_TOKENS,
    recognises=_is_mooncake,
    read=_read,
)

MOONCAKE_SESSIONS: Final = TraceFormat(
    name="mooncake-sessions",
    summary="the same with turns of sessions and delays between them (aiperf, DynoSim)",
    time_unit="ms",
    block_rule=BlockRule.CEIL,
    block_tokens=_BLOCK_TOKENS,
    recognises=_is_sessions,
    read=_read,
)
