"""Which bytes does a prompt put into the tree? One private snapshot, taken outside the lock."""

from __future__ import annotations

import hashlib
import operator
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from kvstore.errors import InvalidRequest
from kvstore.namespace import BlockFormat, SymbolKind

__all__ = ["MediaSpan", "Prompt", "TokenIds", "fold_media", "join_names", "pack_tokens"]

#: What counts as token ids: an integer array (int32 or uint32 cost one copy), ``array.array``, a buffer of those, or
#: a sequence of ints.
TokenIds: TypeAlias = "NDArray[np.integer] | array[int] | Sequence[int] | memoryview"

_TOKEN_BYTES: Final = 4
_TOKENS: Final = SymbolKind.TOKENS  # looking a member up in its class costs 50 ns
_INT32: Final = np.dtype("<i4")
_NDARRAY: Final = np.ndarray
_CHUNK: Final = 1024  # star-arguments above ~10 k items get slower than this
_PACK_CHUNK: Final = struct.Struct(f"<{_CHUNK}i").pack
_MEDIA_TAG: Final = b"kvstore-media-v1"
_MEDIA_BLOCK_TOKENS_MIN: Final = (
    4  # 31 bits a token: below 124 bits a block of media would not be a cryptographic identity
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSpan:
    """Tokens ``[start, start + token_count)`` are placeholders for content that ``digest`` names (an image,
    embeddings).
    """

    start: int
    token_count: int
    digest: bytes  #: the whole content digest, 16 bytes or more

    def __post_init__(self) -> None:
        if type(self.start) is not int or type(self.token_count) is not int:
            raise InvalidRequest(f"a media span has whole numbers, got {self.start!r} and {self.token_count!r}")
        if self.start < 0 or self.token_count < 1:
            raise InvalidRequest(
                f"a media span needs start >= 0 and token_count >= 1, got {self.start} and {self.token_count}"
            )
        if not isinstance(self.digest, bytes) or not 16 <= len(self.digest) <= 64:
            raise InvalidRequest("a media digest has 16 to 64 bytes: pass a cryptographic digest of the whole content")


@final
class Prompt:
    """An immutable snapshot of a prompt: whoever made it may reuse its buffer at once.

    Make one with ``of_tokens`` or ``of_names``; it may be begun any number of times, in any namespace of the same kind.
    """

    __slots__ = ("kind", "media", "name_bytes", "symbols", "token_count")

    def __init__(
        self, kind: SymbolKind, symbols: bytes, token_count: int, name_bytes: int, media: tuple[MediaSpan, ...]
    ) -> None:
        self.kind = kind
        self.symbols = symbols
        self.token_count = token_count
        self.name_bytes = name_bytes
        self.media = media

    @classmethod
    def of_tokens(cls, tokens: TokenIds, *, media: Iterable[MediaSpan] = ()) -> Prompt:
        """Snapshot token ids.

        Args:
            tokens: at least one id in ``[0, 2**31)``; the top bit belongs to media.
            media: spans, in order and apart, whose content is not in the tokens.

        Raises:
            InvalidRequest: no tokens, an id out of range, or something that is not integers.

        Cost: one copy of a contiguous int32 array; about 8 ns a token from a list.
        """
        # The hot path. The least id finds any top bit; argmin is the cheapest reduction there is, 0.2 us at 1 k tokens
        # and 5.5 at 128 k, where min, max and bitwise_or cost 0.9 and 7.
        if (
            type(tokens) is _NDARRAY
            and tokens.dtype is _INT32
            and tokens.ndim == 1
            and tokens.size
            and tokens.item(tokens.argmin()) >= 0
        ):
            symbols = tokens.tobytes()
        else:
            symbols = pack_tokens(tokens)
            if not symbols:
                raise InvalidRequest("a prompt has at least one token")
        count = len(symbols) >> 2
        return cls(_TOKENS, symbols, count, 0, _checked_spans(media, count) if media else ())

    @classmethod
    def of_names(cls, names: NDArray[np.integer] | Sequence[bytes], *, token_count: int) -> Prompt:
        """Snapshot foreign block names, one for each block in prefix order.

        Args:
            names: [block count] integers of one width (their bytes are the names), or byte strings of one width.
            token_count: tokens that the prompt has; the names may reach as far as its last full block, or one further.

        Raises:
            InvalidRequest: names of mixed widths, or nothing at all.
        """
        width, symbols = join_names(names)
        count = _whole_number("token_count", token_count)
        if count < 1:
            raise InvalidRequest(f"a prompt has at least one token, got token_count={token_count}")
        return cls(SymbolKind.NAMES, symbols, count, width, ())

    def __repr__(self) -> str:
        return f"Prompt({self.token_count} tokens as {self.kind.value})"

    def block_symbols(self, blocks: BlockFormat) -> bytes:
        """The bytes that the tree compares, checked against the namespace's format; media is folded in.

        Raises:
            InvalidRequest: the prompt is of the other kind, its names have another width or reach too far.
        """
        if self.kind is not blocks.kind:
            raise InvalidRequest(
                f"a prompt of {self.kind.value} cannot be matched in a namespace of {blocks.kind.value}"
            )
        if self.kind is SymbolKind.NAMES:
            return self._full_names(blocks)
        if self.media:
            return fold_media(self.symbols, self.media, block_tokens=blocks.block_tokens)
        return self.symbols

    def _full_names(self, blocks: BlockFormat) -> bytes:
        width, full = blocks.symbol_bytes, self.token_count // blocks.block_tokens
        if self.symbols and self.name_bytes != width:
            raise InvalidRequest(f"names have {self.name_bytes} bytes, the namespace's have {width}")
        if not full <= len(self.symbols) // width <= full + 1:
            raise InvalidRequest(
                f"{self.token_count} tokens have {full} full blocks, got {len(self.symbols) // width} names"
            )
        return self.symbols[: full * width]


def _whole_number(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as wrong:
        raise InvalidRequest(f"{name} is a whole number, got {value!r}") from wrong


def pack_tokens(tokens: TokenIds) -> bytes:
    """Token ids as little-endian uint32, checked. Empty in, empty out.

    Raises:
        InvalidRequest: an id outside ``[0, 2**31)``, floats, bools, or not one row of integers.
    """
    if isinstance(tokens, np.ma.MaskedArray):
        raise InvalidRequest("tokens must not be masked: a masked id has no value")
    if isinstance(tokens, np.ndarray | array | memoryview):
        return _packed_array(np.asarray(tokens))
    if isinstance(tokens, bytes | bytearray | str):
        raise InvalidRequest(
            f"tokens must be integers, got {type(tokens).__name__}; for raw bytes use numpy.frombuffer"
        )
    if isinstance(tokens, set | frozenset | dict):
        raise InvalidRequest(f"token ids come in an order, a {type(tokens).__name__} has none")
    return _packed_sequence(tokens)


def _packed_array(tokens: NDArray[np.generic]) -> bytes:
    dtype = tokens.dtype
    if tokens.ndim != 1 or dtype.kind not in "iu":
        raise InvalidRequest(f"tokens must be one row of integers, got {dtype} of shape {tokens.shape}")
    if dtype is _INT32 and tokens.size and tokens.item(tokens.argmin()) >= 0:
        return tokens.tobytes()
    if tokens.size and (tokens.min() < 0 or tokens.max() >= 1 << 31):
        raise InvalidRequest(f"token ids lie in [0, 2**31), got {_first_bad(tokens)}")
    return tokens.astype(_INT32).tobytes()


def _first_bad(tokens: NDArray[np.generic]) -> int:
    return next((int(token) for token in tokens.tolist() if not 0 <= token < 1 << 31), -1)


def _packed_sequence(tokens: Sequence[int]) -> bytes:
    try:
        count = len(tokens)
        whole = count - count % _CHUNK
        parts = [_PACK_CHUNK(*tokens[at : at + _CHUNK]) for at in range(0, whole, _CHUNK)]
        rest = tokens[whole:] if whole else tokens
        parts.append(struct.pack(f"<{count - whole}i", *rest))
    except (struct.error, TypeError, OverflowError) as wrong:
        raise InvalidRequest(f"token ids are integers in [0, 2**31): {wrong}") from wrong
    packed = b"".join(parts)
    words = np.frombuffer(packed, _INT32)
    # A bool packs like 0 or 1, so only where one of these stands is the type worth a look (a look at each costs 20 ns).
    for at in np.flatnonzero(words < 2).tolist():
        if words[at] < 0:
            raise InvalidRequest(f"token ids lie in [0, 2**31), got {tokens[at]}")
        if type(tokens[at]) is bool:
            raise InvalidRequest("token ids are integers, got a bool")
    return packed


def join_names(names: NDArray[np.integer] | Sequence[bytes]) -> tuple[int, bytes]:
    """Block names back to back, and the width of one (0 for none).

    Raises:
        InvalidRequest: names of mixed widths, or something that is neither one row of integers nor byte strings.
    """
    if isinstance(names, np.ndarray):
        if names.ndim != 1 or names.dtype.kind not in "iu":
            raise InvalidRequest(f"names must be one row of integers, got {names.dtype} of shape {names.shape}")
        return names.dtype.itemsize, names.astype(names.dtype.newbyteorder("<"), copy=False).tobytes()
    if isinstance(names, set | frozenset | dict) or not isinstance(names, Iterable):
        raise InvalidRequest(f"block names come in an order, got {type(names).__name__}")
    parts = list(names)
    widths = {len(name) for name in parts if isinstance(name, bytes)}
    if len(widths) > 1 or not all(isinstance(name, bytes) for name in parts) or widths == {0}:
        raise InvalidRequest("block names must be byte strings of one width, or one integer array")
    return (widths.pop() if widths else 0), b"".join(parts)


def _checked_spans(media: Iterable[MediaSpan], token_count: int) -> tuple[MediaSpan, ...]:
    spans, end = tuple(media), 0
    for span in spans:
        if not isinstance(span, MediaSpan):
            raise InvalidRequest(f"media is made of MediaSpans, got {type(span).__name__}")
        if span.start < end or span.start + span.token_count > token_count:
            raise InvalidRequest(f"media spans are in order, apart and inside {token_count} tokens; {span} is not")
        end = span.start + span.token_count
    return spans


def fold_media(symbols: bytes, media: Sequence[MediaSpan], *, block_tokens: int, first_block: int = 0) -> bytes:
    """Replace each full block that media touches by an expansion of (its tokens, which content lies where in it).

    The whole block is replaced, not only the span's tokens: a block that holds one token of an image would otherwise
    be told
    from another image's by 31 bits. Every word of the expansion has its top bit set, so no text block can spell it.

    Args:
        symbols: packed tokens.
        media: spans, in order.
        first_block: blocks before this one are already folded.

    Raises:
        InvalidRequest: blocks are too short to carry a digest.
    """
    if block_tokens < _MEDIA_BLOCK_TOKENS_MIN:
        raise InvalidRequest(
            f"media needs blocks of {_MEDIA_BLOCK_TOKENS_MIN} tokens or more, this namespace has {block_tokens}"
        )
    width = block_tokens * _TOKEN_BYTES
    full = len(symbols) // width
    touching: dict[int, list[MediaSpan]] = {}
    for span in media:
        first, last = span.start // block_tokens, (span.start + span.token_count - 1) // block_tokens
        for block in range(max(first, first_block), min(last + 1, full)):
            touching.setdefault(block, []).append(span)
    folded = bytearray(symbols)
    for block, spans in touching.items():
        state = hashlib.shake_256(_MEDIA_TAG + folded[block * width : (block + 1) * width])
        for span in spans:
            state.update(
                struct.pack("<qqB", span.start - block * block_tokens, span.token_count, len(span.digest)) + span.digest
            )
        words = np.frombuffer(state.digest(width), "<u4") | np.uint32(0x8000_0000)
        folded[block * width : (block + 1) * width] = words.tobytes()
    return bytes(folded)


if sys.byteorder != "little":  # pragma: no cover - no such machine serves models
    raise ImportError("kvstore packs tokens in place and needs a little-endian machine")
