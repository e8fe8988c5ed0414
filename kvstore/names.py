"""What is a block called outside this process? A SHA-256 chain over packed symbols, seeded by the namespace.

``name[i] = SHA-256(name[i - 1] + symbol[i])`` with the namespace's digest before block 0. The same bytes in every
process, no environment variable. With an empty seed and token symbols this is also SGLang's page hash, so its vectors
test ours.

Names cost 0.5 us a block, three hundred times the match; so they are computed only for blocks that leave the
process, outside
the store's lock, and a node keeps those of a leading part of its run.
"""

from __future__ import annotations

import hashlib

from kvstore.prefix_tree import NAME_BYTES

__all__ = ["chain_names", "split_names"]


def chain_names(seed: bytes, symbols: bytes | bytearray | memoryview, symbol_bytes: int) -> bytes:
    """Names of consecutive blocks, back to back.

    Args:
        seed: the name before the first block: the namespace's digest at block 0.
        symbols: of whole blocks.
        symbol_bytes: width of one symbol.

    Shapes:
        returns: [block count * 32] bytes
    """
    sha256 = hashlib.sha256
    names, previous = [], seed
    for at in range(0, len(symbols), symbol_bytes):
        state = sha256(previous)
        state.update(symbols[at : at + symbol_bytes])
        previous = state.digest()
        names.append(previous)
    return b"".join(names)


def split_names(names: bytes) -> list[bytes]:
    """Names back to back as a list of 32-byte names."""
    return [names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES)]
