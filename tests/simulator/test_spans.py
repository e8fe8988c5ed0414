"""What a span of time may look like."""

from __future__ import annotations

import pytest

from simulator.errors import SimulatorError
from simulator.spans import SpanError, parse_span_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("3600", 3_600), ("45s", 45), ("90m", 5_400), ("2h", 7_200), ("1.5d", 129_600), (" 5m ", 300)],
)
def test_a_span_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_span_s(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5m", "5 m", "5min", "1h30m", "1e3", "nan", "inf", "٥m"])
def test_another_text_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SpanError, match="90m") as caught:
        parse_span_s(text)
    assert repr(text) in str(caught.value)
    assert isinstance(caught.value, SimulatorError)
