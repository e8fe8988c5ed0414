"""What a reader raises can be passed on."""

from __future__ import annotations

import copy

import pytest

from simulator.errors import TraceError


@pytest.mark.parametrize(
    "error",
    [
        TraceError("holds no rows", source="-"),
        TraceError("is missing", source="a.jsonl", line=3, field="hash_ids"),
    ],
)
def test_an_error_comes_whole_out_of_another_process(error: TraceError) -> None:
    other = copy.copy(error)  # by ``__reduce__``, as a process pool does
    assert type(other) is TraceError
    assert str(other) == str(error)
    assert vars(other) == vars(error)
