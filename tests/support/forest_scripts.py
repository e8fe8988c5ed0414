"""Random lives of a forest: the calls that a store could make, drawn by Hypothesis, played against any policy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from hypothesis import strategies as st

from tests.support.forest import Forest, Request

__all__ = ["Step", "play", "prompts", "prompts_of", "scripts", "traces"]

Prefix = tuple[int, ...]

#: Kinds of steps that begin a request: one that runs on, one that ends at once, one that only protects for a moment.
_BEGINNINGS = ("begin", "serve", "glance")


@dataclass(frozen=True, slots=True)
class Step:
    """One call: what to do, and a prompt or a number that says to whom or how much."""

    kind: str
    symbols: tuple[int, ...] = ()
    number: int = 0


def prompts(*, symbols: int = 2, longest: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    """Prompts that share many prefixes."""
    return st.lists(st.integers(0, symbols - 1), min_size=1, max_size=longest).map(tuple)


def traces() -> st.SearchStrategy[list[tuple[int, ...]]]:
    """Prompts that come one after the other."""
    return st.lists(prompts(), min_size=10, max_size=40)  # the least size, since Hypothesis likes lists short


def scripts() -> st.SearchStrategy[list[Step]]:
    number = st.integers(0, 11)
    step = st.one_of(
        st.builds(Step, st.sampled_from(["begin", "serve", "serve", "glance"]), prompts()),
        st.builds(Step, st.just("extend"), prompts(longest=3), number),
        st.builds(Step, st.sampled_from(["release", "abandon", "evict", "drop", "drop", "peek"]), number=number),
    )
    return st.lists(step, min_size=15, max_size=60)


def prompts_of(script: list[Step]) -> list[tuple[int, ...]]:
    """The prompts in order of their requests' ordinals."""
    return [step.symbols for step in script if step.kind in _BEGINNINGS]


def play(script: list[Step], forest: Forest, *, peeks: bool = True, check: bool = True) -> list[list[Prefix]]:
    """Make the calls, then end all requests and evict everything.

    Args:
        peeks: walk over victims where the script says so; a walk is a query, so this must not matter.
        check: recompute everything after every step.
    Returns:
        The names of the blocks that left, for each step, in order of leaving.
    """
    running: list[Request] = []
    log: list[list[Prefix]] = []
    ordinal = 0
    for step in script:
        if step.kind in _BEGINNINGS:
            running.append(forest.begin(step.symbols, request_id=ordinal))
            ordinal += 1
        if step.kind == "serve":
            forest.extend(running[-1], step.symbols[running[-1].matched :])
            forest.release(running.pop())
        elif step.kind == "glance":
            forest.release(running.pop(), used=False)
        elif step.kind == "peek" and peeks:
            list(islice(forest.policy.victims(), step.number))
        log.append(_change(step, forest, running))
        if check:
            forest.check()
    for request in running:
        forest.release(request)
    log.append(forest.evict(forest.block_count))
    forest.check()
    return log


def _change(step: Step, forest: Forest, running: list[Request]) -> list[Prefix]:
    if step.kind == "evict":
        return forest.evict(min(step.number, forest.evictable()))
    if step.kind == "drop":
        tails = sorted(node.prefix() for node in forest.nodes() if node.offered)
        return forest.drop(forest.find(tails[step.number % len(tails)]), 1) if tails else []
    if running and step.kind == "extend":
        forest.extend(running[step.number % len(running)], step.symbols)
    elif running and step.kind in ("release", "abandon"):
        forest.release(running.pop(step.number % len(running)), used=step.kind == "release")
    return []
