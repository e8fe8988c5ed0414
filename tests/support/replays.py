"""Traces for tests of the replay: made from prompts, or the real ones beside the checkout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from simulator.traces.record import LoadedTrace, TraceRequest

BLOCK_TOKENS = 4


def trace_of(prompts: Sequence[tuple[Sequence[int], int]], *, gap_s: float = 1.0) -> LoadedTrace:
    """A trace from prompts: their blocks as symbols, and how many tokens the last block lacks.

    A block's id names its whole prefix and is numbered by first sight, as a loader does it.
    """
    ids: dict[tuple[int, ...], int] = {}
    requests = []
    for ordinal, (symbols, missing) in enumerate(prompts):
        path = [*symbols[:-1], symbols[-1] * BLOCK_TOKENS + missing] if symbols else []
        blocks = [ids.setdefault(tuple(path[: end + 1]), len(ids)) for end in range(len(path))]
        requests.append(
            TraceRequest(
                input_len=max(1, len(blocks) * BLOCK_TOKENS - missing),
                output_len=1,
                block_tokens=BLOCK_TOKENS,
                blocks=np.array(blocks, np.int32),
                arrival_s=ordinal * gap_s,
            )
        )
    return LoadedTrace(
        name="made.jsonl",
        digest="0" * 64,
        format="made",
        block_tokens=BLOCK_TOKENS,
        requests=requests,
        unique_blocks=len(ids),
    )


#: Traces of up to 40 prompts that share prefixes, each with at least one block.
made_traces = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=7), st.integers(0, BLOCK_TOKENS - 1)),
    min_size=1,
    max_size=40,
).map(trace_of)


def real_trace_path(name: str) -> str:
    """The path of a real trace; skips the test where the traces are not there."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "traces"
    folder = Path(os.environ.get("KVSTORE_TRACES") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real traces: neither KVSTORE_TRACES nor {beside}")
    return str(folder / name)
