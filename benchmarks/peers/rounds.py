"""In which order is everything measured? Case by case, manager after manager: a noisy minute hits all of them alike."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cells

__all__ = ["GROUPS", "Failure", "Measurement", "RoundLog", "run_round"]

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_ANSWER_S = 900  #: bound on one case of one manager; the slowest, a trace through vLLM, takes two minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One case, asked of every manager in turn."""

    case: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    ours_only: bool = False
    buffer: bool = False  #: pointless for a manager that has no use for arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One cell of one manager in one round."""

    round: int
    manager: str
    cell: str
    figures: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A manager that could not run a case."""

    round: int
    manager: str
    case: str
    reason: str


@dataclass(slots=True)
class RoundLog:
    """What all rounds brought."""

    measurements: list[Measurement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def _request_steps() -> Iterator[Step]:
    yield Step(case="requests")
    for token_count in cells.TOKEN_COUNTS:
        size = {"token_count": token_count}
        yield Step(case="cached", arguments=size | {"turns": 1})
        if token_count in cells.LONG_CONVERSATION_TOKEN_COUNTS:
            yield Step(case="cached", arguments=size | {"turns": cells.LONG_CONVERSATION_TURNS}, ours_only=True)
        yield Step(case="cached", arguments=size | {"turns": cells.CONVERSATION_TURNS})
        yield Step(case="half", arguments=size)
        yield Step(case="miss", arguments=size)
        yield Step(case="new", arguments=size)


def _pool_steps(pool: int) -> Iterator[Step]:
    yield Step(case="full_pool", arguments={"pool": pool})
    for evicted in cells.EVICTED_PAGE_COUNTS:
        yield Step(case="evict", arguments={"evicted": evicted, "pool": pool})


def _trace_steps(trace: Path) -> Iterator[Step]:
    yield Step(case="trace", arguments={"path": str(trace), "form": cells.LIST})
    yield Step(case="trace", arguments={"path": str(trace), "form": cells.BUFFER}, buffer=True)


GROUPS = ("requests", "pools", "trace")


def run_round(
    number: int,
    groups: tuple[str, ...],
    *,
    python: Path,
    seed: int,
    managers: Mapping[str, bool],
    trace: Path | None,
    log: RoundLog,
) -> None:
    """Run every case of ``groups`` once for every manager.

    Args:
        number: the round's; who comes first in a case moves on by one each round.
        python: interpreter that has the peers.
        managers: names, and whether each makes use of token arrays.
        trace: hashed trace to replay, if there is one.
        log: takes what comes out.
    """
    plans: list[list[Step]] = []
    if "requests" in groups:
        plans.append(list(_request_steps()))
    if "pools" in groups:
        plans += [list(_pool_steps(pool)) for pool in cells.POOL_PAGE_COUNTS]
    if "trace" in groups and trace is not None:
        plans.append(list(_trace_steps(trace)))
    names = list(managers)
    first = number % len(names)
    order = names[first:] + names[:first]
    for plan in plans:
        _run_plan(plan, order, number, python=python, seed=seed, managers=managers, log=log)


def _run_plan(
    plan: list[Step],
    order: list[str],
    number: int,
    *,
    python: Path,
    seed: int,
    managers: Mapping[str, bool],
    log: RoundLog,
) -> None:
    workers = {name: _Worker(name, python=python, seed=seed) for name in order}
    try:
        for name in list(workers):
            _start(workers, name, number, log)
        for step, name in itertools.product(plan, order):
            if (
                name in workers
                and not (step.ours_only and name != cells.OURS)
                and not (step.buffer and not managers[name])
            ):
                _ask(workers, name, step, number, log)
    finally:
        for worker in workers.values():
            worker.close()


def _start(workers: dict[str, _Worker], name: str, number: int, log: RoundLog) -> None:
    try:
        log.versions |= workers[name].versions()
    except _WorkerDied as death:
        log.failures.append(Failure(round=number, manager=name, case="start", reason=str(death)))
        workers.pop(name).close()


def _ask(workers: dict[str, _Worker], name: str, step: Step, number: int, log: RoundLog) -> None:
    try:
        found = workers[name].ask(step)
    except _WorkerDied as death:
        log.failures.append(Failure(round=number, manager=name, case=step.case, reason=str(death)))
        workers.pop(name).close()
        return
    for cell, figures in found.items():
        log.measurements.append(Measurement(round=number, manager=name, cell=cell, figures=figures))
    print(f"round {number}  {name:14} {', '.join(found) or step.case}", file=sys.stderr)


class _WorkerDied(Exception):
    """The process ended or did not answer in time; the message is the end of what it wrote."""


class _Worker:
    """A manager's process."""

    def __init__(self, name: str, *, python: Path, seed: int) -> None:
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process; close() closes it
        self._process = subprocess.Popen(
            [python, _HERE / "worker.py", name, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
            env=_environment(),
        )

    def versions(self) -> dict[str, str]:
        """Wait until the manager is imported; what runs in its process."""
        versions: dict[str, str] = self._answer()["versions"]
        return versions

    def ask(self, step: Step) -> dict[str, dict[str, object]]:
        """Run a case; its cells."""
        assert self._process.stdin is not None
        try:
            print(json.dumps({"case": step.case, "arguments": step.arguments}), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise _WorkerDied(self._last_words()) from None
        found: dict[str, dict[str, object]] = self._answer()["cells"]
        return found

    def close(self) -> None:
        """End the process: at once if it works, by itself if it waits."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._noise.close()

    def _answer(self) -> dict[str, dict[str, Any]]:
        assert self._process.stdout is not None
        late = threading.Timer(_ANSWER_S, self._process.kill)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise _WorkerDied(self._last_words())
        answer: dict[str, dict[str, Any]] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        self._noise.seek(0)
        tail = self._noise.read().decode(errors="replace")[-400:]
        return f"exit code {code}: ...{tail}"


def _environment() -> dict[str, str]:
    """The same for all: our packages, no GPU, unsalted hashes, the Rust core of SGLang's wheel, numpy's own BLAS."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    return kept | {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(_ROOT),
        "SGLANG_RUST_BUILD_MODE": "never",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
