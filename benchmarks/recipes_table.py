"""The table of docs/which-recipe.md from the results of benchmarks/recipes.py.

python benchmarks/recipes_table.py results/recipes/*.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def cell(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return ""
    if "cosine" in measured:
        cosine = measured["cosine"]
        return f"{cosine['mean']:.4f} ({cosine['worst']:.3f}), {measured['neighbours']:.0%}"
    if "entities" in measured:
        return f"{measured['labels']:.1%} of labels, {measured['entities']:.1%} of entities"
    return f"{measured['tokens']:.1%} of tokens"


def table(results: list[dict[str, Any]], where: str) -> list[str]:
    names = list(dict.fromkeys(name for result in results for name in result["recipes"]))
    models = [str(result["model"]).removeprefix("demo:") for result in results]
    lines = ["| | " + " | ".join(models) + " |", "|---" * (len(models) + 1) + "|"]
    for name in names:
        rows = [result["recipes"].get(name, {}) for result in results]
        if any(where in row and "refused" not in row[where] for row in rows):
            cells = [
                cell(None if "refused" in row.get(where, {"refused": ""}) else row[where]) for row in rows
            ]
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    results = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    for where in ("simulated", "onnxruntime", "openvino"):
        print(f"\n{where}\n")
        print("\n".join(table(results, where)))
    print("\nmegabytes saved")
    for result in results:
        sizes = {name: row["megabytes"] for name, row in result["recipes"].items()}
        print(result["model"], sizes)


if __name__ == "__main__":
    main()
