"""Measure every way to equalize channels, alone and in the recipe int8, at 8 and at 6 bits.

    python benchmarks/equalization.py --data GLUE [--model demo:minilm] -o FILE

Calibration texts are the first 64 sentences of STS-B's training set; fidelity is measured on 200 sentences
spread over its development set. All is simulated; only what products read is quantized, weights per channel.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from output import add_options, report

import octavo
from octavo.spec import Equalization, Recipe
from octavo.tasks import compare
from octavo.versions import versions

NORMS = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")
HIDDEN = (*NORMS, "ffn_hidden")
VALUES = (*HIDDEN, "value", "attention_context")
SCORES = (*VALUES, "query", "key")

METHODS: dict[str, tuple[Equalization, ...]] = {
    "nothing": (),
    "fold, norms": (octavo.Fold(roles=NORMS, optional=True),),
    "smooth-quant, norms": (octavo.SmoothQuant(roles=NORMS, optional=True),),
    "migrate-gamma, norms": (octavo.MigrateGamma(roles=NORMS, optional=True),),
    "scale, norms": (octavo.ShiftAndScale(roles=NORMS, optional=True, shift=False),),
    "shift-and-scale, norms": (octavo.ShiftAndScale(roles=NORMS, optional=True),),
    "equalize, norms": (octavo.Equalize(roles=NORMS, optional=True),),
    "fold, and hidden": (octavo.Fold(roles=HIDDEN, optional=True),),
    "smooth-quant, and hidden": (octavo.SmoothQuant(roles=HIDDEN, optional=True),),
    "equalize, and hidden": (octavo.Equalize(roles=HIDDEN, optional=True),),
    "equalize, and values: int8": (octavo.Equalize(roles=VALUES, optional=True),),
    "equalize, and scores": (octavo.Equalize(roles=SCORES, optional=True),),
}


def sentences(file: Path) -> list[str]:
    """Return the first sentences of a split of STS-B."""
    head, *lines = file.read_text(encoding="utf-8").splitlines()
    column = head.split("\t").index("sentence1")
    return [line.split("\t")[column] for line in lines]


def at(bits: int, passes: tuple[Equalization, ...]) -> Recipe:
    """Return the recipe int8 with other bits and passes."""
    int8 = octavo.recipe("int8")
    assert int8.weights is not None and int8.activations is not None
    return replace(
        int8,
        name=f"w{bits}a{bits}",
        weights=replace(int8.weights, bits=bits),
        activations=replace(int8.activations, bits=bits),
        passes=passes,
    )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Quantize with every method and compare each model with FP32."""
    folder = Path(options.data) / "STS-B"
    calibration = sentences(folder / "train.tsv")[:64]
    dev = sentences(folder / "dev.tsv")
    test = dev[:: len(dev) // 200][:200]
    encoder = octavo.load(options.model)
    rows = []
    for bits in (8, 6):
        for name, passes in METHODS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)
                started = time.perf_counter()
                model = octavo.quantize(encoder, at(bits, passes), calibration, batch_size=8)
                seconds = time.perf_counter() - started
            found = compare(model, encoder, test).fidelity
            assert found is not None
            rows.append({"bits": bits, "method": name, "seconds": round(seconds, 1), **found.to_dict()})
            print(bits, name, found.cosine, f"{seconds:.1f} s", file=sys.stderr)
    return {
        "command": "python benchmarks/equalization.py --data GLUE --model " + Path(options.model).name,
        "model": Path(options.model).name,
        "calibration": "64 sentences from the start of STS-B train",
        "texts": "200 sentences spread over STS-B dev",
        "seed": 0,
        "threads": torch.get_num_threads(),
        "rows": rows,
        "versions": versions(),
    }


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--data", required=True, help="the folder with GLUE's task folders")
    add_options(parser)
    options = parser.parse_args()
    report(measure(options), options.output)


if __name__ == "__main__":
    main()
