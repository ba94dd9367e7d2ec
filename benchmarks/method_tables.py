"""Write the tables of docs/methods from results/methods.

    python benchmarks/method_tables.py [--check] [PAGE ...]

A page says where a table goes and which: between `<!-- table: low-bits | bits=W6A6 -->` and
`<!-- end of table -->` stand the rows of results/methods/low-bits-*.json that have this value, a column for
each model and for each value of what was not chosen. `rows=A;B` chooses rows, and `models=A;B` files, by the
ends of their names. A cell is the mean cosine to FP32 and, in brackets, the worst.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "methods"
TABLE = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
MODELS = {"minilm": "all-MiniLM-L6", "gte-small": "gte-small", "mpnet-base": "mpnet-base"}
LABELS = ("method", "way", "name")
FIELDS = ("bits", "placement", "weights")


def cell(row: dict[str, Any]) -> str:
    """Return what a cell shows of a row."""
    return f"{row['cosine']['mean']:.4f} ({row['cosine']['worst']:.3f})"


def rows_of(kind: str, model: str, chosen: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of one file that a table asks for."""
    file = RESULTS / f"{kind}-{model}.json"
    if not file.is_file():  # a model on which this was not measured
        return []
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return [row for row in found if all(str(row[key]) == value for key, value in chosen.items())]


def table(words: str) -> str:
    """Return the table that a mark names, as Markdown."""
    kind, *options = words.split(" | ")
    chosen = dict(option.split("=", 1) for option in options)
    models = chosen.pop("models", ";".join(MODELS)).split(";")
    labels = [label for label in chosen.pop("rows", "").split(";") if label]
    cells: dict[str, dict[tuple[str, ...], str]] = {}
    columns: list[tuple[str, ...]] = []
    for model in models:
        for row in rows_of(kind, model, chosen):
            label = next(row[key] for key in LABELS if key in row)
            if labels and label not in labels:
                continue
            varying = [str(row[key]) for key in FIELDS if key in row and key not in chosen]
            column = (MODELS[model], *varying)
            if column not in columns:
                columns.append(column)
            cells.setdefault(label, {})[column] = cell(row)
    lines = ["| | " + " | ".join(", ".join(column) for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for label in labels or cells:
        lines.append(f"| {label} | " + " | ".join(cells[label].get(c, "") for c in columns) + " |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Return a page with its tables as the results have them."""
    return TABLE.sub(lambda mark: mark[1] + table(mark[2]) + mark[3], text)


def main() -> None:
    """Fill every page in, or say which is not what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page differs")
    parser.add_argument("pages", nargs="*", type=Path, help="all of docs/methods unless given")
    options = parser.parse_args()
    for page in options.pages or sorted((ROOT / "docs" / "methods").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text and options.check:
            sys.exit(f"{page.name}: a table is not what results/methods say; run {Path(__file__).name}")
        page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
