"""Runs one file in a process of its own, so that no benchmark meets another's heap; prints what it found as JSON."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.micro import NAMES
from benchmarks.micro.cell import Benchmark, Cell, Setup, Skipped
from benchmarks.micro.report import Finding

__all__ = ["main"]


def main() -> None:
    """Do what the parent asks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    module = importlib.import_module(f"benchmarks.micro.{asked.name}")
    benchmark: Benchmark = module.BENCHMARK
    setup = Setup(seed=asked.seed, traces=asked.traces, everything=asked.all)
    cells: tuple[Cell, ...] = ()
    skipped = None
    try:
        cells = tuple(benchmark.measure(setup))
    except Skipped as reason:
        skipped = str(reason)
    question = (module.__doc__ or "").partition("\n")[0]
    finding = Finding(
        name=asked.name,
        question=question,
        unit=benchmark.unit,
        yardstick=benchmark.yardstick,
        cells=cells,
        skipped=skipped,
    )
    print(finding.to_json())


if __name__ == "__main__":
    main()
