"""The oracle of the offline optimum, against a search through the rest of the trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.future import NEVER, Future
from simulator.traces.record import TraceRequest


def requests_of(prompts: list[list[int]]) -> list[TraceRequest]:
    ids: dict[tuple[int, ...], int] = {}
    requests = []
    for symbols in prompts:
        blocks = [ids.setdefault(tuple(symbols[: end + 1]), len(ids)) for end in range(len(symbols))]
        requests.append(
            TraceRequest(
                input_len=16 * len(blocks), output_len=1, block_tokens=16, blocks=np.array(blocks, dtype=np.int32)
            )
        )
    return requests


traces = st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=30).map(requests_of)


@given(traces)
def test_segments_name_the_next_use_of_every_block(requests: list[TraceRequest]) -> None:
    future = Future(requests)
    for ordinal, item in enumerate(requests):
        ends, next_uses = future.segments(ordinal)
        told = [next_use for begin, end, next_use in zip([0, *ends], ends, next_uses, strict=False)
                for _ in range(begin, end)]  # fmt: skip
        expected = [
            next((later for later in range(ordinal + 1, len(requests)) if block in requests[later].blocks), NEVER)
            for block in item.blocks
        ]
        assert told == expected


@given(traces)
def test_segments_are_as_few_as_can_be(requests: list[TraceRequest]) -> None:
    future = Future(requests)
    for ordinal in range(len(requests)):
        ends, next_uses = future.segments(ordinal)
        assert len(ends) == len(next_uses)
        assert ends == sorted(set(ends))
        assert next_uses == sorted(set(next_uses))


def test_a_chat_that_goes_on_is_one_segment_and_a_branch_is_two() -> None:
    future = Future(requests_of([[0, 1], [0, 1, 1], [0, 2], [3]]))
    assert future.segments(0) == ([2], [1])
    assert future.segments(1) == ([1, 3], [2, NEVER])
    assert future.segments(2) == ([2], [NEVER])
    assert future.segments(3) == ([1], [NEVER])


def test_a_request_without_blocks_has_no_segments() -> None:
    assert Future(requests_of([[], [0]])).segments(0) == ([], [])


@pytest.mark.parametrize("ordinal", [-1, 2])
def test_a_request_outside_the_trace_is_refused(ordinal: int) -> None:
    with pytest.raises(IndexError, match="trace of 2"):
        Future(requests_of([[0], [0]])).segments(ordinal)
