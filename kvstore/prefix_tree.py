"""What matches? A radix tree whose edges are the bytes of whole runs of blocks.

A *node* is a run: consecutive blocks of one prefix that share one fate (the same residency, the same children). Its
edge holds the symbols of its blocks back to back; children are found by a dict on their first symbol. A whole edge is
compared by one memcmp in place (``startswith(edge, offset)``), never by slicing the rest of the prompt, never token
by token. So a
128 k-token prompt in three nodes costs three steps.

This file knows structure only: no policy, no counters, no locks. Matching is a pure query.

INV-1: an edge is never empty and holds whole symbols; ``len(pages)`` is its block count.
INV-2: a child is found under the first symbol of its edge; so siblings differ in their first block.
INV-3: ``first_block`` is the number of blocks between the root and the node.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, final

from kvstore.namespace import Namespace

__all__ = [
    "NAME_BYTES",
    "Node",
    "Root",
    "attach",
    "cut_tail",
    "detach",
    "lengthen",
    "merge_into_child",
    "nodes_below",
    "pages_to",
    "path_to",
    "shared_blocks",
    "split",
    "walk",
]

NAME_BYTES: Final = 32  #: of a block name, a SHA-256 digest
_NO_CHILDREN: Final[dict[bytes, Node]] = {}  # shared by all leaves: an empty dict of one's own costs 64 bytes


class Node:
    """A run of blocks; see the module."""

    __slots__ = ("children", "edge", "first_block", "ghost_id", "hold", "names", "pages", "parent", "pins")

    def __init__(
        self, parent: Node | None, edge: bytes | bytearray, pages: array[int], first_block: int, ghost_id: int
    ) -> None:
        self.parent = parent
        self.edge = edge  #: symbols of the run's blocks; a prompt's own snapshot until the run is changed in place
        self.pages = pages  #: page ids, one for each block
        self.children = _NO_CHILDREN
        self.first_block = first_block
        self.ghost_id = ghost_id  #: names the first block by its whole prefix
        self.pins = 0  #: sequences whose deepest shared block is this run's last
        self.hold = 0  #: pins + children that are held
        self.names = b""  #: block names of a leading part of the run, computed when somebody asked

    @property
    def end_block(self) -> int:
        """Blocks between the root and the end of this run."""
        return self.first_block + len(self.pages)

    def __repr__(self) -> str:
        blocks = f"blocks [{self.first_block}, {self.end_block})"
        return f"{type(self).__name__}({blocks}, hold={self.hold}, {len(self.children)} children)"


@final
class Root(Node):
    """The empty prefix of one namespace."""

    __slots__ = ("lost", "namespace", "seed", "symbol_bytes")

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(None, b"", array("i"), 0, 0)
        self.namespace = namespace
        self.lost = False  #: a forced reset took it out of matching while sequences still hold runs of it
        self.symbol_bytes = namespace.format.symbol_bytes
        self.seed = int.from_bytes(namespace.digest[:8], "little")  #: of this namespace's ghost ids


def walk(node: Node, symbols: bytes, limit: int, symbol_bytes: int) -> tuple[Node, int]:
    """The deepest node below ``node`` whose run lies whole in ``symbols[:limit]``, and the byte where it ends.

    ``node`` itself matches. Cost: one dict look-up and one memcmp for each node passed.
    """
    at = (node.first_block + len(node.pages)) * symbol_bytes
    while True:
        child = node.children.get(symbols[at : at + symbol_bytes])
        if child is None:
            return node, at
        end = at + len(child.edge)
        if end > limit or not symbols.startswith(child.edge, at):
            return node, at
        node, at = child, end


def shared_blocks(child: Node, symbols: bytes, at: int, limit: int, symbol_bytes: int) -> int:
    """How many leading blocks of ``child`` equal ``symbols[at:limit]``; for a child that does not match as a whole.

    Bisects by memcmp: each step compares half of what is still unknown, so all steps together compare the run once.
    """
    with memoryview(child.edge) as edge:
        same, unknown = 0, min(len(edge), limit - at) // symbol_bytes
        while same < unknown:
            middle = (same + unknown + 1) // 2
            if symbols.startswith(edge[same * symbol_bytes : middle * symbol_bytes], at + same * symbol_bytes):
                same = middle
            else:
                unknown = middle - 1
    return same


def path_to(node: Node) -> list[Node]:
    """The nodes from below the root to ``node``, root first."""
    path = []
    while node.parent is not None:
        path.append(node)
        node = node.parent
    path.reverse()
    return path


def pages_to(node: Node, blocks: int) -> array[int]:
    """Page ids of the first ``blocks`` blocks of the path that ends with ``node``; a copy."""
    parent = node.parent
    if parent is None or parent.parent is None:  # a root, or the common case of one run
        return node.pages[:blocks]
    pages = array("i")
    for run in path_to(node):
        pages += run.pages
    return pages[:blocks]


def attach(parent: Node, node: Node, symbol_bytes: int) -> None:
    """Hang ``node`` under ``parent``."""
    if parent.children is _NO_CHILDREN:
        parent.children = {}
    parent.children[bytes(node.edge[:symbol_bytes])] = node
    node.parent = parent


def detach(node: Node, symbol_bytes: int) -> None:
    """Unhang ``node`` from its parent. It keeps its ``parent`` reference."""
    parent = node.parent
    assert parent is not None
    if len(parent.children) == 1:
        parent.children = _NO_CHILDREN
    else:
        del parent.children[bytes(node.edge[:symbol_bytes])]


def lengthen(node: Node, edge: memoryview, pages: array[int]) -> None:
    """Append blocks to a run without children. Amortised O(blocks appended)."""
    assert not node.children
    node.edge = longer = _editable(node.edge)
    longer += edge
    node.pages += pages


def split(node: Node, blocks: int, symbol_bytes: int, ghost_id: int) -> Node:
    """Cut a run after its first ``blocks`` blocks; returns the new upper half.

    The deeper half keeps its identity (and so its pins): whoever refers to a node refers to its end.

    Args:
        ghost_id: of the lower half's first block.
    """
    parent, cut = node.parent, blocks * symbol_bytes
    assert parent is not None
    assert 0 < blocks < len(node.pages)
    edge, pages = node.edge, node.pages
    # Copy the smaller half and cut it off the larger one in place: a 128 k-token run has half a megabyte.
    if 2 * cut <= len(edge):
        upper = Node(parent, edge[:cut], pages[:blocks], node.first_block, node.ghost_id)
        node.edge = _without_head(edge, cut)
        del pages[:blocks]
    else:
        node.edge, node.pages = edge[cut:], pages[blocks:]
        del pages[blocks:]
        upper = Node(parent, _without_tail(edge, cut), pages, node.first_block, node.ghost_id)
    attach(parent, upper, symbol_bytes)
    upper.names, node.names = node.names[: NAME_BYTES * blocks], node.names[NAME_BYTES * blocks :]
    node.first_block += blocks
    node.ghost_id = ghost_id
    upper.hold = 1 if node.hold else 0
    attach(upper, node, symbol_bytes)
    return upper


def merge_into_child(upper: Node, symbol_bytes: int) -> Node:
    """Undo a split: the only child of ``upper`` takes over its blocks. Returns the child. O(blocks of the child)."""
    parent = upper.parent
    assert parent is not None
    assert upper.pins == 0
    (child,) = upper.children.values()
    if len(upper.names) == NAME_BYTES * len(upper.pages):
        child.names = upper.names + child.names
    else:
        child.names = upper.names
    # Appending to the upper half's own storage is amortised O(child): a chat's long head is not copied at each turn.
    upper.edge = longer = _editable(upper.edge)
    longer += child.edge
    upper.pages += child.pages
    child.edge, child.pages = upper.edge, upper.pages
    child.first_block, child.ghost_id = upper.first_block, upper.ghost_id
    attach(parent, child, symbol_bytes)
    return child


def cut_tail(node: Node, blocks: int, symbol_bytes: int) -> tuple[array[int], bytes | bytearray]:
    """Take the deepest ``blocks`` blocks off a run that keeps at least one; returns their pages and symbols."""
    assert 0 < blocks < len(node.pages)
    pages, symbols = node.pages[-blocks:], node.edge[-blocks * symbol_bytes :]
    del node.pages[-blocks:]
    node.edge = shorter = _editable(node.edge)
    del shorter[-blocks * symbol_bytes :]
    node.names = node.names[: NAME_BYTES * len(node.pages)]
    return pages, symbols


def nodes_below(node: Node) -> Iterator[Node]:
    """Every node below, parents before children. Do not change the tree meanwhile."""
    stack = list(node.children.values())
    while stack:
        found = stack.pop()
        yield found
        stack.extend(found.children.values())


def _editable(edge: bytes | bytearray) -> bytearray:
    """An edge that may be changed in place; the first time, a copy of the snapshot that it began as."""
    return edge if type(edge) is bytearray else bytearray(edge)


def _without_head(edge: bytes | bytearray, cut: int) -> bytes | bytearray:
    if type(edge) is bytearray:
        del edge[:cut]
        return edge
    return edge[cut:]


def _without_tail(edge: bytes | bytearray, cut: int) -> bytes | bytearray:
    if type(edge) is bytearray:
        del edge[cut:]
        return edge
    return edge[:cut]
