"""OpenAI chat requests, plain or in the batch form with a ``body``: each row is one request, without a time.

A last message of the assistant is the answer; without one, ``max_completion_tokens`` or ``max_tokens`` is its length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, ReadContext, TraceFormat
from simulator.traces.formats.text import TEXT_BLOCK_TOKENS, byte_tokens, message_text, render_chat
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["OPENAI_CHAT"]

_KNOWN: Final = ("messages", "model", "user", "body")


def _recognises(row: Mapping[str, object]) -> bool:
    body = row.get("body", row)
    return isinstance(body, dict) and "messages" in body


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    for row in rows:
        body = row.inner("body") if row.has("body") else row
        messages = [_message(message) for message in body.inner_rows("messages")]
        answer = messages.pop()[1] if messages and messages[-1][0] == "assistant" else None
        tokens = byte_tokens(render_chat(messages, next_role="assistant"))
        extra = {**row.rest(*_KNOWN), **body.rest(*_KNOWN)}
        if answer is not None:
            extra["output_tokens"] = byte_tokens(answer)
        limit = body.count_or("max_completion_tokens", body.count_or("max_tokens", 0))
        yield TraceRequest(
            input_len=len(tokens),
            output_len=limit if answer is None else len(answer.encode("utf-8", "surrogatepass")),
            block_tokens=context.block_tokens,
            blocks=NO_BLOCKS,
            tenant=body.text_or_none("user"),
            model=body.text_or_none("model"),
            tokens=tokens,
            extra=extra,
        )


def _message(row: Row) -> tuple[str, str]:
    """Role and text; tool calls are part of the text, spelled as JSON."""
    text = message_text(row, "content")
    if row.has("tool_calls"):
        calls = [call.values for call in row.inner_rows("tool_calls")]
        text += json.dumps(calls, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return row.text("role"), text


OPENAI_CHAT: Final = TraceFormat(
    name="openai-chat",
    summary="chat completion requests as text, a token is a byte (OpenAI)",
    time_unit="none",
    block_rule=BlockRule.TOKENS,
    block_tokens=TEXT_BLOCK_TOKENS,
    recognises=_recognises,
    read=_read,
    counts_bytes=True,
)
