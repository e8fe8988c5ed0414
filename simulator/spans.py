"""How long a stretch of time is asked to be: ``90m``, ``2h``."""

from __future__ import annotations

import re

from simulator.errors import SimulatorError

__all__ = ["SpanError", "parse_span_s"]

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class SpanError(SimulatorError, ValueError):
    """A span of time cannot be read."""


def parse_span_s(text: str) -> float:
    """Seconds of a span such as ``3600``, ``90m``, ``2h`` or ``1.5d``.

    Raises:
        SpanError: it is not such a span.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise SpanError(f"span {text!r}: not a span of time; write seconds such as 3600, or 90m, 2h or 1.5d")
    return float(match[1]) * _SECONDS[match[2]]
