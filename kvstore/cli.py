"""``kvstore``: what works here?"""

from __future__ import annotations

import importlib.util
import platform
import time
from typing import Annotated

import numpy as np
import typer

from kvstore._version import __version__

__all__ = ["main"]

#: Optional packages that some part of this version uses, and what for.
_OPTIONAL = {
    "matplotlib": "HTML reports",
    "zstandard": "traces in .zst",
}
_COPY_BYTES = 64 << 20
_GIGA = 1e9

app = typer.Typer(help="A KV-cache block store with prefix matching.", no_args_is_help=True, add_completion=False)


def main() -> None:
    """Entry point of the console script."""
    app()


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvstore {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """A KV-cache block store with prefix matching."""


@app.command()
def doctor() -> None:
    """Say what is installed, what is missing for what, and how fast this machine moves memory."""
    typer.echo(
        f"kvstore {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}"
    )
    for module, use in _OPTIONAL.items():
        found = importlib.util.find_spec(module) is not None
        typer.echo(f"  {module:<11} {'installed' if found else f'absent: pip install {module}'} ({use})")
    copy, compare = _memory_speeds()
    typer.echo(f"  memcpy      {copy:.1f} GB/s (bounds the movement of pages)")
    typer.echo(f"  memcmp      {compare:.1f} GB/s (bounds the matching of prompts)")


def _memory_speeds() -> tuple[float, float]:
    """Best of a few passes over touched memory, GB/s, each byte counted once."""
    source, target = np.ones(_COPY_BYTES, np.uint8), np.ones(_COPY_BYTES, np.uint8)
    left, right = source.tobytes(), bytearray(source.tobytes())
    copies, compares = [], []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        middle = time.perf_counter()
        same = left.startswith(right)
        compares.append(time.perf_counter() - middle)
        copies.append(middle - start)
        assert same
    return _COPY_BYTES / min(copies) / _GIGA, _COPY_BYTES / min(compares) / _GIGA
