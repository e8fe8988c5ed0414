"""Replays real traffic through the real store and says what it would have hit.

The parts that do the work bring numpy with them and are imported where they live, so that ``kvsim --help`` answers at
once: ``simulator.traces`` and ``simulator.workloads`` (get a trace), ``simulator.describe``, ``simulator.reuse``,
``simulator.replay`` and ``simulator.report``.
"""

from simulator.errors import SimulatorError, TraceError
from simulator.result import HIT_DEFINITION, HitRule, ReplayResult

__all__ = ["HIT_DEFINITION", "HitRule", "ReplayResult", "SimulatorError", "TraceError"]
