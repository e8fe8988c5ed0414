"""What did a run find? Reads its JSON and compares managers.

On a noisy machine the better of the rounds flatters: whatever slows a peer down in one round looks like our merit. So
every ratio comes in two forms, and tables show the second.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cells import OURS
from rounds import Failure, Measurement

__all__ = ["Clock", "Ratio", "Results", "cpu_us", "figure", "wall_us"]

#: Takes one number out of a cell's figures.
Clock = Callable[[dict[str, Any]], float]


class Ratio(NamedTuple):
    """Two costs compared."""

    better_round: float  #: both taken in the same round; the round that is better for us
    of_lowest: float  #: each from the round in which it was lowest: noise only ever adds


def cpu_us(figures: dict[str, Any]) -> float:
    """Median CPU time of one call."""
    return float(figures["cpu_us"]["median"])


def wall_us(figures: dict[str, Any]) -> float:
    """Median wall time of one call."""
    return float(figures["wall_us"]["median"])


def figure(name: str) -> Clock:
    """A plain number of the cell."""
    return lambda figures: float(figures[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All measurements of a run, with what is needed to judge them."""

    created: str
    commit: str
    machine: dict[str, Any]
    versions: dict[str, str]
    seed: int
    page_tokens: int
    rounds: int
    skipped: dict[str, str]  #: group of cases → why it was left out
    failures: tuple[Failure, ...]
    measurements: tuple[Measurement, ...]

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what ``write`` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["failures"] = tuple(Failure(**failure) for failure in fields["failures"])
        fields["measurements"] = tuple(Measurement(**measurement) for measurement in fields["measurements"])
        return cls(**fields)

    def write(self, path: Path) -> None:
        """Write as JSON, a measurement a line, so that two runs can be compared by eye."""
        fields = dataclasses.asdict(self)
        rows = ",\n  ".join(json.dumps(row) for row in fields.pop("measurements"))
        head = json.dumps(fields, indent=1)[:-2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{head},\n "measurements": [\n  {rows}\n ]\n}}\n', encoding="utf-8")

    def values(self, manager: str, cell: str, clock: Clock) -> dict[int, float]:
        """Round → value; empty where it was not measured."""
        return {
            found.round: clock(found.figures)
            for found in self.measurements
            if found.manager == manager and found.cell == cell
        }

    def lowest(self, manager: str, cell: str, clock: Clock) -> float | None:
        """The lower of the rounds."""
        return min(self.values(manager, cell, clock).values(), default=None)

    def advantage(self, cell: str, peers: Sequence[str], clock: Clock) -> Ratio | None:
        """How many times our cost the fastest of ``peers`` has; None where one of them or ours was not measured."""
        theirs = [self.values(peer, cell, clock) for peer in peers]
        if not all(theirs):
            return None
        rounds = set[int].intersection(*(set(values) for values in theirs))
        return _ratio(
            {number: min(values[number] for values in theirs) for number in rounds}, self.values(OURS, cell, clock), max
        )

    def growth(self, cell: str, reference: str, clock: Clock) -> Ratio | None:
        """How many times ``reference`` one of our own cells costs."""
        return _ratio(self.values(OURS, cell, clock), self.values(OURS, reference, clock), min)


def _ratio(over: dict[int, float], under: dict[int, float], better: Callable[[Iterable[float]], float]) -> Ratio | None:
    rounds = over.keys() & under.keys()
    if not rounds:
        return None
    return Ratio(
        better_round=better(over[number] / under[number] for number in rounds),
        of_lowest=min(over.values()) / min(under.values()),
    )
