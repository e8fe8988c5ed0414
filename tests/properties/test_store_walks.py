"""The machine's operations again, as long seeded walks: ten times the steps for the time that drawing them costs.

Hypothesis finds the short way to a fault; a walk finds the fault that needs a long way.
"""

from __future__ import annotations

import random

import pytest

from tests.support.store_driver import StoreDriver

_STEPS = 500
_OPERATIONS = {
    "begin": 3,
    "begin_alike": 6,
    "serve": 4,
    "step": 12,
    "reserve": 3,
    "commit": 4,
    "append": 3,
    "park": 2,
    "resume": 3,
    "end": 6,
    "drop": 1,
    "end_again": 1,
    "decode_in_step": 2,
    "peek_and_explain": 2,
    "commit_what_is_not_there": 1,
    "ask_for_everything": 1,
    "read_everything": 1,
    "reset": 0.2,
}
_NEEDS_ROOM = {"begin", "begin_alike", "serve", "ask_for_everything", "read_everything"}
_NEEDS_LIVE = {
    "append",
    "begin_alike",
    "commit",
    "commit_what_is_not_there",
    "drop",
    "end",
    "park",
    "reserve",
    "resume",
    "step",
}


@pytest.mark.parametrize("policy", ["lru", "fifo"])
@pytest.mark.parametrize("seed", range(24))
def test_a_walk_agrees_with_the_model(seed: int, policy: str) -> None:
    _walk(seed, policy, steps=_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lru", "fifo"])
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_long_walk_agrees_with_the_model(seed: int, policy: str) -> None:
    _walk(seed, policy, steps=4 * _STEPS)


def _walk(seed: int, policy: str, *, steps: int) -> None:
    chance = random.Random(seed)
    driver = StoreDriver(
        policy,
        page_count=chance.randint(8, chance.choice([14, 40])),
        block_tokens=chance.choice([1, 2, 3, 4, 4]),
        retained=chance.choice([None, None, chance.randint(0, 20)]),
    )
    names, weights = list(_OPERATIONS), list(_OPERATIONS.values())
    for step in range(steps):
        (name,) = chance.choices(names, weights)
        if (name in _NEEDS_LIVE and not driver.live) or (name in _NEEDS_ROOM and not driver.has_room):
            continue
        try:
            _do(name, driver, chance)
            driver.agree()
        except Exception as error:
            error.add_note(f"seed {seed}, policy {policy}, step {step}: {name}")
            raise
    driver.close()


def _do(name: str, driver: StoreDriver, chance: random.Random) -> None:
    live = driver.pick(chance.randrange(12)) if driver.live else None
    fold, used, space = chance.random() < 0.6, chance.random() < 0.7, int(chance.random() < 0.2)
    few = [chance.randrange(3) for _ in range(chance.randrange(7))]
    words = [letter for _ in range(chance.randint(1, 3)) for letter in [chance.randrange(3)] * chance.randint(1, 7)]
    match name:
        case "begin":
            media = driver.media(words, chance.randrange(4), chance.randrange(12))
            driver.begin(words, media, space, skip_read=chance.random() < 0.1, skip_write=chance.random() < 0.1)
        case "begin_alike":
            cut = chance.choice([len(live.model.tokens), chance.randint(1, 20)])
            driver.begin_alike(
                live,
                cut,
                chance.choice([few, []]),
                same_space=not space,
                skip_read=chance.random() < 0.3,
                at_once=chance.random() < 0.6,
                fold=fold,
            )
        case "serve":
            driver.serve(*driver.prompt_like(chance.randrange(31), chance.randrange(21), words), space, fails=not used)
        case "step":
            driver.step(live, ahead=chance.randrange(4), tokens=few, fold=fold)
        case "reserve":
            driver.reserve(live, through=max(0, live.sequence.token_count + chance.randint(-4, 24)))
        case "commit":
            driver.commit_all(live, back=chance.choice([0, chance.randrange(8)]), fold=fold)
        case "append":
            driver.append(live, few)
        case "park":
            driver.park(live)
        case "resume":
            driver.resume(driver.pick(chance.randrange(12), [live for live in driver.live if live.model.parked]))
        case "end":
            driver.end(live, used=used)
        case "drop":
            driver.drop(live)
        case "end_again":
            for sequence in driver.ended[-1:]:
                driver.end_again(sequence, used=used)
        case "decode_in_step":
            driver.decode_in_step([[chance.randrange(3) for _ in range(6)] for _ in range(chance.randrange(6))])
        case "peek_and_explain":
            tokens, media = driver.prompt_like(chance.randrange(31), chance.randint(1, 20), few)
            driver.peek_and_explain(tokens, media, space)
        case "commit_what_is_not_there":
            driver.commit_what_is_not_there(live, past=chance.randint(1, 4))
        case "ask_for_everything":
            driver.ask_for_everything(take=chance.random() < 0.2)
        case "read_everything":
            driver.read_everything()
        case "reset":
            driver.reset(force=chance.random() < 0.5)
