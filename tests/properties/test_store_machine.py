"""The store against a dictionary of blocks: every answer, every count, every byte, whatever is called in any order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.store_driver import RUNNING_MAX, StoreDriver

#: Runs of one letter: prompts that share prefixes often, and end anywhere in a block.
_words = st.lists(st.tuples(st.integers(0, 2), st.integers(3, 9)), min_size=1, max_size=3).map(
    lambda runs: [letter for letter, count in runs for _ in range(count)][:20]
)
_few = st.lists(st.integers(0, 2), max_size=6)
_which = st.integers(0, RUNNING_MAX - 1)
_space = st.sampled_from([0, 0, 1])


class StoreMachine(RuleBasedStateMachine):
    """Everything that an engine may do to a store."""

    policy = "lru"
    driver: StoreDriver

    @initialize(
        page_count=st.one_of(st.integers(8, 14), st.integers(8, 40)),
        block_tokens=st.sampled_from([1, 2, 3, 4, 4]),
        retained=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    )
    def open(self, page_count: int, block_tokens: int, retained: int | None) -> None:
        self.driver = StoreDriver(self.policy, page_count=page_count, block_tokens=block_tokens, retained=retained)

    @precondition(lambda self: self.driver.has_room)
    @rule(tokens=_words, space=_space, image=st.integers(0, 3), at=st.integers(0, 12), skip=st.integers(0, 9))
    def begin(self, tokens: list[int], space: int, image: int, at: int, skip: int) -> None:
        media = self.driver.media(tokens, image, at)
        self.driver.begin(tokens, media, space, skip_read=skip == 8, skip_write=skip == 9)

    @precondition(lambda self: self.driver.has_room and self.driver.live)
    @rule(
        which=_which,
        cut=st.integers(1, 30),
        more=_few,
        same_space=st.sampled_from([True, True, False]),
        skip_read=st.booleans(),
        at_once=st.booleans(),
        fold=st.booleans(),
    )
    def begin_alike(
        self, which: int, cut: int, more: list[int], same_space: bool, skip_read: bool, at_once: bool, fold: bool
    ) -> None:
        alike = self.driver.pick(which)
        self.driver.begin_alike(
            alike, cut, more, same_space=same_space, skip_read=skip_read, at_once=at_once, fold=fold
        )

    @precondition(lambda self: self.driver.live)
    @rule(which=_which, ahead=st.integers(-4, 24))
    def reserve(self, which: int, ahead: int) -> None:
        live = self.driver.pick(which)
        self.driver.reserve(live, through=max(0, live.sequence.token_count + ahead))

    @precondition(lambda self: self.driver.live)
    @rule(which=_which, tokens=_few)
    def append(self, which: int, tokens: list[int]) -> None:
        self.driver.append(self.driver.pick(which), tokens)

    @precondition(lambda self: self.driver.live)
    @rule(which=_which, tokens=_few, ahead=st.integers(0, 3), fold=st.booleans())
    def step(self, which: int, tokens: list[int], ahead: int, fold: bool) -> None:
        self.driver.step(self.driver.pick(which), ahead=ahead, tokens=tokens, fold=fold)

    @precondition(lambda self: self.driver.live)
    @rule(which=_which, back=st.integers(0, 7), fold=st.booleans())
    def commit(self, which: int, back: int, fold: bool) -> None:
        self.driver.commit_all(self.driver.pick(which), back=back, fold=fold)

    @precondition(lambda self: self.driver.live)
    @rule(which=_which, past=st.integers(1, 4))
    def commit_what_is_not_there(self, which: int, past: int) -> None:
        self.driver.commit_what_is_not_there(self.driver.pick(which), past=past)

    @precondition(lambda self: self.driver.live)
    @rule(which=_which)
    def park(self, which: int) -> None:
        self.driver.park(self.driver.pick(which))

    @precondition(lambda self: self.driver.live)
    @rule(which=_which)
    def resume(self, which: int) -> None:
        self.driver.resume(self.driver.pick(which, [live for live in self.driver.live if live.model.parked]))

    @precondition(lambda self: self.driver.live)
    @rule(which=_which, used=st.sampled_from([True, True, False]))
    def end(self, which: int, used: bool) -> None:
        self.driver.end(self.driver.pick(which), used=used)

    @precondition(lambda self: self.driver.ended)
    @rule(which=_which, used=st.booleans())
    def end_again(self, which: int, used: bool) -> None:
        self.driver.end_again(self.driver.ended[which % len(self.driver.ended)], used=used)

    @precondition(lambda self: self.driver.live)
    @rule(which=_which)
    def drop(self, which: int) -> None:
        self.driver.drop(self.driver.pick(which))

    @precondition(lambda self: self.driver.has_room)
    @rule(
        which=st.integers(0, 30),
        cut=st.integers(0, 20),
        words=_words,
        space=_space,
        fails=st.sampled_from([False, False, True]),
    )
    def serve(self, which: int, cut: int, words: list[int], space: int, fails: bool) -> None:
        tokens, media = self.driver.prompt_like(which, cut, words)
        self.driver.serve(tokens, media, space, fails=fails)

    @rule(which=st.integers(0, 30), cut=st.integers(1, 20), space=_space)
    def peek_and_explain(self, which: int, cut: int, space: int) -> None:
        tokens, media = self.driver.prompt_like(which, cut, [])
        self.driver.peek_and_explain(tokens, media, space)

    @rule(odds=st.integers(0, 7), force=st.booleans())
    def reset(self, odds: int, force: bool) -> None:
        if odds == 5:  # far from both ends: Hypothesis likes those, and a store that is always empty shows nothing
            self.driver.reset(force=force)

    @precondition(lambda self: self.driver.decoding)
    @rule(columns=st.lists(st.lists(st.integers(0, 2), min_size=RUNNING_MAX, max_size=RUNNING_MAX), max_size=5))
    def decode_in_step(self, columns: list[list[int]]) -> None:
        self.driver.decode_in_step(columns)

    @precondition(lambda self: self.driver.has_room)
    @rule(take=st.sampled_from([False, False, False, True]))
    def ask_for_everything(self, take: bool) -> None:
        self.driver.ask_for_everything(take=take)

    @precondition(lambda self: self.driver.has_room)
    @rule()
    def read_everything(self) -> None:
        self.driver.read_everything()

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "driver"):
            self.driver.agree()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.close()


class FifoStoreMachine(StoreMachine):
    policy = "fifo"


_quick = settings(max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
_long = settings(_quick, max_examples=800)


class TestLruStore(StoreMachine.TestCase):
    settings = _quick


class TestFifoStore(FifoStoreMachine.TestCase):
    settings = _quick


@pytest.mark.slow
class TestLruStoreLong(StoreMachine.TestCase):
    settings = _long


@pytest.mark.slow
class TestFifoStoreLong(FifoStoreMachine.TestCase):
    settings = _long
