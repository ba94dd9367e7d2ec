r"""Write the table of README.md from results/demo.json, which `octavo compare` made.

    octavo compare demo:minilm --recipes \
        w8a8,w8a8-mp,w8a8-peg3,w8a8-peg6,w8a8-per-embedding,w8a32,w4a32 \
        --calibration stsb64.txt --texts stsb-dev.txt --task similarity/stsb --data GLUE_DIR \
        --seeds 0 --json > results/demo.json
    python benchmarks/readme_table.py

`stsb64.txt` holds the first 64 `sentence1` of STS-B's train.tsv, `stsb-dev.txt` each one of its dev.tsv.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from octavo.fidelity import read_measure

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BEGIN, END = "<!-- table: results/demo.json -->\n", "<!-- end of table -->"
WORDS = {
    "fp32": "float",
    "w8a8": "8 bits everywhere, one range per tensor",
    "w8a8-mp": "16 bits for the FFN's input, output and residual sum",
    "w8a32": "8-bit weights",
    "w8a8-peg3": "8 bits everywhere, 3 permuted groups there",
    "w8a8-peg6": "8 bits everywhere, 6 permuted groups there",
    "w8a8-per-embedding": "8 bits everywhere, a range per dimension there",
    "w4a32": "4-bit weights",
    "w4a32-adaround": "4-bit weights, learned rounding",
}


def render(found: dict[str, Any]) -> str:
    """The rows of a comparison as Markdown."""
    lines = ["| recipe | | STS-B | cosine to FP32 | worst | MB |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        name = row["recipe"]
        mean, worst = (read_measure(row, f"cosine.{which}") or 1 for which in ("mean", "worst"))
        lines.append(
            f"| {'FP32' if name == 'fp32' else f'`{name}`'} | {WORDS.get(name, '')} | {row['score']:.2f} "
            f"| {mean:.3f} | {worst:.3f} | {row['bytes'] / 1e6:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Replace the table between its two markers."""
    table = render(json.loads((ROOT / "results" / "demo.json").read_text(encoding="utf-8")))
    text = README.read_text(encoding="utf-8")
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    README.write_text(re.sub(pattern, lambda _: BEGIN + table + END, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
