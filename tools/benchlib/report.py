"""Format medians, ratios and targets as a text table, as Markdown and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .scenarios import Figures, Scenario

HEADINGS = ("scenario", "figure", "unit", "ours", "reference", "ours/ref", "target", "met")
TEXT_COLUMNS = 3  # the first columns are text; the next three are numbers, aligned to the right
SIGNIFICANT = 3  # digits, which is the accuracy of the measurements; integers are shown in full


@dataclass(frozen=True)
class Row:
    """One figure of one scenario: medians over the rounds, and the value of every round."""

    scenario: str
    figure: str
    unit: str
    ours: float | None
    reference: float | None
    ratio: float | None
    target: str
    met: bool | None
    ours_samples: tuple[float, ...]
    reference_samples: tuple[float, ...]


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def rows_of(scenario: Scenario, ours: Sequence[Figures], reference: Sequence[Figures]) -> list[Row]:
    """Make rows; a ratio is the median over the pairs, because a pair has equal conditions."""
    rows = []
    for figure in scenario.figures:
        mine = tuple(sample[figure.key] for sample in ours)
        theirs = tuple(sample[figure.key] for sample in reference)
        pairs = zip(mine, theirs, strict=False)
        ratio = median([a / b for a, b in pairs if b != 0])
        middle = median(mine)
        rows.append(
            Row(
                scenario=scenario.name,
                figure=figure.key,
                unit=figure.unit,
                ours=middle,
                reference=median(theirs),
                ratio=ratio,
                target=figure.target,
                met=is_met(figure.target, middle, ratio),
                ours_samples=mine,
                reference_samples=theirs,
            )
        )
    return rows


def is_met(target: str, ours: float | None, ratio: float | None) -> bool | None:
    """Evaluate a target; None without a target, or without the number that it bounds."""
    if not target:
        return None
    name, sign, bound = target.split()
    value = ratio if name == "ratio" else ours
    if value is None:
        return None
    return value >= float(bound) if sign == ">=" else value <= float(bound)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    whole_digits = len(str(int(abs(value))))
    return f"{value:,.{max(0, SIGNIFICANT - whole_digits)}f}"


def cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: ""}[row.met]
    numbers = (number(row.ours), number(row.reference), number(row.ratio))
    return (row.scenario, row.figure, row.unit, *numbers, row.target, met)


def text_table(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    shown = []
    previous = ""
    for line in lines:
        if previous not in ("", line[0]):
            shown.append("")
        previous = line[0]
        parts = [
            cell.rjust(width) if TEXT_COLUMNS <= i < TEXT_COLUMNS + 3 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(parts).rstrip())
    return "\n".join(shown)


def markdown_table(rows: Sequence[Row]) -> str:
    marks = ["---"] * TEXT_COLUMNS + ["---:"] * 3 + ["---"] * 2
    lines = [HEADINGS, tuple(marks), *(cells(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_json(path: Path, facts: dict[str, object], rows: Sequence[Row]) -> None:
    document = {**facts, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(document, indent=2) + "\n")
