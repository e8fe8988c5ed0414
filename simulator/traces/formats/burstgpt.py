"""BurstGPT: lengths and arrivals of ChatGPT and GPT-4 users; newer files name sessions and elapsed times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, Clock, ReadContext, TraceFormat
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["BURSTGPT"]

_KNOWN: Final = ("Timestamp", "Model", "Request tokens", "Response tokens", "Session ID", "Elapsed time")


def _recognises(row: Mapping[str, object]) -> bool:
    return {"Timestamp", "Request tokens", "Response tokens"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    # Not an epoch, but files begin at any second of the months of collection.
    clock = Clock("Timestamp", per_second=1, absolute=True)
    for row in rows:
        yield TraceRequest(
            input_len=row.count("Request tokens"),
            output_len=row.count("Response tokens"),
            block_tokens=context.block_tokens,
            blocks=NO_BLOCKS,
            arrival_s=clock.seconds(row),
            session=row.label("Session ID"),
            model=row.text_or_none("Model"),
            measured={"e2e_s": row.number("Elapsed time")} if row.has("Elapsed time") else {},
            extra=row.rest(*_KNOWN),
        )


BURSTGPT: Final = TraceFormat(
    name="burstgpt",
    summary="lengths and arrivals of ChatGPT and GPT-4 users (BurstGPT)",
    time_unit="s",
    block_rule=BlockRule.NONE,
    block_tokens=16,
    recognises=_recognises,
    read=_read,
)
