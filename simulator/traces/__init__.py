"""Readers of request traces: whatever the file, one shape of request."""

from simulator.traces.formats import formats
from simulator.traces.formats.format import TraceFormat
from simulator.traces.loading import load
from simulator.traces.record import After, LoadedTrace, TraceRequest
from simulator.traces.trace import Trace, open_trace

__all__ = ["After", "LoadedTrace", "Trace", "TraceFormat", "TraceRequest", "formats", "load", "open_trace"]
