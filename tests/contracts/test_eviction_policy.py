"""What every eviction policy promises, online or not, and what wrong orders looked like in the field."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType, FunctionType, ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eviction import EvictionPolicy, OptimalPolicy, make_policy, policy_names
from tests.support.forest import Facts, Foreseen, Forest, replay
from tests.support.forest_scripts import Step, play, prompts_of, scripts, traces

EVERY = (*policy_names(), "optimal")


class AsRecent:
    """An oracle that makes the optimum's order that of recency: what was used later comes back earlier."""

    def segments(self, request_id: int) -> tuple[Sequence[int], Sequence[int]]:
        return (1_000_000,), (1_000_000 - request_id,)


def policy_for(name: str, prompts: Sequence[Sequence[int]] | None = None) -> EvictionPolicy:
    if name != "optimal":
        return make_policy(name)
    return OptimalPolicy(AsRecent() if prompts is None else Foreseen(prompts))


@pytest.fixture(params=EVERY)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def policy(name: str) -> EvictionPolicy[int]:
    return policy_for(name)


def insert(policy: EvictionPolicy, *keys: object, first_block: int = 0, block_count: int = 4) -> None:
    for key in keys:
        policy.insert(key, first_block=first_block, block_count=block_count, ghost_id=0)


def use(policy: EvictionPolicy, *path: object, request_id: int = 0) -> None:
    policy.used(Facts(request_id=request_id), path)


def keys(policy: EvictionPolicy) -> list[object]:
    return [key for key, _ in policy.victims()]


# Order


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=50)
@given(script=scripts())
def test_offered_runs_and_no_others_are_victims(name: str, script: list[Step]) -> None:
    """Compared after every step."""
    play(script, Forest(policy_for(name, prompts_of(script))))


@pytest.mark.parametrize("name", EVERY)
@given(prompts=traces())
def test_a_block_leaves_after_the_blocks_below_it(name: str, prompts: list[tuple[int, ...]]) -> None:
    forest = Forest(policy_for(name, prompts))
    for ordinal, prompt in enumerate(prompts):
        request = forest.begin(prompt, request_id=ordinal)
        forest.extend(request, prompt[request.matched :])
        forest.release(request)
    resident = forest.resident()
    gone = forest.evict(forest.block_count)
    assert set(gone) == resident
    assert len(gone) == len(resident)
    for i, block in enumerate(gone):
        assert not any(later[: len(block)] == block for later in gone[i + 1 :])


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=50)
@given(script=scripts())
def test_a_walk_changes_no_answer(name: str, script: list[Step]) -> None:
    watched = play(script, Forest(policy_for(name, prompts_of(script))), check=False)
    assert watched == play(script, Forest(policy_for(name, prompts_of(script))), peeks=False, check=False)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=50)
@given(script=scripts(), salt=st.integers(1, 2**32))
def test_equal_calls_give_equal_victims_whatever_the_keys_hash_to(name: str, script: list[Step], salt: int) -> None:
    plain, salted = (Forest(policy_for(name, prompts_of(script)), salt=salt) for salt in (0, salt))
    assert play(script, plain, check=False) == play(script, salted, check=False)


def test_walks_start_over_from_the_coldest(policy: EvictionPolicy[int]) -> None:
    insert(policy, *range(10))
    for key in range(10):
        use(policy, key)
        policy.offer(key)
    whole = list(policy.victims())
    assert len(whole) == 10
    for taken in (0, 1, 5, 10):
        assert list(islice(policy.victims(), taken)) == whole[:taken]
        policy.check_invariants()
    assert list(policy.victims()) == whole


def test_withdrawing_and_offering_again_changes_no_order(policy: EvictionPolicy[int]) -> None:
    insert(policy, *range(10))
    for request_id, key in enumerate((3, 1, 4, 5, 9, 2, 6, 8, 7, 0)):
        use(policy, key, request_id=request_id)
    for key in range(10):
        policy.offer(key)
    before = keys(policy)
    for key in (2, 8, 3, 0):
        policy.withdraw(key)
    assert set(keys(policy)) == set(range(10)) - {2, 8, 3, 0}
    for key in (8, 0, 3, 2):
        policy.offer(key)
        policy.check_invariants()
    assert keys(policy) == before


def test_use_while_on_offer_keeps_the_offer(policy: EvictionPolicy[int]) -> None:
    insert(policy, *range(4))
    for key in range(4):
        policy.offer(key)
    policy.withdraw(0)
    policy.withdraw(1)
    assert set(keys(policy)) == {2, 3}
    assert set(keys(policy)) == {2, 3}
    policy.offer(0)
    use(policy, 0)
    use(policy, 1)
    policy.check_invariants()
    assert set(keys(policy)) == {0, 2, 3}
    policy.withdraw(0)
    policy.check_invariants()
    assert set(keys(policy)) == {2, 3}


def test_merge_undoes_split(policy: EvictionPolicy[str]) -> None:
    insert(policy, "run", block_count=6)
    use(policy, "run")
    policy.offer("run")
    policy.split("run", "upper", 2, ghost_id=1)
    policy.check_invariants()
    assert keys(policy) == ["run"]
    assert policy.can_merge("upper", "run")
    policy.merge("upper", "run")
    policy.check_invariants()
    assert keys(policy) == ["run"]
    insert(policy, "upper")
    policy.shrink("run", 5)
    policy.check_invariants()


# Misuse


@pytest.mark.parametrize(
    "call",
    [
        lambda policy: insert(policy, "known"),
        lambda policy: insert(policy, "new", block_count=0),
        lambda policy: policy.grow("unknown", 1),
        lambda policy: policy.grow("known", 0),
        lambda policy: policy.shrink("unknown", 1),
        lambda policy: policy.shrink("known", 0),
        lambda policy: policy.remove("unknown"),
        lambda policy: policy.split("unknown", "new", 1, ghost_id=1),
        lambda policy: policy.split("known", "other", 1, ghost_id=1),
        lambda policy: policy.split("known", "new", 0, ghost_id=1),
        lambda policy: policy.can_merge("known", "unknown"),
        lambda policy: policy.can_merge("unknown", "known"),
        lambda policy: policy.merge("unknown", "known"),
        lambda policy: policy.merge("known", "unknown"),
        lambda policy: policy.merge("other", "known"),
        lambda policy: policy.offer("unknown"),
        lambda policy: policy.offer("other"),
        lambda policy: policy.withdraw("unknown"),
        lambda policy: policy.withdraw("known"),
        lambda policy: use(policy, "unknown"),
    ],
)
def test_calls_against_the_rules_are_assertion_errors(
    policy: EvictionPolicy[str], call: Callable[[EvictionPolicy[str]], None]
) -> None:
    insert(policy, "known", "other", "gone")
    use(policy, "known")
    use(policy, "other")
    policy.offer("other")
    policy.remove("gone")
    with pytest.raises(AssertionError):
        call(policy)


# Cost


class Key:
    """An opaque key as the tree has them: an object with the default hash."""


def reachable_count(start: object) -> int:
    """Objects that an object keeps alive, code and types aside."""
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in seen and not isinstance(thing, type | FunctionType | ModuleType):
            seen[id(thing)] = thing
            waiting += gc.get_referents(thing)
    return len(seen)


def test_nothing_is_kept_of_runs_that_left(policy: EvictionPolicy[Key]) -> None:
    for _ in range(20):
        batch = [Key() for _ in range(500)]
        insert(policy, *batch)
        for key in batch:
            use(policy, key)
        for key in batch[::2]:
            policy.offer(key)
        keys(policy)
        for key in batch:
            policy.remove(key)
    keys(policy)
    policy.check_invariants()
    assert reachable_count(policy) < 500


def test_a_run_that_is_used_again_and_again_leaves_no_trail(policy: EvictionPolicy[Key]) -> None:
    batch = [Key() for _ in range(10)]
    insert(policy, *batch)
    for _ in range(500):
        for key in batch:
            use(policy, key)
            policy.offer(key)
        next(policy.victims())
        for key in batch:
            policy.withdraw(key)
    policy.check_invariants()
    assert reachable_count(policy) < 1000


class StepCounter:
    """Counts the lines of ``eviction`` that run, comprehensions included: work without the machine's noise."""

    def __init__(self) -> None:
        self.lines = 0

    @contextmanager
    def counting(self) -> Iterator[StepCounter]:
        self.lines = 0
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield self
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Callable[..., object] | None:
        return self._step if frame.f_globals.get("__name__", "").startswith("eviction.") else None

    def _step(self, frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        self.lines += event == "line"
        return self._step


SIZES = (1_000, 64_000)


def prepared(name: str, *, held: int, offered: int, coldest: int = 0) -> EvictionPolicy[int]:
    """Runs in one order of age: ``coldest`` offered ones, then ``held`` ones, then ``offered`` ones."""
    policy = policy_for(name)
    facts = Facts(request_id=0)
    for key in range(coldest + held + offered):
        policy.insert(key, first_block=0, block_count=4, ghost_id=0)
        policy.used(facts, [key])
        if not coldest <= key < coldest + held:
            policy.offer(key)
    return policy


def lines_of(work: Callable[[], object]) -> int:
    with StepCounter().counting() as counter:
        work()
    return counter.lines


def test_one_use_costs_the_same_among_many_runs(name: str) -> None:
    def cost(size: int) -> int:
        policy = prepared(name, held=0, offered=size)

        def request() -> None:
            policy.withdraw(size // 2)
            policy.used(Facts(request_id=0), [size // 2])
            policy.offer(size // 2)

        return lines_of(request)

    small, large = map(cost, SIZES)
    assert small == large


def test_pinned_runs_at_the_cold_end_are_paid_for_once(name: str) -> None:
    def costs(size: int) -> tuple[int, int]:
        policy = prepared(name, held=size, offered=64)

        def evict() -> None:
            for _ in range(32):
                key, _ = next(policy.victims())
                policy.remove(key)

        return lines_of(lambda: next(policy.victims())), lines_of(evict) + lines_of(lambda: next(policy.victims()))

    (_, small), (first, large) = map(costs, SIZES)
    assert first <= 10 * SIZES[1]
    # The second walk puts aside what the first one met: once, and only then.
    settled = prepared(name, held=SIZES[1], offered=64)
    next(settled.victims())
    setting_aside = lines_of(lambda: next(settled.victims()))
    assert setting_aside <= 10 * SIZES[1]
    assert lines_of(lambda: next(settled.victims())) <= 40
    assert large - small <= setting_aside


def test_pinned_runs_between_two_victims_are_paid_for_once(name: str) -> None:
    """Page-out walks past cold runs that it leaves, again and again."""

    def cost(size: int) -> int:
        policy = prepared(name, coldest=1, held=size, offered=10)
        for _ in range(2):
            assert len(list(islice(policy.victims(), 5))) == 5
        return lines_of(lambda: list(islice(policy.victims(), 5)))

    small, large = map(cost, SIZES)
    assert large == small <= 200


def test_a_long_chain_leaves_in_linear_time(name: str) -> None:
    length = 10_000
    policy = policy_for(name)
    for key in range(length):
        policy.insert(key, first_block=4 * key, block_count=4, ghost_id=0)
    policy.used(Facts(request_id=0), range(length))
    policy.offer(length - 1)
    gone = []

    def evict_all() -> None:
        for key in reversed(range(length)):
            gone.extend(islice(policy.victims(), 1))
            policy.remove(key)
            if key:
                policy.offer(key - 1)

    assert lines_of(evict_all) <= 60 * length
    assert [key for key, _ in gone] == list(reversed(range(length)))


def test_reused_runs_do_not_slow_walks_down(name: str) -> None:
    """Entries of runs that were used again must not pile up in front of the victims."""
    size = 20_000
    policy = prepared(name, held=0, offered=size)

    def reuse_and_look() -> None:
        for key in range(1, size, 2):
            policy.withdraw(key)
            policy.used(Facts(request_id=0), [key])
            policy.offer(key)
            list(islice(policy.victims(), 2))

    assert lines_of(reuse_and_look) <= 120 * size


# Orders that went wrong in the field


def serve(forest: Forest, *prompts: Sequence[int]) -> None:
    for prompt in prompts:
        request = forest.begin(prompt, request_id=0)
        forest.extend(request, prompt[request.matched :])
        forest.release(request)


def forest_of(name: str) -> Forest:
    return Forest(policy_for(name))


def test_the_tail_leaves_before_the_head(name: str) -> None:
    """B091: only the tail was renewed, so the head was evicted and the tail was dead weight."""
    forest = forest_of(name)
    prompt = tuple(range(8))
    serve(forest, *[prompt] * 100)
    serve(forest, (100, 101, 102, 103))
    while forest.block_count:
        forest.evict(1)
        resident = forest.resident()
        assert all(block[:-1] in resident for block in resident if len(block) > 1)


def test_transfers_do_not_reorder_a_path(name: str) -> None:
    """B092: blocks came back in the order in which their transfers ended."""
    forest = forest_of(name)
    serve(forest, (1,) * 8, (2, 2))
    transfers = [forest.begin((1,) * depth) for depth in (1, 3, 4, 8)]
    for transfer in reversed(transfers):
        forest.release(transfer, used=False)
        keys(forest.policy)
    forest.check()
    gone = forest.evict(10)
    assert [block for block in gone if block[0] == 1] == [(1,) * depth for depth in range(8, 0, -1)]


#: For every other policy a trace (capacity 2) on which it must not behave like LRU: hits by LRU, hits by the policy.
DIFFERENCES = {
    "fifo": (((0,), (1,), (0,), (2,), (0,)), [0, 0, 1, 0, 1], [0, 0, 1, 0, 0]),
    "optimal": (((0,), (1,), (2,), (0,), (1,), (2,)), [0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]),
}


def test_every_policy_differs_from_lru() -> None:
    """B093: policies whose counters never moved, so that every name meant the same."""
    assert set(DIFFERENCES) == set(EVERY) - {"lru"}
    for name, (prompts, lru_hits, hits) in DIFFERENCES.items():
        assert replay(make_policy("lru"), prompts, 2) == lru_hits
        assert replay(policy_for(name, prompts), prompts, 2) == hits


@pytest.mark.parametrize(("name", "stays"), [("lru", True), ("fifo", False)])
def test_hits_move_a_run_where_use_counts(name: str, stays: bool) -> None:
    """B094: an LRU in name that was first in, first out."""
    forest = forest_of(name)
    serve(forest, *[(symbol,) for symbol in range(10)])
    serve(forest, *[(0,)] * 100)
    for symbol in range(10, 15):
        forest.evict(1)
        serve(forest, (symbol,))
    assert ((0,) in forest.resident()) == stays


def test_a_parent_becomes_a_candidate_without_children_and_pins(name: str) -> None:
    forest = forest_of(name)
    serve(forest, (1, 2, 3), (1, 2, 4))
    parent = forest.find((1, 2))
    assert parent not in keys(forest.policy)
    pin = forest.begin((1, 2))
    forest.evict(2)
    assert keys(forest.policy) == []
    forest.release(pin, used=False)
    assert keys(forest.policy) == [parent]


def test_evicting_everything_takes_exactly_what_is_not_pinned(name: str) -> None:
    forest = forest_of(name)
    serve(forest, (1, 2, 3, 4), (1, 2, 5), (6, 7))
    forest.begin((1, 2, 3), request_id=0)
    assert forest.evictable() == 4
    assert set(forest.evict(4)) == {(1, 2, 3, 4), (1, 2, 5), (6,), (6, 7)}
    assert keys(forest.policy) == []
    forest.check()


def test_a_victim_is_taken_only_as_far_as_needed(name: str) -> None:
    forest = forest_of(name)
    serve(forest, (1, 2, 3, 4, 5))
    assert forest.evict(2) == [(1, 2, 3, 4, 5), (1, 2, 3, 4)]
    assert keys(forest.policy) == [forest.find((1, 2, 3))]
    forest.check()
