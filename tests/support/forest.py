"""A tiny prefix tree of one tier: the caller that an eviction policy leans on, without pages, bytes or time.

It keeps the rules of the contract (holds, frontier, growth, splits, merges) and nothing else, and evicts one answer of
the policy at a time. Blocks are symbols of a prompt; a block's name is its whole prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from eviction import NEVER, EvictionPolicy

__all__ = ["Facts", "Forest", "Foreseen", "Node", "Request", "replay"]

Prefix = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the policy may know of a request."""

    request_id: int | str | None = None
    token_count: int = 0
    matched_tokens: int = 0
    begun_ns: int = 0


@dataclass(slots=True, eq=False)
class Node:
    """A run. Its hash depends on a salt, so that tests can show that no answer depends on the order of a set."""

    serial: int
    salt: int
    parent: Node | None
    start: int
    symbols: list[int] = field(default_factory=list)
    children: dict[int, Node] = field(default_factory=dict)
    pins: int = 0
    holds: int = 0
    offered: bool = False

    def __hash__(self) -> int:
        return hash((self.salt, self.serial))

    def __repr__(self) -> str:
        return f"run {self.serial} {list(self.prefix())}"

    @property
    def end(self) -> int:
        return self.start + len(self.symbols)

    def path(self) -> list[Node]:
        """The runs from the root to this one, root first (the empty root itself is none)."""
        path, node = [], self
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path[::-1]

    def prefix(self) -> Prefix:
        return tuple(symbol for node in self.path() for symbol in node.symbols)


@dataclass(slots=True, eq=False)
class Request:
    """A running request: pins its path by a pin on the deepest run of it."""

    facts: Facts
    node: Node
    matched: int  #: blocks found at its begin
    owns: bool = False  #: the deepest run is its own and may grow


class Forest:
    """The tree's side of the contract.

    Args:
        policy: told of everything, asked for victims.
        salt: changes the hashes of keys, and must change nothing else.
    """

    def __init__(self, policy: EvictionPolicy[Node], *, salt: int = 0) -> None:
        self.policy = policy
        self.block_count = 0
        self._salt = salt
        self._serials = count(1)
        self._root = Node(0, salt, None, 0, pins=1, holds=1)

    def begin(self, prompt: Sequence[int], *, request_id: int | str | None = None) -> Request:
        """Pin the longest resident prefix; a match that ends inside a run splits it."""
        node, _ = self._descend(self._root, prompt)
        self._hold(node)
        return Request(Facts(request_id=request_id, token_count=len(prompt), matched_tokens=node.end), node, node.end)

    def extend(self, request: Request, symbols: Sequence[int]) -> None:
        """Commit the next blocks of a request: adopt what is there, grow its own run, or add a run."""
        node, rest = self._descend(request.node, symbols)
        if node is not request.node:
            self._move_pin(request, node)
            request.owns = False
        if not rest:
            return
        if request.owns and node.holds == 1 and not node.children:
            node.symbols.extend(rest)
            self.policy.grow(node, len(rest))
        else:
            self._move_pin(request, self._insert(node, rest))
            request.owns = True
        self.block_count += len(rest)

    def release(self, request: Request, *, used: bool = True) -> None:
        """End a request; without ``used`` it was abandoned, or only a transfer that protects what it copies."""
        path = request.node.path()
        if used:
            self.policy.used(request.facts, path)
        self._unhold(request.node)
        for node in path[1:]:
            self._merge_into_only_child(node.parent)
        self._merge_into_only_child(request.node)

    def evictable(self) -> int:
        """Blocks that evicting everything would free."""
        return sum(len(node.symbols) for node in self.nodes() if not node.holds)

    def evict(self, block_count: int) -> list[Prefix]:
        """Evict exactly so many blocks, as the policy says; their names in order of leaving."""
        gone: list[Prefix] = []
        while len(gone) < block_count:
            node, cold = next(self.policy.victims(), (None, 0))
            assert node is not None, f"{block_count - len(gone)} blocks too many"
            assert node.offered, f"not on offer: {node!r}"
            assert cold >= 1
            gone += self.drop(node, min(cold, len(node.symbols), block_count - len(gone)))
        return gone

    def drop(self, node: Node, block_count: int) -> list[Prefix]:
        """Take the deepest blocks of an offered run away, whoever chose it."""
        prefix = node.prefix()
        gone = [prefix[: len(prefix) - taken] for taken in range(block_count)]
        self.block_count -= block_count
        if block_count < len(node.symbols):
            del node.symbols[-block_count:]
            self.policy.shrink(node, block_count)
            return gone
        parent = node.parent
        assert parent is not None
        del parent.children[node.symbols[0]]
        node.offered = False
        self.policy.remove(node)
        self._settle(parent)
        self._merge_into_only_child(parent)
        return gone

    def nodes(self) -> Iterator[Node]:
        """All runs, parents before children, in an order that only the calls decide."""
        waiting = list(self._root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    def find(self, prefix: Sequence[int]) -> Node:
        """The run that holds the last block of a resident prefix."""
        node = self._root
        while node.end < len(prefix):
            node = node.children[prefix[node.end]]
        return node

    def resident(self) -> set[Prefix]:
        """The names of all blocks."""
        return {
            prefix[:end]
            for node in self.nodes()
            for prefix in [node.prefix()]
            for end in range(node.start + 1, node.end + 1)
        }

    def check(self) -> None:
        """Recompute what is kept incrementally, here and in the policy."""
        for node in self.nodes():
            assert node.symbols
            assert node.holds == node.pins + sum(child.holds > 0 for child in node.children.values())
            assert node.offered == (not node.holds and not node.children)
            assert node.parent is not None
            assert node.start == node.parent.end
        assert self.block_count == sum(len(node.symbols) for node in self.nodes())
        offered = [node for node in self.nodes() if node.offered]
        yielded = [node for node, _ in self.policy.victims()]
        assert len(yielded) == len(set(yielded))
        assert set(yielded) == set(offered)
        self.policy.check_invariants()

    def _descend(self, node: Node, symbols: Sequence[int]) -> tuple[Node, list[int]]:
        rest = list(symbols)
        while rest and rest[0] in node.children:
            node = node.children[rest[0]]
            common = next((i for i, (a, b) in enumerate(zip(node.symbols, rest, strict=False)) if a != b), None)
            common = min(len(node.symbols), len(rest)) if common is None else common
            if common < len(node.symbols):
                node = self._split(node, common)
            rest = rest[common:]
        return node, rest

    def _insert(self, parent: Node, symbols: list[int]) -> Node:
        node = Node(next(self._serials), self._salt, parent, parent.end, symbols)
        parent.children[symbols[0]] = node
        self.policy.insert(node, first_block=node.start, block_count=len(symbols), ghost_id=node.serial)
        return node

    def _split(self, node: Node, at: int) -> Node:
        parent = node.parent
        assert parent is not None
        upper = Node(next(self._serials), self._salt, parent, node.start, node.symbols[:at], holds=int(node.holds > 0))
        parent.children[upper.symbols[0]] = upper
        node.symbols, node.start, node.parent = node.symbols[at:], node.start + at, upper
        upper.children[node.symbols[0]] = node
        self.policy.split(node, upper, at, ghost_id=upper.serial)
        return upper

    def _merge_into_only_child(self, upper: Node | None) -> None:
        if upper is None or upper is self._root or len(upper.children) != 1 or upper.pins:
            return
        (node,) = upper.children.values()
        if self.policy.can_merge(upper, node):
            self.policy.merge(upper, node)
            node.symbols, node.start, node.parent = upper.symbols + node.symbols, upper.start, upper.parent
            assert node.parent is not None
            node.parent.children[node.symbols[0]] = node

    def _settle(self, node: Node) -> None:
        offered = node is not self._root and not node.holds and not node.children
        if offered != node.offered:
            node.offered = offered
            (self.policy.offer if offered else self.policy.withdraw)(node)

    def _hold(self, node: Node) -> None:
        node.pins += 1
        climbing: Node | None = node
        while climbing is not None:
            climbing.holds += 1
            self._settle(climbing)
            climbing = climbing.parent if climbing.holds == 1 else None

    def _unhold(self, node: Node) -> None:
        node.pins -= 1
        climbing: Node | None = node
        while climbing is not None:
            climbing.holds -= 1
            self._settle(climbing)
            climbing = climbing.parent if not climbing.holds else None

    def _move_pin(self, request: Request, node: Node) -> None:
        self._hold(node)
        self._unhold(request.node)
        request.node = node


class Foreseen:
    """The future of a list of prompts, found by looking: an oracle for the optimum."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self._prompts = [tuple(prompt) for prompt in prompts]

    def segments(self, request_id: int) -> tuple[Sequence[int], Sequence[int]]:
        prompt = self._prompts[request_id]
        ends: list[int] = []
        next_uses: list[int] = []
        for end in range(1, len(prompt) + 1):
            next_use = self._next_use(prompt[:end], request_id)
            if next_uses and next_uses[-1] == next_use:
                ends[-1] = end
            else:
                ends.append(end)
                next_uses.append(next_use)
        return ends, next_uses

    def _next_use(self, prefix: Prefix, request_id: int) -> int:
        later = range(request_id + 1, len(self._prompts))
        return next((ordinal for ordinal in later if self._prompts[ordinal][: len(prefix)] == prefix), NEVER)


def replay(policy: EvictionPolicy[Node], prompts: Iterable[Sequence[int]], capacity: int) -> list[int]:
    """Blocks hit by each prompt, one prompt after the other; the capacity bounds what stays cached after each."""
    forest = Forest(policy)
    hits = []
    for ordinal, prompt in enumerate(prompts):
        request = forest.begin(prompt, request_id=ordinal)
        hits.append(request.matched)
        forest.extend(request, prompt[request.matched :])
        forest.release(request)
        forest.evict(max(0, forest.block_count - capacity))
    return hits
