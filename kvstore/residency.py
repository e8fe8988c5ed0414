"""Which runs does the device tier hold, and which of them may go?

``Residency`` joins the tree's structure with the tier's eviction policy and keeps the counts that the store
promises. It is the
only place that changes a node once it hangs in the tree.

INV-5: ``hold`` = pins + held children; a held run is never evicted; climbing stops where a hold does not change
between 0 and 1.
INV-6: the policy is offered a run exactly while it is unheld and has no children.
INV-7: ``evictable_count`` = blocks of unheld runs = what evicting everything would really yield (a run below an
unheld one is unheld).
INV-8: ``cached_count`` = blocks of all runs; each of their pages is in the tree once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import final

import xxhash

from eviction import EvictionPolicy, RequestFacts
from kvstore.eviction_log import EvictionLog, EvictionReason
from kvstore.namespace import Namespace
from kvstore.prefix_tree import (
    Node,
    Root,
    attach,
    cut_tail,
    detach,
    lengthen,
    merge_into_child,
    nodes_below,
    path_to,
    shared_blocks,
    split,
    walk,
)

__all__ = ["Residency", "prune"]


@final
class Residency:
    """The runs of one tier, their holds and their order of eviction."""

    __slots__ = ("cached_count", "evictable_count", "log", "node_count", "policy", "roots")

    def __init__(self, policy: EvictionPolicy[Node], log: EvictionLog) -> None:
        self.policy = policy
        self.log = log
        self.roots: dict[bytes, Root] = {}
        self.cached_count = 0
        self.evictable_count = 0
        self.node_count = 0

    def root_of(self, namespace: Namespace) -> Root:
        """The namespace's root, made on first use; it vanishes when it is empty and unpinned."""
        root = self.roots.get(namespace.digest)
        if root is None:
            root = self.roots[namespace.digest] = Root(namespace)
        return root

    def match(self, root: Root, symbols: bytes, blocks: int) -> int:
        """How many of the first ``blocks`` of ``symbols`` are resident, without changing anything."""
        width = root.symbol_bytes
        limit = blocks * width
        node, at = walk(root, symbols, limit, width)
        child = node.children.get(symbols[at : at + width]) if at < limit else None
        return at // width + (shared_blocks(child, symbols, at, limit, width) if child is not None else 0)

    def descend(self, node: Node, root: Root, symbols: bytes, blocks: int) -> Node:
        """The node where the match of the first ``blocks`` of ``symbols`` ends, from ``node`` on; splits a run
        inside.
        """
        width = root.symbol_bytes
        limit = blocks * width
        node, at = walk(node, symbols, limit, width)
        return self.descend_inside(node, root, symbols, at, limit) if at < limit and node.children else node

    def descend_inside(self, node: Node, root: Root, symbols: bytes, at: int, limit: int) -> Node:
        """The rest of ``descend`` where a walk to ``node`` has ended at byte ``at`` and a child may match in part."""
        width = root.symbol_bytes
        child = node.children.get(symbols[at : at + width])
        if child is None:
            return node
        return self._split(child, shared_blocks(child, symbols, at, limit, width), root, symbols)

    def cut_above(self, node: Node, blocks: int, root: Root, symbols: bytes) -> Node:
        """The node on the path to ``node`` that ends after ``blocks`` blocks, inside ``node`` or where it begins."""
        inside = blocks - node.first_block
        if inside:
            return self._split(node, inside, root, symbols)
        assert node.parent is not None
        return node.parent

    def pin(self, node: Node) -> None:
        """Protect the path to the end of ``node``. Cost: O(nodes that were not held)."""
        node.pins += 1
        parent = node.parent
        while parent is not None:
            node.hold += 1
            if node.hold != 1:
                return
            self.evictable_count -= len(node.pages)
            if not node.children:
                self.policy.withdraw(node)
            node, parent = parent, parent.parent

    def unpin(self, node: Node) -> None:
        """Inverse of ``pin``."""
        assert node.pins > 0, "unpinned more often than pinned"
        node.pins -= 1
        parent = node.parent
        while parent is not None:
            node.hold -= 1
            if node.hold:
                return
            self.evictable_count += len(node.pages)
            if not node.children:
                self.policy.offer(node)
            node, parent = parent, parent.parent
        if not node.pins and not node.children:
            self._forget_root(node)

    def move_pin(self, source: Node, target: Node) -> None:
        """Pin ``target``, a descendant of ``source``, instead of ``source``."""
        self.pin(target)
        source.pins -= 1
        if source.parent is not None:
            source.hold -= 1

    def publish(self, parent: Node, root: Root, symbols: bytes | bytearray, pages: array[int]) -> Node:
        """Add a pinned run below ``parent``, which the caller has pinned; moves that pin to the new run.

        Args:
            symbols: of the whole path, at least to the end of the new run.
            pages: of the new run; they belong to the tree from now on.
        """
        width, first, blocks = root.symbol_bytes, parent.end_block, len(pages)
        with memoryview(symbols) as view:
            ghost_id = xxhash.xxh3_64_intdigest(view[: (first + 1) * width], root.seed)
            # A prompt of whole blocks of which nothing was cached becomes the edge as it is: its snapshot is immutable.
            whole = not first and type(symbols) is bytes and len(symbols) == blocks * width
            edge = symbols if whole else bytearray(view[first * width : (first + blocks) * width])
            node = Node(parent, edge, pages, first, ghost_id)
        attach(parent, node, width)
        node.pins = node.hold = 1
        parent.pins -= 1  # its hold stays: the pin became a held child
        self.policy.insert(node, first_block=first, block_count=blocks, ghost_id=ghost_id)
        self.cached_count += blocks
        self.node_count += 1
        return node

    def grow(self, node: Node, edge: memoryview, pages: array[int]) -> None:
        """Append blocks to a held run without children."""
        lengthen(node, edge, pages)
        self.policy.grow(node, len(pages))
        self.cached_count += len(pages)

    def used(self, request: RequestFacts, node: Node) -> None:
        """A request ended whose path ended with ``node``: tell the policy, then join what became equally cold.

        Call it before the request's pin goes, so that the runs that it joins are still held.
        """
        parent = node.parent
        if parent is None:
            return
        if parent.parent is None:  # one run: nothing to join
            self.policy.used(request, (node,))
            return
        path = path_to(node)
        self.policy.used(request, path)
        for upper in path[:-1]:  # top down: each run is copied once into the storage of the one above it
            if len(upper.children) == 1 and not upper.pins:
                self._merge(upper)

    def evict(self, count: int, reason: EvictionReason, *, now_ns: int, by: int | str | None) -> array[int]:
        """Evict exactly ``count`` blocks, coldest first, tails first; returns their pages.

        The caller has checked that ``count`` are evictable. Cost: O(runs touched).
        """
        assert count <= self.evictable_count
        freed: list[array[int]] = []
        left, victims = count, self.policy.victims
        while left:
            node, cold = next(victims())
            assert cold > 0 and not node.hold and not node.children, "the policy yields what was not on offer"  # noqa: PT018
            end = node.first_block + len(node.pages)
            taken = min(cold, len(node.pages), left)
            ghost_id = None
            if taken == len(node.pages):
                ghost_id, pages, symbols = node.ghost_id, node.pages, node.edge
                self._drop_leaf(node)
            else:
                pages, symbols = cut_tail(node, taken, len(node.edge) // len(node.pages))
                self.policy.shrink(node, taken)
                self.cached_count -= taken
                self.evictable_count -= taken
            freed.append(pages)
            self.log.note(node, ghost_id, end - taken, end, symbols, reason, now_ns, by)
            left -= taken
        self.log.block_counts[reason] += count
        self.log.forget_oldest()
        return array("i", b"".join(freed))

    def forget(self, *, now_ns: int) -> tuple[array[int], list[Root]]:
        """Drop every unheld run and take the rest out of matching.

        Returns:
            the pages that came free, and the roots whose held runs live on, unmatched, until their holders let go.
        """
        freed: array[int] = array("i")
        lost = []
        for root in self.roots.values():
            for node in list(nodes_below(root)):
                self.policy.remove(node)
                symbols = bytes(node.edge)  # a copy: a held run lives on
                self.log.note(
                    node, node.ghost_id, node.first_block, node.end_block, symbols, EvictionReason.RESET, now_ns, None
                )
            freed += prune(root)
            if root.children or root.pins:
                root.lost = True
                lost.append(root)
        self.log.block_counts[EvictionReason.RESET] += self.cached_count
        self.log.forget_oldest()
        self.roots.clear()
        self.cached_count = self.evictable_count = self.node_count = 0
        return freed, lost

    @staticmethod
    def let_go(node: Node, root: Root) -> array[int]:
        """Unpin a node whose root is out of matching; returns the pages that nobody holds any more. O(path)."""
        freed: array[int] = array("i")
        node.pins -= 1
        at = node
        while at is not root:
            at.hold -= 1
            if at.hold:
                break
            freed += at.pages  # a reset has cut all that is not held, so what is held no more has nothing below it
            detach(at, root.symbol_bytes)
            assert at.parent is not None
            at = at.parent
        return freed

    def check_invariants(self) -> None:
        """INV-1 to INV-3 and INV-5 to INV-8, from scratch. O(blocks)."""
        cached = unheld = nodes = 0
        offered = {node for node, _ in self.policy.victims()}
        for root in self.roots.values():
            assert root.children or root.pins, "an empty root lingers"
            for node in nodes_below(root):
                _check_node(node, root.symbol_bytes)
                nodes += 1
                cached += len(node.pages)
                unheld += 0 if node.hold else len(node.pages)
                frontier = not node.hold and not node.children
                assert (node in offered) == frontier, f"{node} is {'' if frontier else 'not '}on the frontier"
        assert (cached, unheld, nodes) == (self.cached_count, self.evictable_count, self.node_count), "counts drifted"
        self.policy.check_invariants()

    def _split(self, node: Node, blocks: int, root: Root, symbols: bytes) -> Node:
        width, cut = root.symbol_bytes, node.first_block + blocks
        with memoryview(symbols) as view:
            state = xxhash.xxh3_64(view[: cut * width], root.seed)
        state.update(node.edge[blocks * width : (blocks + 1) * width])
        ghost_id = state.intdigest()
        upper = split(node, blocks, width, ghost_id)
        self.policy.split(node, upper, blocks, ghost_id=ghost_id)
        self.node_count += 1
        return upper

    def _merge(self, upper: Node) -> None:
        (child,) = upper.children.values()
        if self.policy.can_merge(upper, child):
            merge_into_child(upper, len(upper.edge) // len(upper.pages))
            self.policy.merge(upper, child)
            self.node_count -= 1

    def _drop_leaf(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        blocks = len(node.pages)
        detach(node, len(node.edge) // blocks)
        self.policy.remove(node)
        self.cached_count -= blocks
        self.evictable_count -= blocks
        self.node_count -= 1
        if parent.parent is None:
            if not parent.children and not parent.pins:
                self._forget_root(parent)
        elif not parent.hold:
            if not parent.children:
                self.policy.offer(parent)
            elif len(parent.children) == 1:
                self._merge(parent)

    def _forget_root(self, node: Node) -> None:
        assert isinstance(node, Root)
        # A root that a forced reset has set aside is no longer listed, or another has taken its place.
        if self.roots.get(node.namespace.digest) is node:
            del self.roots[node.namespace.digest]


def prune(root: Root) -> array[int]:
    """Cut every unheld run below ``root``; returns their pages. For roots that are out of matching."""
    freed: array[int] = array("i")
    for node in reversed(list(nodes_below(root))):
        if not node.hold:
            freed += node.pages
            detach(node, root.symbol_bytes)
    return freed


def _check_node(node: Node, width: int) -> None:
    parent = node.parent
    assert parent is not None
    assert node.edge, "an edge is empty"
    assert len(node.edge) == width * len(node.pages), "an edge does not fit its pages"
    assert parent.children.get(bytes(node.edge[:width])) is node, "a child hangs under the wrong symbol"
    assert node.first_block == parent.end_block, "first_block drifted"
    assert node.pins >= 0
    held: Sequence[Node] = [child for child in node.children.values() if child.hold]
    assert node.hold == node.pins + len(held), f"{node} has {node.pins} pins and {len(held)} held children"
