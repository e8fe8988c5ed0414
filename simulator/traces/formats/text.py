"""Tokens of traces that hold text: one token is one UTF-8 byte.

No tokenizer is needed, every tokenizer's prefixes are prefixes of the bytes, and lengths can be compared with other
counts of bytes. A token of a usual tokenizer is three to four bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.traces.rows import Row

__all__ = ["TEXT_BLOCK_TOKENS", "byte_tokens", "message_text", "render_chat"]

#: Bytes in a block unless asked otherwise: about 16 tokens of a usual tokenizer.
TEXT_BLOCK_TOKENS: Final = 64


def byte_tokens(text: str) -> NDArray[np.int32]:
    """The bytes of a text as token ids. Lone surrogates, which JSON can spell, keep their three bytes."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32)


def render_chat(messages: Iterable[tuple[str, str]], *, next_role: str) -> str:
    """A chat as one text, so that a chat that goes on begins with the text of the chat so far and its answer."""
    return "".join(f"{role}: {text}\n" for role, text in messages) + f"{next_role}: "


def message_text(row: Row, field: str) -> str:
    """The text of a message: a string, or parts, of which others than text are spelled as JSON; empty if missing."""
    if not row.has(field):
        return ""
    content = row.values[field]
    if not isinstance(content, list):
        return row.text(field)
    return "".join(_part_text(part) for part in row.inner_rows(field))


def _part_text(part: Row) -> str:
    if part.has("text"):
        return part.text("text")
    return json.dumps(part.values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
