"""Fill the tables of docs/drop-in.md and docs/deploy.md: browsers, servers, processors.

They are what results/deploy has; what stands elsewhere on the pages is left as it is:

    python benchmarks/deploy_tables.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "results" / "deploy"


def read(name: str) -> Any:
    return json.loads((DEPLOY / name).read_text(encoding="utf-8"))


def pair(of: dict[str, float]) -> str:
    return f"{of['mean']:.4f}, {of['worst']:.4f}"


NAMES = {
    "onnxruntime, Python": "ONNX Runtime in Python, int8",
    "transformers.js in Node": "transformers.js in Node, int8",
    "onnxruntime-web, int8": "ONNX Runtime Web in WebAssembly, int8",
    "onnxruntime-web, float": "ONNX Runtime Web in WebAssembly, float",
}


def vectors() -> str:
    lines = ["| | to Python, same file | above 0.9999 | to FP32 |", "|---|---|---|---|"]
    for row in read("browser.json")["rows"]:
        same = row["to_python"]
        shown = f"{pair(same)} | {same['above']:.0%}".replace("%", " %")
        lines.append(f"| {NAMES[row['name']]} | {shown} | {pair(row['to_fp32'])} |")
    return "\n".join(lines)


def times() -> str:
    lines = [
        "| | Python, `vnni` | Python, `web` | WebAssembly, `vnni` | WebAssembly, `web` |",
        "|---|---|---|---|---|",
    ]
    for shape, found in read("browser.json")["milliseconds"].items():
        numbers = [*found["Python"], *found["WebAssembly"]]
        lines.append(
            f"| {shape.replace('x', ' x ')} | " + " | ".join(f"{each:.3g}" for each in numbers) + " |"
        )
    return "\n".join(lines)


def servers() -> str:
    found = read("servers.json")
    lines = ["| tool | file | mean, worst |", "|---|---|---|"]
    for row in found["rows"]:
        tool = {"infinity": "infinity-emb"}.get(row["tool"], row["tool"])
        lines.append(f"| {tool} {found['theirs'][row['tool']][tool]} | `{row['file']}` | {pair(row)} |")
    return "\n".join(lines)


def processors() -> str:
    lines = ["| file | to FP32, VNNI | to FP32, Haswell | Haswell to VNNI |", "|---|---|---|---|"]
    columns = ("cosine to FP32, native", "cosine to FP32, emulated", "cosine of emulated to native")
    for name, found in read("no-vnni.json")["files"].items():
        lines.append(f"| `{name}` | " + " | ".join(pair(found[column]) for column in columns) + " |")
    return "\n".join(lines)


TABLES = {
    ("drop-in.md", "browser.json vectors"): vectors,
    ("drop-in.md", "browser.json milliseconds"): times,
    ("drop-in.md", "servers.json"): servers,
    ("deploy.md", "no-vnni.json"): processors,
}


def filled(page: str, text: str) -> str:
    """Return the text of a page with its tables as the results have them."""
    for (name, mark), table in TABLES.items():
        if name == page:
            begin = f"<!-- table: results/deploy/{mark} -->\n"
            pattern = re.escape(begin) + r".*?(?=<!-- end of table -->)"
            assert len(re.findall(pattern, text, flags=re.DOTALL)) == 1, mark
            made = f"{begin}{table()}\n"
            text = re.sub(pattern, lambda _, made=made: made, text, flags=re.DOTALL)
    return text


def main() -> None:
    """Fill the pages in, or say which is not what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page differs")
    check = parser.parse_args().check
    for page in sorted({name for name, _ in TABLES}):
        path = ROOT / "docs" / page
        text = path.read_text(encoding="utf-8")
        new = filled(page, text)
        if check and new != text:
            sys.exit(f"{page}: a table is not what results/deploy say; run {Path(__file__).name}")
        path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
