from __future__ import annotations

import xml.etree.ElementTree as ET

from octavo.experiments.render import render_figure, render_table
from octavo.experiments.summary import RowScore, Scores, summarize
from octavo.experiments.table import load_table


def scored(**means: float) -> Scores:
    def score(value: float) -> RowScore:
        return RowScore(
            median=value, change=None, low=value, high=value, seeds=1, setting=None, partial=False
        )

    return {(row, "rte"): score(value) for row, value in means.items()}


def test_the_figure_shows_what_each_row_loses_beside_the_paper() -> None:
    table = load_table("overview")
    base = next(row for row in table.rows if row.method == "finetune")
    other = next(row for row in table.rows if row is not base and "rte" in row.paper)
    text = render_figure(table, scored(**{base.name: 70.0, other.name: 67.5}))
    ET.fromstring(text)
    assert ">-2.50</text>" in text and f"{other.paper['rte'] - base.paper['rte']:+.2f}</text>" in text
    assert text.count('class="bar"') == 1 == text.count('class="quiet"')
    assert f">{other.title}</text>" in text and f">{base.title}</text>" not in text


def result(row: str, seed: int, score: float, start_score: float | None = None) -> dict[str, object]:
    cell = {"row": row, "task": "rte", "seed": seed}
    return {"cell": cell, "score": score} | ({} if start_score is None else {"start_score": start_score})


def test_a_row_is_compared_with_the_models_it_starts_from() -> None:
    table = load_table("overview")
    row = next(row for row in table.rows if row.name == "w8a8")
    floats = [result("fp32", seed, score) for seed, score in enumerate((69.0, 70.0, 72.0))]
    # the start was trained anew before the third seed, and scores otherwise there
    seeds = [result("w8a8", 0, 68.0, 70.0), result("w8a8", 1, 67.0, 70.0), result("w8a8", 2, 70.5, 71.0)]
    known = summarize([*floats, *seeds])
    assert known["w8a8", "rte"].median == 68.0 and known["w8a8", "rte"].change == -2.0
    told = render_table(table, known)
    assert f"| {row.title} | 68.00 (64.98)<br>67.00 to 70.50 |" in told and "| -2.00 (-5.42) |" in told
    # results that do not say where they start from: the median of the seeds in FP32
    unknown = summarize([*floats, *seeds[:2], result("w8a8", 2, 70.5)])
    assert unknown["w8a8", "rte"].change is None and "| -2.00 (-5.42) |" in render_table(table, unknown)
    assert "| -1.50 (-5.42) |" in render_table(table, summarize([*floats, result("w8a8", 0, 68.5)]))
