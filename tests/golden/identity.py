"""Everything that must be spelled alike in every process, printed as JSON; run by the tests in fresh processes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator

from kvstore import BlockFormat, KVStore, MediaSpan, Namespace, Prompt
from transfer import Layout, VirtualPagePool

__all__ = ["identities"]

_BLOCK_TOKENS = 16


def identities() -> dict[str, dict[str, str]]:
    """Digests of namespaces, names of blocks and a fingerprint, as hex."""
    spaces = dict(_namespaces())
    layout = Layout(layers=32, kv_heads=8, head_dim=128, block_tokens=_BLOCK_TOKENS)
    return {
        "namespaces": {name: space.digest.hex() for name, space in spaces.items()},
        "last_block_names": {name: _last_name(space).hex() for name, space in spaces.items()},
        "thousand_prompts": {name: _of_thousand(space) for name, space in spaces.items() if "names" not in name},
        "layouts": {"llama-3.1-8b": layout.fingerprint},
    }


def _namespaces() -> Iterator[tuple[str, Namespace]]:
    blocks = BlockFormat.of_tokens(_BLOCK_TOKENS)
    yield "plain", Namespace(model="m", format=blocks)
    yield "salted", Namespace(model="m", format=blocks, salt="tenant-a")
    yield "salted with bytes that are no text", Namespace(model="m", format=blocks, salt=b"\xff\x00")
    yield "adapted", Namespace(model="m", format=blocks, adapter="x", adapter_revision="2")
    yield (
        "full",
        Namespace(model="Ω/m", format=blocks, revision="r", layout="f", extras={"b": b"\1", "a": "1", "n": None}),
    )
    yield "blocks of 3", Namespace(model="m", format=BlockFormat.of_tokens(3))
    yield "names of 8", Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=8, block_tokens=_BLOCK_TOKENS))


def _last_name(space: Namespace) -> bytes:
    size = space.format.block_tokens
    if space.format.kind.value == "names":
        prompt = Prompt.of_names([bytes([at] * 8) for at in range(4)], token_count=4 * size)
    else:
        prompt = Prompt.of_tokens(list(range(4 * size)))
    return _store(space).block_names(prompt)[-1]


def _of_thousand(space: Namespace) -> str:
    """One digest over the names of a thousand prompts; every fourth shows an image."""
    chance, store, state = random.Random(60), _store(space), hashlib.sha256()
    for number in range(1000):
        tokens = [chance.randrange(2**31) for _ in range(chance.randint(1, 100))]
        image = MediaSpan(start=len(tokens) // 2, token_count=1, digest=hashlib.sha256(b"%d" % number).digest())
        shows = number % 4 == 0 and space.format.block_tokens >= 4
        for name in store.block_names(Prompt.of_tokens(tokens, media=[image] if shows else [])):
            state.update(name)
    return state.hexdigest()


def _store(space: Namespace) -> KVStore:
    return KVStore(VirtualPagePool(page_count=1, block_tokens=space.format.block_tokens), namespace=space)


if __name__ == "__main__":
    print(json.dumps(identities(), indent=2, ensure_ascii=False))
