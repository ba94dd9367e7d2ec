"""Peak memory of a diagnosis with 20 and with 2,000 texts: it must not grow with their number.

    python benchmarks/diagnose_memory.py [--model demo:minilm] [--counts 20 2000]

Each count runs in a process of its own; the peak is its largest resident set. Texts are those that come
with Octavo, over and over, so that both counts see texts of the same lengths.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from importlib import resources
from itertools import cycle, islice


def measure(model: str, count: int) -> dict[str, float]:
    import octavo
    from octavo.diagnosis import diagnose

    encoder = octavo.load(model)
    before = peak()
    lines = (resources.files("octavo") / "demo_texts.txt").read_text(encoding="utf-8").splitlines()
    # The longest first: memory depends on the longest text, and both counts should have it.
    texts = list(islice(cycle(sorted(lines, key=len, reverse=True)), count))
    began = time.perf_counter()
    diagnose(encoder, [text.replace("\t", " ") for text in texts], sensitivity=())
    return {"texts": count, "loaded_mb": before, "peak_mb": peak(), "seconds": time.perf_counter() - began}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--counts", type=int, nargs="+", default=[20, 2000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.model, options.one)))
        return
    for count in options.counts:
        command = [sys.executable, __file__, "--model", options.model, "--one", str(count)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        grown = found["peak_mb"] - found["loaded_mb"]
        print(
            f"{count:6d} texts: peak {found['peak_mb']:7.1f} MB ({grown:+.1f} MB over the loaded model), "
            f"{found['seconds']:.1f} s"
        )


if __name__ == "__main__":
    main()
