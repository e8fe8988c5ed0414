"""How does a person read cells? A table for each file, with what was expected beside what was found."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.micro.report import Finding

__all__ = ["table"]

_NONE = "–"


def table(finding: Finding) -> str:
    """The question, the cells as a Markdown table, and what the yardstick is."""
    lines = [f"## {finding.name}: {finding.question}", ""]
    if finding.skipped:
        return "\n".join([*lines, f"skipped: {finding.skipped}", ""])
    more = list(dict.fromkeys(heading for cell in finding.cells for heading in cell.more))
    rows = [
        ["case", f"median, {finding.unit}", "p99", "estimate", "÷ estimate", "yardstick", "÷ yardstick", *more],
        *(
            [
                cell.case,
                _number(cell.median),
                _number(cell.p99),
                _number(cell.estimate),
                _number(cell.median / cell.estimate),
                _number(cell.yardstick),
                _number(None if cell.yardstick is None else cell.median / cell.yardstick),
                *(_number(cell.more.get(heading)) for heading in more),
            ]
            for cell in finding.cells
        ),
    ]
    return "\n".join([*lines, *_aligned(rows), "", f"yardstick: {finding.yardstick}", ""])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    lines = []
    for row in (rows[0], rule, *rows[1:]):
        first, *rest = zip(row, widths, strict=True)
        fields = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
        lines.append(f"| {' | '.join(fields)} |")
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")
