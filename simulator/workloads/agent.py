"""``agent``: coding agents that call tools in a loop, each request with all that was said before.

Fitted to 710 recorded Claude Code sessions (callanjfox/kv-cache-tester@94f6046d, traces/): the curves are quantiles of
their 49,334 requests. A session begins with a head (tools and system prompt) that sessions of one product version
share. One in four resumes a long context and is short. Each request adds the last answer and what the tool or the user
returned. Two events make a session lose its prefix behind the head: a prompt that outgrows the window is replaced by a
summary, and now and then a prompt comes back with its text changed early on. A request follows its predecessor by the
time that its server and then its tool or user took. Users work through sessions back to back.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np

from simulator.workloads.draws import Curve, Draws, zipf_weights
from simulator.workloads.recipe import Recipe, parameter
from simulator.workloads.traffic import NO_WAIT, Ints, Traffic, first_ids, scaled

__all__ = ["Agent"]

_HEAD = Curve(((0, 8_640), (100, 11_897), (250, 12_900), (500, 14_948), (750, 15_457), (900, 15_930), (1000, 21_130)))
#: Tokens of the first prompt and requests of a session that begins fresh …
_FRESH_LEN = Curve(((0, 9_856), (50, 12_324), (100, 13_929), (250, 17_682), (500, 20_181), (750, 38_694), (900, 71_469),
                    (950, 89_509), (1000, 99_275)))  # fmt: skip
_FRESH_STEPS = Curve(((0, 3), (50, 7), (100, 12), (250, 26), (500, 64), (750, 116), (900, 195), (950, 234), (990, 345),
                      (1000, 514)))  # fmt: skip
#: … and of one that resumes.
_RESUMED_LEN = Curve(((0, 100_720), (100, 109_573), (250, 128_386), (500, 208_858), (750, 322_784), (900, 483_818),
                      (950, 605_185), (1000, 851_858)))  # fmt: skip
_RESUMED_STEPS = Curve(((0, 3), (50, 4), (250, 6), (500, 19), (750, 37), (900, 56), (950, 74), (990, 121),
                        (1000, 152)))  # fmt: skip
#: Tokens of a tool's result or of a user's message.
_ADDED = Curve(((0, 0), (100, 0), (250, 48), (500, 277), (750, 948), (900, 2_788), (950, 5_326), (980, 9_546),
                (990, 14_777), (999, 57_967), (1000, 120_000)))  # fmt: skip
_ANSWER = Curve(((0, 1), (10, 58), (100, 105), (250, 137), (500, 216), (750, 426), (900, 898), (950, 1_554),
                 (990, 3_686), (1000, 18_195)))  # fmt: skip
#: Tokens of the prompt that a summary leaves.
_SUMMARY = Curve(((0, 10_384), (100, 21_634), (250, 29_986), (500, 54_693), (750, 105_807), (900, 128_542),
                  (1000, 140_564)))  # fmt: skip
_SERVER_MS = Curve(((0, 500), (10, 2_400), (100, 3_400), (250, 4_300), (500, 6_100), (750, 10_300), (900, 18_300),
                    (950, 28_500), (990, 60_700), (1000, 300_000)))  # fmt: skip
#: Milliseconds that a tool takes; some wait for a person's consent.
_TOOL_MS = Curve(((0, 0), (10, 3_000), (100, 4_000), (250, 6_000), (400, 8_000), (500, 10_000), (600, 13_000),
                  (700, 20_000), (800, 40_000), (850, 67_000), (900, 126_000), (930, 187_000), (950, 305_000),
                  (970, 572_000), (990, 1_818_000), (995, 3_086_000), (1000, 10_000_000)))  # fmt: skip
#: Milliseconds from the end of a turn to the user's next message.
_USER_MS = Curve(((0, 0), (10, 2_000), (100, 6_000), (250, 57_000), (500, 210_000), (600, 343_000), (750, 927_000),
                  (850, 1_938_000), (900, 2_979_000), (950, 7_757_000), (980, 20_234_000),
                  (1000, 77_589_000)))  # fmt: skip
_TURN_ENDS = 0.05  #: chance that an answer ends the turn instead of calling a tool
_LARGE_WINDOW_SHARE = 0.18  #: of fresh sessions; what resumes beyond the usual window has a large one anyway
_LARGE_WINDOW = 1_000_000
_STARTS_WITHIN_US = 600_000_000
_NEXT_SESSION_US = 1_000_000


class _Sessions(NamedTuple):
    """Each [sessions] int64."""

    steps: Ints  #: requests
    head: Ints  #: which shared head
    head_len: Ints  #: tokens of that head
    first_len: Ints  #: tokens of the first prompt
    window: Ints  #: tokens that a prompt must not exceed


class _Steps(NamedTuple):
    """Requests in order of step, then session; each [requests] int64."""

    session: Ints
    turn: Ints
    epoch: Ints  #: requests of a session and epoch share the text behind the head
    input_len: Ints
    output_len: Ints
    server_us: Ints  #: from arrival to the end of the answer
    think_us: Ints  #: from there to the session's next request


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Recipe):
    """Parameters of ``agent``."""

    name: ClassVar[str] = "agent"
    description: ClassVar[str] = "coding agents with long contexts and tool calls, like recorded Claude Code sessions"

    users: int = parameter(16, "agents at work at the same time", low=1, high=1_000_000)
    text_scale: float = parameter(1.0, "multiplies all lengths; 0.1 makes prompts of 12,000 tokens", low=0.01, high=4.0)
    gap_scale: float = parameter(1.0, "multiplies the time that tools and users take", low=0.0, high=1e3)
    versions: int = parameter(8, "product versions, each with a head of its own", low=1, high=100_000)
    resumed_share: float = parameter(0.26, "share of sessions that resume a long context", low=0.0, high=1.0)
    changed_share: float = parameter(0.01, "share of prompts whose text changed behind the head", low=0.0, high=1.0)
    window_tokens: int = parameter(160_000, "prompt that a summary replaces, before scaling", low=1, high=_LARGE_WINDOW)

    def traffic(self) -> Traffic:
        """Sessions grow step by step, all at once; then each gets its place in time and its blocks."""
        draws = Draws(self.seed)
        sessions = self._sessions(draws)
        steps = self._walk(draws, sessions)
        first, count = self._paths(sessions, steps)
        arrival_us, think_us = self._times(draws, sessions, steps)
        return Traffic(
            arrival_us=arrival_us,
            think_us=think_us,
            input_len=steps.input_len,
            output_len=steps.output_len,
            session=steps.session,
            turn=steps.turn,
            first=first,
            count=count,
        )

    def _sessions(self, draws: Draws) -> _Sessions:
        """As many sessions as hold the requests; the last one is cut to fit."""
        steps_mean = self.resumed_share * _RESUMED_STEPS.mean + (1 - self.resumed_share) * _FRESH_STEPS.mean
        count = 2 + int(1.1 * self.requests / steps_mean)
        resumed = draws.spread_chance(self.resumed_share, count)
        fresh_count, resumed_count = int((~resumed).sum()), int(resumed.sum())
        steps, first_len = np.empty(count, np.int64), np.empty(count, np.int64)
        steps[~resumed] = draws.spread_along(_FRESH_STEPS, fresh_count)
        steps[resumed] = draws.spread_along(_RESUMED_STEPS, resumed_count)
        first_len[~resumed] = draws.spread_along(_FRESH_LEN, fresh_count)
        first_len[resumed] = draws.spread_along(_RESUMED_LEN, resumed_count)
        large = draws.spread_chance(_LARGE_WINDOW_SHARE, count) | (first_len > self.window_tokens)
        steps = np.diff(np.minimum(np.cumsum(steps), self.requests), prepend=0)
        steps[-1] += self.requests - steps.sum()
        used = steps > 0
        head = draws.pick(zipf_weights(self.versions, 1.0), count)
        head_len = self._scaled(draws.spread_along(_HEAD, self.versions))[head]
        return _Sessions(
            steps=steps[used],
            head=head[used],
            head_len=head_len[used],
            first_len=np.maximum(self._scaled(first_len), head_len + 1)[used],
            window=self._scaled(np.where(large, _LARGE_WINDOW, self.window_tokens))[used],
        )

    def _walk(self, draws: Draws, sessions: _Sessions) -> _Steps:
        active = np.arange(len(sessions.steps))
        input_len, epoch = sessions.first_len.copy(), np.zeros_like(sessions.steps)
        rows: list[_Steps] = []
        for turn in range(int(sessions.steps.max())):
            active = active[sessions.steps[active] > turn]
            count = len(active)
            output_len = self._scaled(draws.along(_ANSWER, count))
            server_us = draws.along(_SERVER_MS, count) * 1000
            turns = np.full_like(active, turn)
            rows.append(
                _Steps(
                    active, turns, epoch[active], input_len[active], output_len, server_us, self._think_us(draws, count)
                )
            )
            grown = input_len[active] + output_len + self._scaled(draws.along(_ADDED, count))
            summary = np.maximum(self._scaled(draws.along(_SUMMARY, count)), sessions.head_len[active] + 1)
            outgrown = grown > sessions.window[active]
            input_len[active] = np.where(outgrown, summary, grown)
            epoch[active] += outgrown | draws.chance(self.changed_share, count)
        return _Steps(*map(np.concatenate, zip(*rows, strict=True)))

    def _think_us(self, draws: Draws, count: int) -> Ints:
        """The tool's time, or the user's where the turn ended."""
        think_ms = np.where(draws.chance(_TURN_ENDS, count), draws.along(_USER_MS, count), draws.along(_TOOL_MS, count))
        return scaled(think_ms * 1000, self.gap_scale)

    def _times(self, draws: Draws, sessions: _Sessions, steps: _Steps) -> tuple[Ints, Ints]:
        """When each request arrives, and how long after the end of the one before."""
        order = np.lexsort((steps.turn, steps.session))
        gap_us = (steps.server_us + steps.think_us)[order]
        ends_us = np.cumsum(gap_us)
        begins_us = ends_us - gap_us
        last = np.cumsum(sessions.steps) - 1
        session_begins_us = begins_us[last - sessions.steps + 1]
        starts_us = self._starts(draws, ends_us[last] - session_begins_us)
        session = steps.session[order]
        arrival_us = np.empty_like(ends_us)
        arrival_us[order] = starts_us[session] + begins_us - session_begins_us[session]
        waited_us = np.full_like(arrival_us, NO_WAIT)
        waited_us[order[1:]] = steps.think_us[order[:-1]]
        waited_us[steps.turn == 0] = NO_WAIT
        return arrival_us, waited_us

    def _starts(self, draws: Draws, session_us: Ints) -> Ints:
        """When each session starts, given how long it lasts: in order, by whichever user is free first."""
        free = [(start_us, user) for user, start_us in enumerate(draws.below(_STARTS_WITHIN_US, self.users).tolist())]
        heapq.heapify(free)
        starts = []
        for lasts_us in session_us.tolist():
            start_us, user = free[0]
            starts.append(start_us)
            heapq.heapreplace(free, (start_us + lasts_us + _NEXT_SESSION_US, user))
        return np.array(starts, np.int64)

    def _paths(self, sessions: _Sessions, steps: _Steps) -> tuple[Ints, Ints]:
        """Pieces of every request: the shared head, the text of its session and epoch."""
        head_blocks = np.zeros(self.versions, np.int64)
        head_blocks[sessions.head] = sessions.head_len // self.block_tokens
        head_first = first_ids(head_blocks, 0)
        head = sessions.head[steps.session]
        own = steps.input_len // self.block_tokens - head_blocks[head]
        text = steps.session * (int(steps.epoch.max()) + 1) + steps.epoch
        text_blocks = np.zeros(int(text.max()) + 1, np.int64)
        np.maximum.at(text_blocks, text, own)
        text_first = first_ids(text_blocks, int(head_blocks.sum()))
        return (
            np.stack([head_first[head], text_first[text]], axis=1),
            np.stack([head_blocks[head], own], axis=1),
        )

    def _scaled(self, tokens: Ints) -> Ints:
        return scaled(tokens, self.text_scale)
