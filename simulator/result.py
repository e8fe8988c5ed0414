"""What one replay found, and the JSON that says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from simulator.errors import SimulatorError

__all__ = [
    "HIT_DEFINITION",
    "SCHEMA",
    "BytesMoved",
    "Ceiling",
    "HitRule",
    "OptionValue",
    "ReplayResult",
    "ResultError",
    "TierResult",
    "results_to_json",
]

#: Version of the JSON form; raised when a key changes its meaning or goes.
SCHEMA = 1

#: Printed in every report, so that two numbers are compared only if they count the same thing.
HIT_DEFINITION = (
    "A hit is a block of the longest leading run of a prompt's blocks that is resident when the request arrives; "
    "the cache starts cold and the whole trace counts. "
    "Block hit rate = hit blocks ÷ block accesses. "
    "Token hit rate = hit tokens, cut at the prompt's length, ÷ input tokens. "
    "Hit rule 'trace' counts every matched block, 'serving' leaves the last token to compute. "
    "Partial 'count' takes the started last block of a hashed trace for a block, 'drop' leaves it out. "
    "The capacity bounds what stays cached between requests; the running request has room besides."
)

OptionValue = str | int | float | bool | None


class ResultError(SimulatorError, ValueError):
    """A text is not the JSON of a result, or one of another schema."""


class HitRule(StrEnum):
    """Which of the matched blocks count as hits."""

    TRACE = "trace"  #: all of them
    SERVING = "serving"  #: those that leave the prompt's last token to compute, as an engine needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What a cache that never evicts would hit under the same rules."""

    hit_blocks: int
    hit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """One tier's part in a run."""

    capacity_tokens: int
    hit_tokens: int
    hit_blocks: int
    evicted_blocks: int  #: left the tier for room, bypassed ones included


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesMoved:
    """Bytes copied between tiers, by direction."""

    device_to_host: int = 0
    host_to_device: int = 0
    host_to_cold: int = 0
    cold_to_host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """One trace through one store. All but the last two fields are equal for equal inputs and seeds."""

    version: str  #: of this project
    trace: str
    trace_digest: str
    seed: int
    options: Mapping[str, OptionValue]  #: what was asked for, as written
    warnings: tuple[str, ...]
    requests: int
    input_tokens: int
    block_tokens: int
    unique_blocks: int
    policy: str
    hit_rule: HitRule
    block_accesses: int
    hit_blocks: int
    hit_tokens: int
    ceiling: Ceiling
    device: TierResult
    bytes_moved: BytesMoved
    wall_seconds: float  #: of the replay alone; reading the trace is not in it
    requests_per_second: float

    @property
    def block_hit_rate(self) -> float:
        """Hit blocks ÷ block accesses; 0 without accesses."""
        return _ratio(self.hit_blocks, self.block_accesses)

    @property
    def token_hit_rate(self) -> float:
        """Hit tokens ÷ input tokens; 0 without tokens."""
        return _ratio(self.hit_tokens, self.input_tokens)

    @property
    def computed_tokens(self) -> int:
        """Input tokens that were not hit and had to be computed."""
        return self.input_tokens - self.hit_tokens

    def to_dict(self) -> dict[str, object]:
        """The JSON form as plain values, keys in their documented order."""
        return {
            "schema": SCHEMA,
            "version": self.version,
            "trace": self.trace,
            "trace_digest": self.trace_digest,
            "seed": self.seed,
            "options": dict(self.options),
            "warnings": list(self.warnings),
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "block_tokens": self.block_tokens,
            "unique_blocks": self.unique_blocks,
            "policy": self.policy,
            "hit_rule": self.hit_rule.value,
            "block_accesses": self.block_accesses,
            "hit_blocks": self.hit_blocks,
            "block_hit_rate": round(self.block_hit_rate, 6),
            "hit_tokens": self.hit_tokens,
            "token_hit_rate": round(self.token_hit_rate, 6),
            "computed_tokens": self.computed_tokens,
            "ceiling": asdict(self.ceiling),
            "tiers": {"device": asdict(self.device), "host": {}, "cold": {}},
            "bytes_moved": asdict(self.bytes_moved),
            "latency": None,
            "wall_seconds": round(self.wall_seconds, 3),
            "requests_per_second": round(self.requests_per_second, 1),
        }

    def to_json(self) -> str:
        """The JSON form, indented, with a newline at its end."""
        return _dump(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> ReplayResult:
        """Read what ``to_json`` wrote.

        Raises:
            ResultError: not JSON, another schema, or a key is missing or unknown.
        """
        try:
            record = json.loads(text)
            schema = record["schema"]
            result = _from_record(record) if schema == SCHEMA else None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ResultError(f"not the JSON of a result: {error!r}") from error
        if result is None:
            raise ResultError(f"a result of schema {schema!r}; this version reads schema {SCHEMA}")
        return result


def results_to_json(results: Sequence[ReplayResult]) -> str:
    """One run as its own object; several as ``{"schema": 1, "runs": [...]}``, in order."""
    if len(results) == 1:
        return results[0].to_json()
    return _dump({"schema": SCHEMA, "runs": [result.to_dict() for result in results]})


def _dump(value: dict[str, object]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _from_record(record: Any) -> ReplayResult:
    """The inverse of ``to_dict``: what is derived is left out, the rest goes to the constructors."""
    derived = {"schema", "block_hit_rate", "token_hit_rate", "computed_tokens", "tiers", "latency"}
    fields = {key: value for key, value in record.items() if key not in derived}
    fields["warnings"] = tuple(fields["warnings"])
    fields["hit_rule"] = HitRule(fields["hit_rule"])
    fields["ceiling"] = Ceiling(**fields["ceiling"])
    fields["device"] = TierResult(**record["tiers"]["device"])
    fields["bytes_moved"] = BytesMoved(**fields["bytes_moved"])
    return ReplayResult(**fields)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
