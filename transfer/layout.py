"""What does a page look like? Shape, element type and a fingerprint of one block's KV."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from typing import Final

from transfer.errors import LayoutError

__all__ = ["ElementType", "Layout"]

_TAG: Final = "kvstore-layout-v1"


class ElementType(enum.Enum):
    """Element types of a KV cache. Pages are moved as unsigned words of the same width; nobody here computes with
    them.
    """

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT8_E4M3 = "float8_e4m3"
    FLOAT8_E5M2 = "float8_e5m2"

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return _ITEM_BYTES[self]


_ITEM_BYTES: Final = {
    ElementType.BFLOAT16: 2,
    ElementType.FLOAT16: 2,
    ElementType.FLOAT32: 4,
    ElementType.FLOAT8_E4M3: 1,
    ElementType.FLOAT8_E5M2: 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The KV of one block: all layers, keys and values.

    Shapes:
        page: [layers, 2 (K, V), block_tokens, kv_heads, head_dim] of ``element``
    """

    layers: int
    kv_heads: int
    head_dim: int
    block_tokens: int
    element: ElementType = ElementType.BFLOAT16
    group: int = 0  #: which of the model's KV groups, for models that have several

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim", "block_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise LayoutError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not isinstance(self.element, ElementType):
            raise LayoutError(f"element must be an ElementType, got {self.element!r}")
        if isinstance(self.group, bool) or not isinstance(self.group, int) or self.group < 0:
            raise LayoutError(f"group must be a whole number from 0, got {self.group!r}")

    @property
    def page_shape(self) -> tuple[int, ...]:
        """[layers, 2 (K, V), block_tokens, kv_heads, head_dim]."""
        return (self.layers, 2, self.block_tokens, self.kv_heads, self.head_dim)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return 2 * self.layers * self.block_tokens * self.kv_heads * self.head_dim * self.element.item_bytes

    @property
    def fingerprint(self) -> str:
        """Equal exactly for layouts whose bytes mean the same; part of a namespace."""
        fields = (self.layers, self.kv_heads, self.head_dim, self.block_tokens, self.element.value, self.group)
        return hashlib.sha256("/".join((_TAG, *map(str, fields))).encode()).hexdigest()[:32]
