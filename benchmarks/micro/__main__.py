"""Measures the hot operations: ``python -m benchmarks.micro [NAME ...] [--json FILE]``.

Without names all of them run, in about a minute, and the result goes to ``benchmarks/results/micro.json``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.micro import NAMES
from benchmarks.micro.origin import ROOT, commit, machine, versions
from benchmarks.micro.report import Finding, Origin, write_report
from benchmarks.micro.table import table

__all__ = ["main"]

_RESULTS = ROOT / "benchmarks" / "results" / "micro.json"


def main() -> None:
    """Run what the command line asks for."""
    asked = _arguments()
    started_s = time.perf_counter()
    before = machine()
    findings = []
    for name in asked.names or NAMES:
        finding = _run(name, asked)
        print(table(finding), flush=True)
        findings.append(finding)
    origin = Origin(
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        commit=commit(),
        machine=before,
        versions=versions(),
        seed=asked.seed,
        wall_seconds=round(time.perf_counter() - started_s, 1),
    )
    print(f"{origin.wall_seconds} s on {before['cpu']}, {before['cores']} cores, load {before['load']} at the start")
    target = asked.json or (None if asked.names else _RESULTS)
    if target is not None:
        write_report(target, origin, findings)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all of them by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the result")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--all", action="store_true", help="also what takes a minute by itself: the longest trace")
    parser.add_argument(
        "--traces",
        type=Path,
        default=Path(os.environ.get("KVSTORE_TRACES") or ROOT.parent / "shared" / "traces"),
        help="folder of the real traces; without them replay is skipped",
    )
    asked = parser.parse_args()
    for name in asked.names:
        if name not in NAMES:
            parser.error(f"no benchmark {name!r}; there are {', '.join(NAMES)}")
    return asked


def _run(name: str, asked: argparse.Namespace) -> Finding:
    command = [sys.executable, "-m", "benchmarks.micro.worker", name]
    options = ["--seed", str(asked.seed), "--traces", str(asked.traces.resolve()), *(["--all"] if asked.all else [])]
    done = subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return Finding.from_json(done.stdout)


if __name__ == "__main__":
    main()
