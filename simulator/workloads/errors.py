"""What a workload raises on purpose."""

from __future__ import annotations

from simulator.errors import TraceError

__all__ = ["WorkloadError"]


class WorkloadError(TraceError):
    """A workload cannot be made as asked: ``source`` names it, ``field`` the parameter."""
