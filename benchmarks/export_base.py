"""Time and peak memory of exporting a saved model of BERT-base's size (twelve layers, random weights).

    python benchmarks/export_base.py [-o FILE]

The export runs in a process of its own, so that the peak is what `octavo export` takes, model and runtime
included. Goals: 60 s on two cores, 3 GiB.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from output import add_options, report
from transformers import AutoTokenizer, BertConfig, BertModel

import octavo
from octavo.graph.capture.source import locate
from octavo.tasks.demo import split_demo_texts
from octavo.versions import versions


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="int8")
    add_options(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig()).save_pretrained(folder)
        AutoTokenizer.from_pretrained(locate("demo:minilm")).save_pretrained(folder)
        saved, file = Path(folder) / "quantized", Path(folder) / "model.onnx"
        encoder = octavo.load(folder)
        octavo.quantize(encoder, octavo.recipe(options.recipe), calibration=split_demo_texts()[0][:8]).save(
            saved
        )
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "octavo", "export", saved, "-o", file, "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - start
        size = file.stat().st_size
    result = {
        "recipe": options.recipe,
        "seconds": round(seconds, 1),
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10,
        "megabytes": round(size / 1e6, 1),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
