"""Why did this prompt hit, or not? An answer for people."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

import xxhash

from kvstore.eviction_log import Eviction
from kvstore.namespace import Namespace, SymbolKind
from kvstore.prefix_tree import Node, Root, walk
from kvstore.prompt import Prompt
from kvstore.residency import Residency

__all__ = ["BlockFate", "Explanation", "Span"]

_TOKEN_BYTES = 4


class BlockFate(enum.Enum):
    """What became of a block of the prompt."""

    HIT = "hit"  #: resident on the device
    EVICTED = "evicted"  #: was resident and lost its page, as the eviction says
    OTHER_NAMESPACE = "other namespace"  #: resident, but for another model, adapter, tenant ...
    UNSEEN = "never seen"  #: or seen so long ago that the eviction is forgotten
    PARTIAL = "shorter than a block"  #: the last tokens do not fill one; only full blocks are shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Blocks ``[start_block, end_block)`` of the prompt met the same fate."""

    start_block: int
    end_block: int
    fate: BlockFate
    eviction: Eviction | None = None  #: where evicted
    differing_fields: tuple[str, ...] = ()  #: where another namespace has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The fate of every block, in order."""

    block_tokens: int
    spans: tuple[Span, ...]
    shared_tail_tokens: (
        int  #: tokens of the first missing block that some cached prefix shares; too few to fill a block
    )

    def __str__(self) -> str:
        lines = [self._line(span) for span in self.spans]
        if self.shared_tail_tokens:
            lines.append(
                f"shared {self.shared_tail_tokens} tokens more with a cached prompt; a block has {self.block_tokens}"
            )
        return "\n".join(lines)

    def _line(self, span: Span) -> str:
        text = f"blocks [{span.start_block}, {span.end_block}): {span.fate.value}"
        if span.eviction is not None:
            gone = span.eviction
            asker = "" if gone.by is None else f", for request {gone.by!r}"
            text += f" ({gone.reason.value}, at {gone.now_ns} ns{asker})"
        if span.differing_fields:
            text += f" (differs in {', '.join(span.differing_fields)})"
        return text


def explain(residency: Residency, prompt: Prompt, symbols: bytes, space: Namespace) -> Explanation:
    """Explain a prompt's blocks, with the store's lock held."""
    block_tokens, width = space.format.block_tokens, space.format.symbol_bytes
    full = prompt.token_count // block_tokens
    root = residency.roots.get(space.digest)
    hit = residency.match(root, symbols, full) if root is not None else 0
    spans = [Span(start_block=0, end_block=hit, fate=BlockFate.HIT)] if hit else []
    if hit < full:
        spans += _missing(residency, symbols, space, hit, full)
    if prompt.token_count % block_tokens:
        spans.append(Span(start_block=full, end_block=full + 1, fate=BlockFate.PARTIAL))
    shared = _shared_tail(root, symbols, hit, width) if root is not None and prompt.kind is SymbolKind.TOKENS else 0
    return Explanation(block_tokens=block_tokens, spans=tuple(spans), shared_tail_tokens=shared)


def _missing(residency: Residency, symbols: bytes, space: Namespace, hit: int, full: int) -> list[Span]:
    """Fates of the blocks ``[hit, full)``: what was evicted, else what another namespace has, else unseen."""
    spans: list[Span] = []
    at, width = hit, space.format.symbol_bytes
    for gone in _evictions(residency, symbols, space, hit, full):
        same = _common_bytes(gone.symbols, symbols[gone.first_block * width : full * width]) // width
        start, end = max(at, gone.first_block), gone.first_block + same  # its head may have come back since
        if start >= end:
            continue
        if at < start:
            spans.append(Span(start_block=at, end_block=start, fate=BlockFate.UNSEEN))
        spans.append(Span(start_block=start, end_block=end, fate=BlockFate.EVICTED, eviction=gone))
        at = end
    if at == hit:
        foreign = _elsewhere(residency, symbols, space, full)
        if foreign is not None and foreign.end_block > hit:
            spans.append(dataclasses.replace(foreign, start_block=hit))
            at = foreign.end_block
    if at < full:
        spans.append(Span(start_block=at, end_block=full, fate=BlockFate.UNSEEN))
    return spans


def _evictions(residency: Residency, symbols: bytes, space: Namespace, hit: int, full: int) -> list[Eviction]:
    """Evictions from this very prefix, by first block: of runs that began somewhere on it, and of the tail of the run
    where its match ends.
    """
    width, log = space.format.symbol_bytes, residency.log.read()
    found = []
    tail = log.of_tails.get(_run_at(residency, symbols, space, hit)) if hit else None
    if tail is not None and tail.first_block == hit:
        found.append(tail)
    state = xxhash.xxh3_64(seed=int.from_bytes(space.digest[:8], "little"))
    for block in range(full):
        state.update(symbols[block * width : (block + 1) * width])
        gone = log.of_runs.get(state.intdigest())
        if gone is not None and gone.first_block == block:
            found.append(gone)
    return sorted(found, key=lambda gone: (gone.first_block, -gone.now_ns))


def _run_at(residency: Residency, symbols: bytes, space: Namespace, hit: int) -> Node:
    """The run where the match of the first ``hit`` blocks ends, at its end or inside."""
    root, width = residency.roots[space.digest], space.format.symbol_bytes
    node, at = walk(root, symbols, hit * width, width)
    return node if at == hit * width else node.children[symbols[at : at + width]]


def _elsewhere(residency: Residency, symbols: bytes, space: Namespace, full: int) -> Span | None:
    """The longest match in any other namespace of the same block format."""
    best: Span | None = None
    for other in residency.roots.values():
        if other.namespace.digest == space.digest or other.namespace.format != space.format:
            continue
        blocks = residency.match(other, symbols, full)
        if blocks > (best.end_block if best else 0):
            fields = space.differing_fields(other.namespace)
            best = Span(start_block=0, end_block=blocks, fate=BlockFate.OTHER_NAMESPACE, differing_fields=fields)
    return best


def _shared_tail(root: Root, symbols: bytes, hit: int, width: int) -> int:
    """Tokens that the first missing block shares with the best of the cached blocks that might have followed."""
    node, at = walk(root, symbols, hit * width, width)
    inside = hit - node.end_block
    wanted = symbols[hit * width : (hit + 1) * width]
    best = 0
    for child in node.children.values():
        if symbols.startswith(child.edge[: inside * width], at):
            after = bytes(child.edge[inside * width : (inside + 1) * width])
            best = max(best, _common_bytes(after, wanted) // _TOKEN_BYTES)
    return best


def _common_bytes(left: bytes, right: bytes) -> int:
    """Length of the longest common prefix."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(at for at in range(limit) if left[at] != right[at])
