"""What does one hot operation cost, by itself, over sizes? One operation a file; ``python -m benchmarks.micro``."""

from __future__ import annotations

__all__ = ["NAMES"]

#: The files to run, in this order.
NAMES = ("match", "publish", "victims", "decode", "names", "pages", "memory", "replay")
