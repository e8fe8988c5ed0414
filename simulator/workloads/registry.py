"""Which workloads there are, and how a text selects one."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.traces.record import LoadedTrace
from simulator.workloads.agent import Agent
from simulator.workloads.bursts import Bursts
from simulator.workloads.chat import Chat
from simulator.workloads.errors import WorkloadError
from simulator.workloads.rag import Rag
from simulator.workloads.recipe import Parameter, Recipe, nearest, parameters_of, read_recipe
from simulator.workloads.scan import Scan
from simulator.workloads.system import System
from simulator.workloads.traffic import to_trace

__all__ = ["PREFIX", "WorkloadSummary", "workload", "workloads"]

#: What a text that names a workload begins with.
PREFIX = "workload:"

_RECIPES: dict[str, type[Recipe]] = {recipe.name: recipe for recipe in (Agent, Bursts, Chat, Rag, Scan, System)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """A workload as listed."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]


def workloads() -> tuple[WorkloadSummary, ...]:
    """All built-in workloads, by name."""
    return tuple(
        WorkloadSummary(name=name, description=recipe.description, parameters=parameters_of(recipe))
        for name, recipe in sorted(_RECIPES.items())
    )


def workload(text: str) -> LoadedTrace:
    """Make the trace that ``workload:NAME?param=value&…`` describes; equal parameters give equal traces everywhere.

    Raises:
        WorkloadError: the text has another form, or names a workload, a parameter or a value that does not exist.
    """
    name, _, query = text.removeprefix(PREFIX).partition("?")
    if not text.startswith(PREFIX):
        raise WorkloadError(f"a workload is written {PREFIX}NAME?param=value&param=value", source=text)
    if name not in _RECIPES:
        raise WorkloadError(f"unknown workload {name!r}; {nearest(name, _RECIPES)}", source=text)
    recipe = read_recipe(_RECIPES[name], _assignments(query, text))
    return to_trace(recipe.traffic(), name=text, block_tokens=recipe.block_tokens, seed=recipe.seed)


def _assignments(query: str, source: str) -> dict[str, str]:
    assignments: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise WorkloadError(f"expected param=value, got {part!r}", source=source)
        if name in assignments:
            raise WorkloadError("given twice", source=source, field=name)
        assignments[name] = value
    return assignments
