from __future__ import annotations

import xml.etree.ElementTree as ET

from octavo.experiments.render import render_figure
from octavo.experiments.summary import RowScore, Scores
from octavo.experiments.table import load_table


def scored(**means: float) -> Scores:
    def score(value: float) -> RowScore:
        return RowScore(median=value, low=value, high=value, seeds=1, setting=None, partial=False)

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
