"""Azure LLM inference traces: when requests came and how long they were. Dates have seven decimals of a second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, Clock, ReadContext, TraceFormat
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["AZURE"]

_KNOWN: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TICKS_PER_SECOND: Final = 10**7
_SECOND_CHARS: Final = len("2023-11-16 18:17:03")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _recognises(row: Mapping[str, object]) -> bool:
    return {"TIMESTAMP", "ContextTokens"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    clock = Clock("TIMESTAMP", per_second=_TICKS_PER_SECOND, absolute=True)
    for row in rows:
        yield TraceRequest(
            input_len=row.count("ContextTokens"),
            output_len=row.count("GeneratedTokens"),
            block_tokens=context.block_tokens,
            blocks=NO_BLOCKS,
            arrival_s=clock.since_origin(_ticks(row)) if row.has("TIMESTAMP") else None,
            extra=row.rest(*_KNOWN),
        )


def _ticks(row: Row) -> int:
    """Tenths of microseconds since 1970. ``datetime`` keeps six decimals, so the fraction is read apart."""
    text = row.text("TIMESTAMP").strip()
    second, rest = text[:_SECOND_CHARS], text[_SECOND_CHARS:]
    fraction = ""
    if rest.startswith("."):
        zone_at = next((at for at, char in enumerate(rest) if char in "+-Z"), len(rest))
        fraction, rest = rest[1:zone_at], rest[zone_at:]
    try:
        moment = datetime.fromisoformat(second + rest)
        if fraction and not (fraction.isascii() and fraction.isdecimal()):
            raise ValueError
    except ValueError:
        raise row.error("TIMESTAMP", f"must be a date like 2023-11-16 18:17:03.9799600, got {text!r}") from None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return since // timedelta(seconds=1) * _TICKS_PER_SECOND + int(fraction[:7].ljust(7, "0"))


AZURE: Final = TraceFormat(
    name="azure",
    summary="production lengths and arrivals (Azure LLM inference 2023 to 2025)",
    time_unit="date",
    block_rule=BlockRule.NONE,
    block_tokens=16,
    recognises=_recognises,
    read=_read,
)
