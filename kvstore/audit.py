"""Does everything add up? Recomputes owners of pages and pins from scratch; the counters must agree."""

from __future__ import annotations

from collections import Counter

from kvstore.block_allocator import BlockAllocator
from kvstore.core import Core
from kvstore.prefix_tree import Node, nodes_below
from kvstore.sequence import Sequence

__all__ = ["audit"]


def audit(core: Core) -> None:
    """Check INV-1 to INV-10 with the lock held; raise ``AssertionError`` on the first that is broken. O(pages)."""
    running = _running(core)
    core.residency.check_invariants()
    pages: list[int] = []
    pins: Counter[Node] = Counter()
    for root in [*core.residency.roots.values(), *core.lost]:
        for node in nodes_below(root):
            pages += node.pages
    for sequence in running:
        node, own = sequence.holdings()
        pins[node] += 1
        pages += own
    _check_pins(core, pins)
    assert len(set(pages)) == len(pages), "a page has two owners"
    if isinstance(core.allocator, BlockAllocator):  # an engine's own source may have handed pages to others besides
        out = core.allocator.page_count - core.allocator.free_count
        assert len(pages) == out, f"{out} pages are out, {len(pages)} have an owner"
        core.allocator.check_invariants()
        assert all(map(core.allocator.is_out, pages)), "an owned page lies on the free stack"


def _running(core: Core) -> list[Sequence]:
    """The sequences that run, held from now on. The collector may drop some while we look: then we look again."""
    while True:
        core.sweep()
        found = [reference() for reference in core.live.values()]
        if not core.dropped:
            running = [sequence for sequence in found if sequence is not None]
            assert len(running) == len(found), "a sequence vanished without a trace"
            return running


def _check_pins(core: Core, pins: Counter[Node]) -> None:
    for root in [*core.residency.roots.values(), *core.lost]:
        for node in [root, *nodes_below(root)]:
            assert node.pins == pins.pop(node, 0), f"{node} has {node.pins} pins of which some have no sequence"
    assert not pins, "a sequence pins a run that is not in the tree"
    assert all(root.lost for root in core.lost), "a root is set aside but matches"
