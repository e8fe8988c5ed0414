"""ShareGPT: whole conversations as text. Each answer of the model is one request, with all before it as its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, ReadContext, TraceFormat
from simulator.traces.formats.text import TEXT_BLOCK_TOKENS, byte_tokens, message_text, render_chat
from simulator.traces.record import After, TraceRequest
from simulator.traces.rows import Row

__all__ = ["SHAREGPT"]

_KNOWN: Final = ("id", "conversations")
_MODEL_ROLES: Final = ("gpt", "chatgpt", "bing", "bard", "assistant", "model")


def _recognises(row: Mapping[str, object]) -> bool:
    return "conversations" in row


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    for number, row in enumerate(rows):
        session = row.label("id") if row.has("id") else number
        turns = [(turn.text("from"), message_text(turn, "value")) for turn in row.inner_rows("conversations")]
        answers = [place for place, (role, _) in enumerate(turns) if role in _MODEL_ROLES and place]
        if not answers:
            context.notes["conversations without an answer, left out: {count}"] += 1
        for index, place in enumerate(answers):
            role, answer = turns[place]
            tokens, output_tokens = byte_tokens(render_chat(turns[:place], next_role=role)), byte_tokens(answer)
            yield TraceRequest(
                input_len=len(tokens),
                output_len=len(output_tokens),
                block_tokens=context.block_tokens,
                blocks=NO_BLOCKS,
                after=After(request=index - 1, think_s=0.0) if index else None,
                session=session,
                turn=index,
                tokens=tokens,
                extra={**row.rest(*_KNOWN), "output_tokens": output_tokens},
            )


SHAREGPT: Final = TraceFormat(
    name="sharegpt",
    summary="whole conversations as text, a token is a byte (ShareGPT)",
    time_unit="none",
    block_rule=BlockRule.TOKENS,
    block_tokens=TEXT_BLOCK_TOKENS,
    recognises=_recognises,
    read=_read,
    counts_bytes=True,
)
