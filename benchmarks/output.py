"""What benchmarks share: their result is one JSON document, printed and with -o written."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="accepted as by the others: it is always JSON")
    parser.add_argument("-o", "--output", help="write the JSON here")


def report(result: dict[str, Any], output: str | None) -> None:
    text = json.dumps(result, indent=1)
    print(text)
    if output:
        Path(output).write_text(text + "\n", encoding="utf-8")
