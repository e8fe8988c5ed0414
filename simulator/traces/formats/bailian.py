"""Alibaba Cloud Bailian (Qwen): production chat, a block id per 16 tokens, turns linked by ``parent_chat_id``.

The publisher hashes each block by itself, so an id may name a block's own tokens rather than its whole prefix. Loading
notices and refuses such a file; ``prefix="rechain"`` then names blocks by their path.

Source: "KVCache Cache in the Wild", USENIX ATC 2025; the README of qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from simulator.traces.formats.format import BlockRule, Clock, ReadContext, TraceFormat, hashed_prompt
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["BAILIAN"]

_KNOWN: Final = ("timestamp", "input_length", "output_length", "hash_ids", "turn")


def _recognises(row: Mapping[str, object]) -> bool:
    return {"chat_id", "parent_chat_id", "input_length"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    clock = Clock("timestamp", per_second=1)
    for row in rows:
        prompt = hashed_prompt(row, context, BlockRule.CEIL)
        row.label("chat_id")
        row.label("parent_chat_id")
        yield TraceRequest(
            input_len=prompt.input_len,
            output_len=row.count_or("output_length", 0),
            block_tokens=context.block_tokens,
            blocks=prompt.ids,
            arrival_s=clock.seconds(row),
            turn=row.count("turn") if row.has("turn") else None,
            extra=row.rest(*_KNOWN),
        )


def _link(requests: Sequence[TraceRequest]) -> None:
    """A chat's session is that of its parent; a root, or a chat whose parent is not in the file, begins one."""
    sessions: dict[object, object] = {}
    for request in requests:
        chat, parent = request.extra.get("chat_id"), request.extra.get("parent_chat_id")
        session = sessions.get(parent, chat)
        sessions[chat] = session
        if isinstance(session, int | str):
            request.session = session


BAILIAN: Final = TraceFormat(
    name="bailian",
    summary="production chat and API traffic by block hashes (Alibaba Bailian, Qwen)",
    time_unit="s",
    block_rule=BlockRule.CEIL,
    block_tokens=16,
    recognises=_recognises,
    read=_read,
    link=_link,
)
