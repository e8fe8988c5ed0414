"""The trace formats that can be read, and how a file's format is told. A new format is one file here and one line."""

from __future__ import annotations

import difflib
from typing import Final

from simulator.errors import TraceError
from simulator.traces.formats.agent_text import AGENT_TEXT
from simulator.traces.formats.azure import AZURE
from simulator.traces.formats.bailian import BAILIAN
from simulator.traces.formats.burstgpt import BURSTGPT
from simulator.traces.formats.format import TraceFormat
from simulator.traces.formats.kvcache_simulator import KVCACHE_SIMULATOR
from simulator.traces.formats.lengths import SPLITWISE, VIDUR
from simulator.traces.formats.llmservingsim import LLMSERVINGSIM
from simulator.traces.formats.magagent import MAGAGENT
from simulator.traces.formats.mooncake import MOONCAKE, MOONCAKE_SESSIONS
from simulator.traces.formats.openai_chat import OPENAI_CHAT
from simulator.traces.formats.servegen import SERVEGEN
from simulator.traces.formats.sharegpt import SHAREGPT
from simulator.traces.formats.weka import WEKA
from simulator.traces.rows import Row

__all__ = ["format_named", "format_of", "formats"]

#: The first that recognises a row reads the file: the more particular stand before the more general.
_FORMATS: Final = (
    MAGAGENT,
    BAILIAN,
    KVCACHE_SIMULATOR,
    MOONCAKE,
    MOONCAKE_SESSIONS,
    WEKA,
    LLMSERVINGSIM,
    AGENT_TEXT,
    OPENAI_CHAT,
    SHAREGPT,
    AZURE,
    BURSTGPT,
    SPLITWISE,
    VIDUR,
    SERVEGEN,
)


def formats() -> tuple[TraceFormat, ...]:
    """All formats that can be read, by name."""
    return tuple(sorted(_FORMATS, key=lambda known: known.name))


def format_named(name: str, *, source: str) -> TraceFormat:
    """The format of a name that the caller gave.

    Raises:
        TraceError: there is none of this name.
    """
    names = {known.name: known for known in _FORMATS}
    if name in names:
        return names[name]
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(names))}"
    raise TraceError(f"unknown trace format {name!r}: {hint}", source=source)


def format_of(first: Row) -> TraceFormat:
    """The format of a file, by the keys of its first row.

    Raises:
        TraceError: no format has such rows.
    """
    for known in _FORMATS:
        if known.recognises(first.values):
            return known
    keys = ", ".join(map(repr, list(first.values)[:12])) or "nothing"
    names = ", ".join(sorted(known.name for known in _FORMATS))
    raise first.error(None, f"no known trace format has rows with {keys}; known are {names}")
