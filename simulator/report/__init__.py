"""One self-contained HTML file that shows what a replay found."""

from simulator.report.curve import CurvePoint, curve_capacities
from simulator.report.page import render_report
from simulator.report.plots import ReportUnavailable, require_plots

__all__ = ["CurvePoint", "ReportUnavailable", "curve_capacities", "render_report", "require_plots"]
