"""What finer activation ranges cost in a deployed file: per tensor, folded, PEG split into groups.

    python benchmarks/deploy_groups.py --calibration FILE [--runtime openvino] [-o FILE]

All are the recipe int8 but for the ranges of norm outputs. Latencies are ratios to the per-tensor file, taken
in turns in one run; cosines are to FP32 on the demo's texts. Goals: PEG split into 3 groups at most 1.15, or
else folding, whose cost and fidelity stand beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from output import add_options, report

import octavo
from octavo.cli.story import demo_texts
from octavo.runtime.bench import bench
from octavo.spec import Folded, Granularity, Override, PerGroup, PerTensor

MODEL = "demo:minilm"
SHAPES = ((1, 32), (32, 128))
VARIANTS: dict[str, Granularity] = {
    "per tensor": PerTensor(),
    "folded": Folded(),
    "PEG, 3 groups": PerGroup(groups=3, permute=True),
    "PEG, 6 groups": PerGroup(groups=6, permute=True),
}


def exported(encoder: octavo.Encoder, ranges: Granularity, texts: list[str], runtime: str, path: Path) -> str:
    base = octavo.recipe("int8")
    norms = next(o for o in base.overrides if isinstance(o.granularity, Folded))
    others = tuple(o for o in base.overrides if o is not norms)
    changed: Override = replace(norms, granularity=ranges)
    model = octavo.quantize(encoder, replace(base, overrides=(*others, changed)), calibration=texts)
    if isinstance(ranges, PerGroup):
        model = octavo.split_groups(model)
    octavo.export_onnx(model, path, runtime=runtime)
    return f"{path}@{runtime}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calibration", required=True, help="a text a line")
    parser.add_argument("--runtime", default="onnxruntime", choices=("onnxruntime", "openvino"))
    parser.add_argument("--seconds", type=float, default=3.0)
    add_options(parser)
    options = parser.parse_args()
    texts = Path(options.calibration).read_text(encoding="utf-8").splitlines()
    encoder = octavo.load(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        files = [
            exported(encoder, ranges, texts, options.runtime, Path(folder) / f"{place}.onnx")
            for place, ranges in enumerate(VARIANTS.values())
        ]
        found = bench(
            [MODEL, *files], shapes=SHAPES, texts=demo_texts()[1], memory=False, seconds=options.seconds
        )
    rows, first = found.rows[1:], found.rows[1]
    result = {
        "runtime": options.runtime,
        "threads": found.threads,
        "variants": {
            name: {
                **{
                    f"{b}x{n}": round(row.at(b, n).median_ms / first.at(b, n).median_ms, 3) for b, n in SHAPES
                },
                "cosine": {name: round(value, 4) for name, value in row.quality.to_dict()["cosine"].items()}
                if row.quality
                else None,
            }
            for name, row in zip(VARIANTS, rows, strict=True)
        },
        "versions": found.to_dict()["versions"],
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
