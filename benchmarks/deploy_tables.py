"""Fill the tables of what is deployed: browsers, servers, processors, and what others make.

They are what results/deploy has; what stands elsewhere on the pages is left as it is, and so is a table
that nothing was measured for yet:

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


def milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def times() -> str:
    lines = [
        "| | Python, `vnni` | Python, `web` | WebAssembly, `vnni` | WebAssembly, `web` |",
        "|---|---|---|---|---|",
    ]
    for shape, found in read("browser.json")["milliseconds"].items():
        numbers = [*found["Python"], *found["WebAssembly"]]
        lines.append(f"| {shape.replace('x', ' x ')} | " + " | ".join(map(milliseconds, numbers)) + " |")
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


MODELS = {"minilm": "all-MiniLM-L6", "gte-small": "gte-small", "mpnet-base": "mpnet-base"}
FLOAT = "torch, float"


def efficiency() -> dict[str, Any]:
    """Return what benchmarks/efficiency.py measured, by model."""
    found = {model: f"efficiency-{model}.json" for model in MODELS}
    return {model: read(name) for model, name in found.items() if (DEPLOY / name).exists()}


def about(found: dict[str, Any]) -> str:
    """Say how efficiency was measured, and where it is written down."""
    first = next(iter(found.values()))
    links = (f"[{MODELS[name]}](../results/deploy/efficiency-{name}.json)" for name in found)
    how = f"{first['pairs']:,} pairs spread over STS-B's development set, {first['threads']} threads"
    return f"{how} of {first['processor']}, all forms in turns ({', '.join(links)}).\n"


def speed() -> str | None:
    """Return the table of sentence-transformers' page on efficiency: speed and kept score."""
    found = efficiency()
    if not found:
        return None
    lines = [about(found), "| | " + " | ".join(MODELS[name] for name in found) + " |"]
    lines.append("|---" * (len(found) + 1) + "|")
    first = [result["rows"][FLOAT] for result in found.values()]
    base = [f"{row['texts_per_second']:.3g} texts a second, {row['stsb']:.2f}" for row in first]
    lines.append(f"| {FLOAT} | " + " | ".join(base) + " |")
    for name in list(next(iter(found.values()))["rows"])[1:]:
        rows = [result["rows"][name] for result in found.values()]
        kept = [row["stsb"] / base["stsb"] for row, base in zip(rows, first, strict=True)]
        cells = [f"{row['speedup']:.2f} x, {share:.1%}" for row, share in zip(rows, kept, strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells).replace("%", " %") + " |")
    return "\n".join(lines)


def peers() -> str | None:
    """Return what int8 keeps and takes beside the int8 of others, model by model."""
    found = efficiency()
    if not found:
        return None
    lines = [
        about(found),
        "| model | int8 | cosine (worst) | neighbours kept | STS-B, to float | ms, 32 x 128 | ms, 1 x 32 |",
        "|---" * 7 + "|",
    ]
    for model, result in found.items():
        rows = result["rows"]
        for name, row in rows.items():
            if "int8" in name:
                cells = (
                    f"{row['cosine']:.4f} ({row['worst']:.3f})",
                    f"{row['neighbours']:.0%}".replace("%", " %"),
                    f"{row['stsb'] - rows[FLOAT]['stsb']:+.2f}",
                    *(milliseconds(row[f"ms_{shape}"]) for shape in ("32x128", "1x32")),
                )
                lines.append(f"| {MODELS[model]} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES = {
    ("drop-in.md", "browser.json vectors"): vectors,
    ("drop-in.md", "browser.json milliseconds"): times,
    ("drop-in.md", "servers.json"): servers,
    ("deploy.md", "no-vnni.json"): processors,
    ("deploy.md", "efficiency-*.json"): speed,
    ("which-recipe.md", "efficiency-*.json"): peers,
}


def filled(page: str, text: str) -> str:
    """Return the text of a page with its tables as the results have them."""
    for (name, mark), table in TABLES.items():
        made = table() if name == page else None
        if made is not None:
            begin = f"<!-- table: results/deploy/{mark} -->\n"
            pattern = re.escape(begin) + r".*?(?=<!-- end of table -->)"
            assert len(re.findall(pattern, text, flags=re.DOTALL)) == 1, mark
            whole = f"{begin}{made}\n"
            text = re.sub(pattern, lambda _, whole=whole: whole, text, flags=re.DOTALL)
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
