"""Write the tables of docs/which-recipe.md from results/recipes, which benchmarks/recipes.py made.

    python benchmarks/recipes_table.py [--check]

Between `<!-- table: onnxruntime, int8;int8-small -->` and `<!-- end of table -->` stand these recipes as they
were measured there: simulated, onnxruntime, openvino, or the megabytes of saved models.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "which-recipe.md"
TABLE = re.compile(r"(<!-- table: (\w+), ([^\n]*?) -->\n).*?(<!-- end of table -->)", flags=re.DOTALL)
MODELS = {
    "minilm": "all-MiniLM-L6",
    "gte-small": "gte-small",
    "mpnet-base": "mpnet-base",
    "mobilebert-ner": "mobilebert-ner",
    "albert-kor": "albert-kor",
}


def cell(row: dict[str, Any], where: str) -> str:
    """Return what a cell shows, nothing where that was not measured or is refused."""
    measured = row.get(where)
    if measured is None or "refused" in (measured if isinstance(measured, dict) else ()):
        return ""
    if where == "megabytes":
        return f"{measured:.1f}"
    if "cosine" in measured:
        cosine = measured["cosine"]
        return f"{cosine['mean']:.4f} ({cosine['worst']:.3f}), {measured['neighbours']:.0%}"
    if "agreement" in measured:
        return f"{measured['agreement']:.1%} of predictions, {measured['kl']:.4f} nats"
    if "entities" in measured:
        return f"{measured['labels']:.1%} of labels, {measured['entities']:.1%} of entities"
    return f"{measured['tokens']:.1%} of tokens"


def table(where: str, recipes: list[str]) -> str:
    """Return recipes by models as Markdown."""
    read = {name: (ROOT / "results" / "recipes" / f"{name}.json").read_text("utf-8") for name in MODELS}
    results = {name: json.loads(text)["recipes"] for name, text in read.items()}
    lines = ["| | " + " | ".join(MODELS.values()) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for recipe in recipes:
        cells = [cell(rows.get(recipe, {}), where) for rows in results.values()]
        lines.append(f"| `{recipe}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fill the page in, or say that it is not what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page differs")
    text = PAGE.read_text(encoding="utf-8")
    new = TABLE.sub(lambda mark: mark[1] + table(mark[2], mark[3].split(";")) + mark[4], text)
    if parser.parse_args().check and new != text:
        sys.exit(f"{PAGE.name} is not what results/recipes say; run {Path(__file__).name}")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
