"""One manager in one process: reads a case a line from standard input, answers a line of figures.

    python worker.py MANAGER SEED
    {"case": "cached", "arguments": {"token_count": 1024, "turns": 1}}
    {"cells": {"cached/1-turns/1k/numpy": {...}}}

Peers print what they like while they are imported; standard output is therefore set aside for the answers.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from manager import MANAGERS, ManagerSpec
from measure import Bench, Figures

__all__ = ["main"]


def main() -> None:
    """Serve cases until standard input ends."""
    answers = _set_output_aside()
    spec = MANAGERS[sys.argv[1]]
    bench = Bench(spec, int(sys.argv[2]))
    _answer(answers, {"versions": _versions(spec)})
    cases: dict[str, Callable[..., Iterator[tuple[str, Figures]]]] = {
        "requests": bench.requests,
        "cached": bench.cached,
        "half": bench.half,
        "miss": bench.miss,
        "new": bench.new,
        "full_pool": bench.full_pool,
        "evict": bench.evict,
        "trace": bench.trace,
    }
    for line in sys.stdin:
        asked = json.loads(line)
        _answer(answers, {"cells": dict(cases[asked["case"]](**asked["arguments"]))})


def _set_output_aside() -> TextIO:
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _answer(answers: TextIO, body: dict[str, object]) -> None:
    print(json.dumps(body), file=answers, flush=True)


def _versions(spec: ManagerSpec) -> dict[str, str]:
    found = {"python": platform.python_version(), "numpy": importlib.metadata.version("numpy")}
    if spec.package is not None:
        return found | {name: importlib.metadata.version(name) for name in (spec.package, "torch")}
    from kvstore import __version__

    return found | {"kvstore": __version__}


if __name__ == "__main__":
    main()
