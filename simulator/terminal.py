"""What the command line writes and where: tables to standard output, progress to standard error, files."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from simulator.errors import SimulatorError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "STDOUT",
    "OutputError",
    "check_distinct",
    "check_target",
    "discard_standard_output",
    "progress_bar",
    "show",
    "waiting",
    "write_text",
]

#: As the name of a file: standard output.
STDOUT = "-"

_PIPE_COLUMNS = 120  # a table's width where no terminal limits it


class OutputError(SimulatorError):
    """A file cannot be written."""


def show(*parts: RenderableType) -> None:
    """Print to standard output, in colour only on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast

    with _standard_output() as stream:
        console = Console(file=stream, width=None if stream.isatty() else _PIPE_COLUMNS, highlight=False)
        for part in parts:
            console.print(part)


def discard_standard_output() -> None:
    """Send what is still to be written nowhere, or the interpreter complains at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def waiting(text: str, *, enabled: bool) -> AbstractContextManager[object]:
    """Tell the terminal what takes so long, for as long as it does."""
    if not enabled or not _has_screen():
        return nullcontext()
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True).status(text)


@contextmanager
def progress_bar(label: str, total: int, *, enabled: bool) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error that takes the number of steps done; None where no terminal would show it."""
    if not enabled or not _has_screen():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.update(task, completed=done)


def check_target(path: str | None) -> None:
    """Find out before a long run whether its result can be written.

    Raises:
        OutputError: the file's folder does not exist, or the path is a folder.
    """
    if path is None or path == STDOUT:
        return
    target = Path(path)
    if target.is_dir():
        raise OutputError(f"{path}: is a folder, not a file")
    if not target.parent.is_dir():
        raise OutputError(f"{path}: there is no folder {str(target.parent)!r}")


def check_distinct(trace: str, outputs: Mapping[str, str | None]) -> None:
    """Find out before anything is read whether an output would overwrite the trace or another output.

    Args:
        trace: the file that is read, ``-`` for standard input, or no file at all.
        outputs: the file of each option, None where it is not given.

    Raises:
        OutputError: two of them are one file, by whatever names or links.
    """
    taken = {_identity(0 if trace == STDOUT else trace): "TRACE"}
    for option, path in outputs.items():
        if path is None or path == STDOUT:
            continue
        file = _identity(path)
        other = taken.setdefault(file, option) if file is not None else option
        if other != option:
            raise OutputError(f"{path}: {option} and {other} are the same file")


def _identity(path: str | int) -> Hashable:
    """What is equal for one file only; None for what is no file, as a terminal or a missing standard input."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return os.path.realpath(str(path))
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def write_text(path: str, text: str) -> None:
    """Write a whole file, or to standard output.

    Raises:
        OutputError: the file cannot be written.
    """
    if path == STDOUT:
        with _standard_output() as stream:
            stream.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    except UnicodeEncodeError as error:  # a file name that is no UTF-8
        raise OutputError(f"{path}: cannot be written: {error}") from error


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    """Standard output, written to the end when the context is left.

    Raises:
        OutputError: it is closed, full, or cannot encode what is written.
        BrokenPipeError: its reader has left.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_standard_output()
        raise OutputError(f"standard output: cannot be written: {error.strerror}") from error
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        problem = f"standard output: its encoding {error.encoding} has no {character!r}; try PYTHONIOENCODING=utf-8"
        raise OutputError(problem) from error


def _has_screen() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
