"""Whose KV is it? The boundary that prefixes are never shared across, as one digest."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kvstore.errors import ConfigError

__all__ = ["BlockFormat", "Namespace", "SymbolKind"]

_TAG: Final = b"kvstore-namespace-v1"
_SYMBOL_BYTES_MAX: Final = 64  # the longest block name in use anywhere is a hex SHA-256
_TOKEN_BYTES: Final = 4
_BLOCK_TOKENS_MAX: Final = 1 << 16  # a page of more tokens is a mistake in a unit


class SymbolKind(enum.Enum):
    """What the tree compares, block by block."""

    TOKENS = "tokens"  #: the block's tokens themselves, little-endian uint32
    NAMES = "names"  #: a fixed-width name that stands for the whole prefix up to the block's end


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """How many tokens make a block, and which bytes stand for one in the tree."""

    kind: SymbolKind
    symbol_bytes: int
    block_tokens: int

    def __post_init__(self) -> None:
        if not isinstance(self.kind, SymbolKind):
            raise ConfigError(f"kind must be a SymbolKind, got {self.kind!r}")
        for name in ("symbol_bytes", "block_tokens"):
            value = getattr(self, name)
            # 16.0 and True would spell another namespace than 16 and 1, and nobody would see why nothing hits.
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{name} must be a whole number, got {value!r}")
        if not 1 <= self.block_tokens <= _BLOCK_TOKENS_MAX:
            raise ConfigError(f"block_tokens must lie in [1, {_BLOCK_TOKENS_MAX}], got {self.block_tokens}")
        if self.kind is SymbolKind.TOKENS and self.symbol_bytes != _TOKEN_BYTES * self.block_tokens:
            raise ConfigError(
                f"a token has {_TOKEN_BYTES} symbol bytes; got {self.symbol_bytes} for {self.block_tokens} tokens"
            )
        if self.kind is SymbolKind.NAMES and not 1 <= self.symbol_bytes <= _SYMBOL_BYTES_MAX:
            raise ConfigError(f"a block name has 1 to {_SYMBOL_BYTES_MAX} bytes, got {self.symbol_bytes}")

    @classmethod
    def of_tokens(cls, block_tokens: int) -> BlockFormat:
        """Blocks are compared by their tokens: exact, no hash can collide."""
        if isinstance(block_tokens, bool) or not isinstance(block_tokens, int):
            raise ConfigError(f"block_tokens must be a whole number, got {block_tokens!r}")
        return cls(kind=SymbolKind.TOKENS, symbol_bytes=_TOKEN_BYTES * block_tokens, block_tokens=block_tokens)

    @classmethod
    def of_names(cls, *, symbol_bytes: int, block_tokens: int) -> BlockFormat:
        """Blocks are compared by names that somebody else gave: the ids of a hashed trace, another engine's block
        hashes.
        """
        return cls(kind=SymbolKind.NAMES, symbol_bytes=symbol_bytes, block_tokens=block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Everything that must be equal for KV to be shared, besides the tokens. Make one and keep it.

    Two namespaces are equal when their digests are: SHA-256 over tagged, length-prefixed fields, so that no two
    different sets of fields can spell the same bytes and a value never counts for another field.

    Args:
        model: what the engine serves; with ``revision`` it must change whenever the weights do.
        format: blocks of this namespace.
        layout: fingerprint of the page layout (``transfer.Layout.fingerprint``).
        adapter: LoRA or the like; ``adapter_revision`` changes when its weights do.
        salt: a tenant's secret, text or bytes. Empty equals none; it never appears in a ``repr`` or a log.
        extras: anything else that changes KV bytes. ``None`` and ``""`` are different values.

    Raises:
        ConfigError: a field has the wrong type, or the model has no name.
    """

    model: str
    format: BlockFormat
    revision: str | None = None
    layout: str | None = None
    adapter: str | None = None
    adapter_revision: str | None = None
    salt: bytes | str | None = field(default=None, repr=False)
    extras: Mapping[str, str | bytes | None] = field(default_factory=dict)
    digest: bytes = field(init=False, repr=False, compare=False)  #: of all the fields; a changed copy gets its own

    def __post_init__(self) -> None:
        if not isinstance(self.format, BlockFormat):
            raise ConfigError(f"format must be a BlockFormat, got {type(self.format).__name__}")
        for name in ("model", "revision", "layout", "adapter", "adapter_revision"):
            _check_text(name, getattr(self, name))
        if not self.model:
            raise ConfigError("a namespace needs a model name")
        object.__setattr__(self, "salt", _salt_bytes(self.salt))
        object.__setattr__(self, "extras", _frozen_extras(self.extras))
        object.__setattr__(self, "digest", _digest(self))

    def __hash__(self) -> int:
        return hash(self.digest)

    def differing_fields(self, other: Namespace) -> tuple[str, ...]:
        """Names of the fields in which two namespaces differ (not their values: a salt is a secret)."""
        names = ("format", "model", "revision", "layout", "adapter", "adapter_revision", "salt")
        own = tuple(name for name in names if getattr(self, name) != getattr(other, name))
        keys = sorted({*self.extras, *other.extras})
        absent = object()
        return own + tuple(
            f"extras[{key}]" for key in keys if self.extras.get(key, absent) != other.extras.get(key, absent)
        )


def _check_text(name: str, value: object) -> None:
    if value is None and name != "model":
        return
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as wrong:
        raise ConfigError(f"{name} is not valid text: {wrong.reason}") from wrong


def _salt_bytes(salt: bytes | str | None) -> bytes | None:
    if isinstance(salt, str):
        _check_text("salt", salt)
        salt = salt.encode()
    if salt is not None and not isinstance(salt, bytes):
        raise ConfigError(f"salt must be bytes or a string, got {type(salt).__name__}")
    return salt or None


def _frozen_extras(extras: Mapping[str, str | bytes | None]) -> Mapping[str, str | bytes | None]:
    if not isinstance(extras, Mapping):
        raise ConfigError(f"extras must be a mapping, got {type(extras).__name__}")
    for key, value in extras.items():
        if not isinstance(key, str):
            raise ConfigError(f"extras have string keys, got {key!r}")
        _check_text("a key of extras", key)
        if not isinstance(value, bytes | None):
            _check_text(f"extras[{key}]", value)
    return MappingProxyType(dict(extras))


def _digest(namespace: Namespace) -> bytes:
    state = hashlib.sha256(_TAG)
    for part in _parts(namespace):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def _parts(namespace: Namespace) -> Iterator[bytes]:
    blocks = namespace.format
    yield b"format"
    yield f"{blocks.kind.value}/{blocks.symbol_bytes}/{blocks.block_tokens}".encode()
    for name in ("model", "revision", "layout", "adapter", "adapter_revision", "salt"):
        yield name.encode()
        yield _tagged(getattr(namespace, name))
    for key in sorted(namespace.extras):
        yield b"extra"
        yield key.encode()
        yield _tagged(namespace.extras[key])


def _tagged(value: str | bytes | None) -> bytes:
    """None, text and bytes never spell the same."""
    if value is None:
        return b"\0"
    return b"s" + value.encode() if isinstance(value, str) else b"b" + value
