"""What does a run leave behind? A JSON file with all cells and what is needed to judge them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.micro.cell import Cell

__all__ = ["Finding", "Origin", "write_report"]

_DIGITS = 4  # of a figure: more is noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one file found."""

    name: str
    question: str
    unit: str
    yardstick: str
    cells: tuple[Cell, ...]
    skipped: str | None  #: why it did not run

    def to_json(self) -> str:
        """A cell a line, so that two runs can be compared by eye."""
        fields = dataclasses.asdict(self)
        cells = ",\n   ".join(json.dumps(_rounded(cell), ensure_ascii=False) for cell in fields.pop("cells"))
        head = json.dumps(fields, ensure_ascii=False)[:-1]
        return f'{head}, "cells": [\n   {cells}\n  ]}}' if cells else f'{head}, "cells": []}}'

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "cells": tuple(Cell(**cell) for cell in fields["cells"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where and when a run was made."""

    created: str
    commit: str
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    seed: int
    wall_seconds: float


def write_report(path: Path, origin: Origin, findings: Sequence[Finding]) -> None:
    """Write a run as JSON."""
    head = json.dumps(dataclasses.asdict(origin), indent=1, ensure_ascii=False)[:-2]
    found = ",\n  ".join(finding.to_json() for finding in findings)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "benchmarks": [\n  {found}\n ]\n}}\n', encoding="utf-8")


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(field) for name, field in value.items()}
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
