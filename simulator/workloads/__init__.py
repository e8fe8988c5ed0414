"""Built-in traffic: seeded workloads that need no file, selected by ``workload:NAME?param=value``."""

from __future__ import annotations

from simulator.workloads.errors import WorkloadError
from simulator.workloads.recipe import Parameter
from simulator.workloads.registry import PREFIX, WorkloadSummary, workload, workloads

__all__ = ["PREFIX", "Parameter", "WorkloadError", "WorkloadSummary", "workload", "workloads"]
