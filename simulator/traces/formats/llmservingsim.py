"""LLMServingSim: requests with token ids, and agent sessions whose calls wait for tools. One file may hold both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, Clock, ReadContext, TraceFormat
from simulator.traces.record import After, TraceRequest
from simulator.traces.rows import Row

__all__ = ["LLMSERVINGSIM"]

_KNOWN: Final = ("input_toks", "output_toks", "arrival_time_ns", "input_tok_ids", "output_tok_ids", "tool_duration_ns")
_SESSION_KNOWN: Final = ("session_id", "arrival_time_ns", "sub_requests")
_NS: Final = 10**9


def _recognises(row: Mapping[str, object]) -> bool:
    return "sub_requests" in row or {"input_toks", "output_toks"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    clock = Clock("arrival_time_ns", per_second=_NS)
    for row in rows:
        if row.has("sub_requests"):
            yield from _session(row, clock, context)
        else:
            request = _request(row, context)
            request.arrival_s = clock.seconds(row)
            yield request


def _session(row: Row, clock: Clock, context: ReadContext) -> Iterator[TraceRequest]:
    """The calls of one agent: each waits for the one before and then for that one's tool."""
    session, facts = row.label("session_id"), row.rest(*_SESSION_KNOWN)
    tool_s = 0.0
    for turn, inner in enumerate(row.inner_rows("sub_requests")):
        request = _request(inner, context)
        request.session, request.turn = session, turn
        if facts:
            request.extra = {**request.extra, "session": facts}
        if turn == 0:
            request.arrival_s = clock.seconds(row)
        else:
            request.after = After(request=-1, think_s=tool_s)
        tool_s = inner.number("tool_duration_ns") / _NS if inner.has("tool_duration_ns") else 0.0
        yield request


def _request(row: Row, context: ReadContext) -> TraceRequest:
    input_len, tokens = row.count("input_toks"), None
    if row.has("input_tok_ids"):
        tokens = row.token_ids("input_tok_ids")
        if len(tokens) != input_len:
            if not context.repair:
                raise row.error("input_tok_ids", f"input_toks is {input_len}, but there are {len(tokens)} ids")
            context.notes["rows whose length differs from their tokens, counted by the tokens: {count}"] += 1
            input_len = len(tokens)
    extra = row.rest(*_KNOWN)
    if row.has("output_tok_ids"):
        extra["output_tokens"] = row.token_ids("output_tok_ids")
    return TraceRequest(
        input_len=input_len,
        output_len=row.count("output_toks"),
        block_tokens=context.block_tokens,
        blocks=NO_BLOCKS,
        tokens=tokens,
        extra=extra,
    )


LLMSERVINGSIM: Final = TraceFormat(
    name="llmservingsim",
    summary="requests with token ids, and agent sessions (LLMServingSim)",
    time_unit="ns",
    block_rule=BlockRule.TOKENS,
    block_tokens=16,
    recognises=_recognises,
    read=_read,
)
