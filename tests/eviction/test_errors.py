"""What this package raises can be passed on."""

from __future__ import annotations

import copy

import pytest

from eviction.errors import UnknownPolicyError


@pytest.mark.parametrize(
    "error",
    [
        UnknownPolicyError("lrv", known=["fifo", "lru"]),
        UnknownPolicyError("optimal", known=("fifo", "lru"), reason="needs the future"),
    ],
)
def test_an_error_comes_whole_out_of_another_process(error: UnknownPolicyError) -> None:
    other = copy.copy(error)  # by ``__reduce__``, as a process pool does
    assert type(other) is UnknownPolicyError
    assert str(other) == str(error)
    assert vars(other) == vars(error)
