"""The short cut for long lists of ids gives what a JSON parser gives, and refuses what it refuses."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.traces.id_lists import JsonDecoder

ids = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 30), max_size=8)
anything = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('hash_ids"[]:, \\', max_size=12)
)
values = st.recursive(
    anything | st.lists(anything, max_size=3),
    lambda inner: (
        st.dictionaries(st.sampled_from(["hash_ids", 'x"hash_ids', "other"]), inner | ids, max_size=3)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


def plain(value: object) -> object:
    """With arrays as lists again."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=150)
@given(rows=st.lists(values, max_size=6), separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
def test_decodes_like_a_json_parser(rows: list[object], separators: tuple[str, str]) -> None:
    text = json.dumps({"requests": rows}, separators=separators).encode()
    assert plain(JsonDecoder().decode(text)) == json.loads(text)


@settings(deadline=None, max_examples=100)
@given(paths=st.lists(st.lists(st.integers(0, 120), max_size=12), min_size=2, max_size=6))
def test_lists_that_share_their_beginning(paths: list[list[int]]) -> None:
    grown = [path + other for path, other in pairwise(paths)] + paths
    text = json.dumps([{"hash_ids": path} for path in grown]).encode()
    decoded = JsonDecoder().decode(text)
    assert plain(decoded) == json.loads(text)


@pytest.mark.parametrize(
    "lists",
    [
        ["", ",1"],
        ["1,2", "1,2,"],
        ["1,2", "1,,2"],
        ["1,2", "1,2 3"],
        ["1,2", "1,02"],
        ["1", "1,2,03"],
        [" ", " ,1"],
        ["1,2,", "1,2"],
        ["1,2", "1,2]"],
        ["1,2", "1,2,["],
    ],
)
def test_refuses_what_a_json_parser_refuses(lists: list[str]) -> None:
    text = "[" + ",".join(f'{{"hash_ids":[{inner}]}}' for inner in lists) + "]"
    with pytest.raises(ValueError, match=r".") as expected:
        json.loads(text)
    assert expected.type is json.JSONDecodeError
    with pytest.raises(ValueError, match=r"."):
        JsonDecoder().decode(text.encode())


@pytest.mark.parametrize("inner", ["-1", "1.5", "true", "null", '"1"', "[3]", "1e3", "5,-1", str(2**63), str(2**70)])
def test_what_is_not_plain_ids_is_left_for_the_row_to_judge(inner: str) -> None:
    text = f'[{{"hash_ids":[1,2]}},{{"hash_ids":[{inner}]}},{{"hash_ids":[1,2,3]}}]'
    assert plain(JsonDecoder().decode(text.encode())) == json.loads(text)


def seconds_to_refuse(openings: int) -> float:
    text = b'{"hash_ids":[x,' * openings + b"]"
    start = time.process_time()
    with pytest.raises(ValueError, match=r"."):
        JsonDecoder().decode(text)
    return time.process_time() - start


def test_lists_left_open_take_linear_time() -> None:
    # Quadratic time is 8 s for 40,000 of them.
    assert seconds_to_refuse(40_000) < 2.0


def test_a_list_inside_a_list_of_ids() -> None:
    text = b'[{"hash_ids":[{"hash_ids":[1,2]},{"hash_ids":[3]}]},{"hash_ids":[4]},{"hash_ids":["]"]},{"hash_ids":[5]}]'
    assert plain(JsonDecoder().decode(text)) == json.loads(text)


@pytest.mark.parametrize(
    "other",
    [
        '"hash_ids":[-0]',
        '"hash_ids":[0,-0]',
        '"hash\\u005fids":[0]',
        '"hash_ids":"NaN"',
        '"hash_ids":"[0]"',
        '"hash_ids":["NaN"]',
        '"text":"NaN \\"hash_ids\\":[0] \\\\"',
        '"hash_ids":[8],"hash_ids":[9]',
    ],
)
def test_a_list_never_takes_the_place_of_another(other: str) -> None:
    text = f'{{"x":{{"hash_ids":[7]}},"y":{{"hash_ids":[7,1]}},{other},"z":{{"hash_ids":[3]}}}}'
    assert plain(JsonDecoder().decode(text.encode())) == json.loads(text)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_constants_that_are_not_json_are_refused_wherever_they_stand(constant: str, place: int) -> None:
    values = ['{"hash_ids":[7]}', '{"hash_ids":[7,1]}', '{"hash_ids":[3]}']
    values.insert(place, constant)
    decoder = JsonDecoder()
    with pytest.raises(ValueError, match=f"^{constant} is not JSON$"):
        decoder.decode(f"[{','.join(values)}]".encode())
    assert plain(decoder.decode(b'[{"hash_ids":[1]},{"hash_ids":[2]}]')) == [{"hash_ids": [1]}, {"hash_ids": [2]}]
