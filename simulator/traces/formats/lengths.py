"""CSV files of prompt and output lengths: Splitwise's and Vidur's, the latter with or without arrival times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, Clock, ReadContext, TraceFormat
from simulator.traces.record import TraceRequest
from simulator.traces.rows import Row

__all__ = ["SPLITWISE", "VIDUR"]


def _is_splitwise(row: Mapping[str, object]) -> bool:
    return {"arrival_timestamp", "prompt_size", "token_size"} <= row.keys()


def _is_vidur(row: Mapping[str, object]) -> bool:
    return {"num_prefill_tokens", "num_decode_tokens"} <= row.keys()


def _reader(
    *, arrival: str, prompt: str, output: str
) -> Callable[[Iterator[Row], ReadContext], Iterator[TraceRequest]]:
    def read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
        clock = Clock(arrival, per_second=1)
        for row in rows:
            yield TraceRequest(
                input_len=row.count(prompt),
                output_len=row.count(output),
                block_tokens=context.block_tokens,
                blocks=NO_BLOCKS,
                arrival_s=clock.seconds(row),
                extra=row.rest(arrival, prompt, output),
            )

    return read


SPLITWISE: Final = TraceFormat(
    name="splitwise",
    summary="lengths and arrivals (Splitwise simulator)",
    time_unit="s",
    block_rule=BlockRule.NONE,
    block_tokens=16,
    recognises=_is_splitwise,
    read=_reader(arrival="arrival_timestamp", prompt="prompt_size", output="token_size"),
)

VIDUR: Final = TraceFormat(
    name="vidur",
    summary="lengths, with or without arrivals (Vidur)",
    time_unit="s or none",
    block_rule=BlockRule.NONE,
    block_tokens=16,
    recognises=_is_vidur,
    read=_reader(arrival="arrived_at", prompt="num_prefill_tokens", output="num_decode_tokens"),
)
