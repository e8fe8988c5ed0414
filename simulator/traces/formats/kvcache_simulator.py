"""kvcache-simulator: prompts by prefix hashes without times; each row says its block size and each block its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import BlockRule, ReadContext, TraceFormat, hashed_prompt
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["KVCACHE_SIMULATOR"]

_KNOWN: Final = ("block_size", "hash_ids", "input_length", "output_length", "block_tokens")


def _recognises(row: Mapping[str, object]) -> bool:
    return {"block_size", "hash_ids", "input_length"} <= row.keys() and "timestamp" not in row


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    for row in rows:
        prompt = hashed_prompt(row, context, BlockRule.EITHER)
        if row.has("block_tokens"):
            _check_block_tokens(row, prompt.input_len, context)
        yield TraceRequest(
            input_len=prompt.input_len,
            output_len=row.count_or("output_length", 0),
            block_tokens=context.block_tokens,
            blocks=prompt.ids,
            extra=row.rest(*_KNOWN),
        )


def _check_block_tokens(row: Row, input_len: int, context: ReadContext) -> None:
    """The list repeats what length and block size say: all blocks full but for a started last one."""
    sizes = row.token_ids("block_tokens")
    ids = len(row.ids("hash_ids"))
    full = bool((sizes[:-1] == context.block_tokens).all() and (sizes <= context.block_tokens).all())
    if context.repair or (full and len(sizes) == ids and int(sizes.sum()) <= input_len):
        return
    raise row.error("block_tokens", f"must be {ids} sizes that add up to the prompt, full but for the last")


KVCACHE_SIMULATOR: Final = TraceFormat(
    name="kvcache-simulator",
    summary="prompts by prefix hashes, without times (kvcache-simulator)",
    time_unit="none",
    block_rule=BlockRule.EITHER,
    block_tokens=64,
    recognises=_recognises,
    read=_read,
)
