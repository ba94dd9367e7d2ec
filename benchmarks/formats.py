"""Compare FP8 with integers of 8 bits, plain and in groups: cosine to the float model, in both placements.

    python benchmarks/formats.py demo:minilm --glue GLUE -o results/methods/formats-minilm.json

Calibration and texts are those of `benchmarks/ranges.py`; nothing is tuned on them. Weights have a scale per
row, activations one per tensor over all that was seen, unless the row says otherwise; norms stay in float.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from ranges import column, cosines, spread

import octavo
from octavo.spec import Format, Placement
from octavo.versions import versions

GROUPED = {
    "full": ("ffn_input", "ffn_output", "ffn_residual"),  # the paper's
    "linear-inputs": ("embedding_norm", "ffn_input", "layer_output", "ffn_hidden"),
}


def plain(placement: Placement, format: Format, **activations: Any) -> octavo.Recipe:
    """Return per-tensor activations and per-row weights of a format."""
    symmetric = format.is_float
    return octavo.Recipe(
        name=format.variant_name,
        placement=placement,
        weights=octavo.TensorSpec(symmetric=True, granularity=octavo.PerChannel(), format=format),
        activations=octavo.TensorSpec(
            **{"symmetric": symmetric, "estimator": octavo.AllMinMax(), "format": format, **activations}
        ),
        overrides=(octavo.Override(roles=("norm_weight",), off=True),),
    )


def recipes(placement: Placement) -> dict[str, octavo.Recipe]:
    """Return every row of a placement."""
    token = {"dynamic": True, "granularity": octavo.PerToken(), "estimator": octavo.MinMax()}
    int8 = plain(placement, octavo.Integer())
    groups = octavo.PerGroup(groups=6, permute=True)
    peg = octavo.Override(roles=GROUPED[placement], granularity=groups, optional=True)
    found = {
        "E4M3": plain(placement, octavo.E4M3()),
        "E5M2": plain(placement, octavo.E5M2()),
        "INT8": int8,
        "INT8, 6 permuted groups": replace(int8, overrides=(*int8.overrides, peg)),
        "E4M3, a range per token": plain(placement, octavo.E4M3(), **token),
        "INT8, a range per token": plain(placement, octavo.Integer(), **token),
    }
    if placement == "full":
        found["w8a8-peg6 (the paper's, weights per tensor)"] = octavo.recipe("w8a8-peg6")
    else:
        found["int8 (folded)"] = octavo.recipe("int8")
    return found


def main() -> None:
    """Measure every row and write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    encoder = octavo.load(options.model)
    calibration = column(options.glue / "STS-B" / "train.tsv", "sentence1")[:64]
    texts = spread(column(options.glue / "STS-B" / "dev.tsv", "sentence1"), 200)
    rows = []
    for placement in ("linear-inputs", "full"):
        for name, chosen in recipes(placement).items():  # type: ignore[arg-type]
            model = octavo.quantize(encoder, chosen, calibration)
            rows.append({"placement": placement, "way": name, "cosine": cosines(encoder, model, texts)})
            print(json.dumps(rows[-1]), flush=True)
    result = {"model": Path(encoder.name).name, "versions": versions(), "rows": rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
