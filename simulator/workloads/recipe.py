"""A workload's parameters: declared as fields, checked when made, read from text."""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, cast

from simulator.workloads.errors import WorkloadError
from simulator.workloads.traffic import Traffic

__all__ = ["Parameter", "Recipe", "nearest", "parameter", "parameters_of", "read_recipe"]

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a workload, as listed."""

    name: str
    meaning: str
    default: int | float
    low: float  #: least value allowed
    high: float  #: greatest value allowed


def parameter(default: Number, meaning: str, *, low: float, high: float) -> Number:
    """Declare a field of a recipe: its default, whose type is its own, what it means and the range it must lie in."""
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(ABC):
    """Parameters of one workload and the traffic they make; equal parameters make equal traffic.

    Raises:
        WorkloadError: a parameter lies outside its range.
    """

    name: ClassVar[str]  #: what selects the workload
    description: ClassVar[str]  #: one line for a listing

    seed: int = parameter(0, "selects the draws", low=0, high=2**63 - 1)
    requests: int = parameter(6_000, "requests in the trace", low=1, high=10_000_000)
    block_tokens: int = parameter(512, "tokens per block", low=1, high=65_536)

    def __post_init__(self) -> None:
        for item in parameters_of(type(self)):
            value = getattr(self, item.name)
            if not item.low <= value <= item.high:
                raise WorkloadError(
                    f"must lie in [{item.low:g}, {item.high:g}], got {value}: {item.meaning}",
                    source=f"workload:{self.name}",
                    field=item.name,
                )

    @abstractmethod
    def traffic(self) -> Traffic:
        """Make the requests."""


def parameters_of(recipe: type[Recipe]) -> tuple[Parameter, ...]:
    """What a recipe lets be chosen."""
    return tuple(
        Parameter(
            name=item.name,
            meaning=item.metadata["meaning"],
            default=cast(int | float, item.default),
            low=item.metadata["low"],
            high=item.metadata["high"],
        )
        for item in fields(recipe)
    )


def read_recipe(recipe: type[Recipe], assignments: Mapping[str, str]) -> Recipe:
    """Make a recipe from texts by parameter name.

    Raises:
        WorkloadError: an unknown parameter, or a value that is no number of its kind or out of its range.
    """
    source = f"workload:{recipe.name}"
    known = {item.name: item for item in fields(recipe)}
    values: dict[str, int | float] = {}
    for name, text in assignments.items():
        if name not in known:
            raise WorkloadError(f"unknown parameter; {nearest(name, known)}", source=source, field=name)
        values[name] = _number(known[name], text, source)
    return cast(Callable[..., Recipe], recipe)(**values)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the known name that looks most like this one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names)}"


def _number(item: Field[Any], text: str, source: str) -> int | float:
    kind = int if isinstance(item.default, int) else float
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = "a whole number" if kind is int else "a number"
        raise WorkloadError(f"must be {what}, got {text!r}", source=source, field=item.name)
    return value
