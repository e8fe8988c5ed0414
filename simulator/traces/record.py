"""The one shape that every trace takes once it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["After", "LoadedTrace", "TraceRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Closed loop: a request starts when an earlier one has ended and its user has thought."""

    request: int  #: turn of the earlier request in its session; while a file is read also -1, the one before
    think_s: float  #: seconds between that request's end and this one's start


@dataclass(slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace.

    Shapes:
        blocks: [block count] integers in prefix order; an id names the whole prefix up to its block's end
        tokens: [input_len] int32, or None where the trace has no token ids
    """

    input_len: int  #: prompt tokens
    output_len: int  #: generated tokens
    block_tokens: int  #: tokens that one id of ``blocks`` stands for
    blocks: NDArray[np.integer]
    #: Seconds from the start of the trace, or, while a file is read, of the session; None in a closed loop or where no
    #: one wrote down a time.
    arrival_s: float | None = None
    after: After | None = None
    session: int | str | None = None
    turn: int | None = None
    tenant: str | None = None
    model: str | None = None
    tokens: NDArray[np.int32] | None = None
    measured: Mapping[str, float] = field(
        default_factory=dict
    )  #: ttft_s, e2e_s, cached_tokens where the source has them
    extra: Mapping[str, object] = field(default_factory=dict)  #: keys of the row that have no place above


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTrace:
    """A trace ready to run: requests in order of arrival, ids dense.

    ``blocks`` of every request are int32 in ``[0, unique_blocks)``, numbered by first sight in order of arrival, so
    that tables indexed by block are arrays. Arrays may share memory: read them only.
    """

    name: str  #: the path's last part, or ``workload:NAME?param=value``
    digest: str  #: SHA-256 of what was read, hex
    format: str
    block_tokens: int
    requests: list[TraceRequest]
    unique_blocks: int
    seed: int = 0  #: of everything that was drawn
    warnings: tuple[str, ...] = ()
