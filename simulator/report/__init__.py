"""One self-contained HTML file that shows what a replay found."""

from simulator.report.curve import CurvePoint, curve_capacities, optimum_point
from simulator.report.page import render_report
from simulator.report.plots import ReportUnavailable, require_plots

__all__ = ["CurvePoint", "ReportUnavailable", "curve_capacities", "optimum_point", "render_report", "require_plots"]
