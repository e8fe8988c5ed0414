"""Where does a result come from? Commit, machine, versions."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

__all__ = ["ROOT", "commit", "machine", "versions"]

ROOT = Path(__file__).resolve().parents[2]
_MEASURED = ("eviction", "kvstore", "simulator", "transfer")


def commit() -> str:
    """The commit measured, with ``+`` if the packages differ from it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *_MEASURED], cwd=ROOT, check=False).returncode
    return (head.stdout.strip() or "unknown") + ("+" if changed else "")


def machine() -> dict[str, str | int | float]:
    """What ran it, and how busy it was: the load of the last minute."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Of everything that the times depend on."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "xxhash")},
        "kernel": platform.release(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
