"""The table of docs/your-data.md from what `octavo evaluate --json` said of search: results/retrieval/*.json.

python benchmarks/retrieval_table.py results/retrieval/*.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def row(name: str, found: dict[str, Any]) -> str:
    metrics, reference, agreement = found["metrics"], found["reference"], found["agreement"]
    float_score, score = reference["ndcg@10"], metrics["ndcg@10"]
    vectors = [f"{metrics[f'{kind}/ndcg@10']:.2f}" for kind in ("int8", "binary")]
    cells = [
        f"{float_score:.2f}",
        f"{score:.2f}",
        f"{100 * score / float_score:.2f} %",
        f"{agreement['top_ten']:.1f} %",
    ]
    return "| " + " | ".join([name, *cells, *vectors]) + " |"


def main() -> None:
    print("| model | FP32 | `int8` | kept | same ten documents | int8 vectors | binary vectors |")
    print("|---|---|---|---|---|---|---|")
    for file in sys.argv[1:]:
        print(row(Path(file).stem, json.loads(Path(file).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
