"""What finer activation ranges cost in a deployed file: per tensor, folded, PEG split into groups.

    python benchmarks/deploy_groups.py --calibration FILE [--backend openvino] [-o FILE]

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
from octavo.runtime.backends import BACKENDS, DEFAULT
from octavo.runtime.benchmark import bench
from octavo.spec import Granularity, Override, PerGroup, PerTensor
from octavo.tasks.demo import split_demo_texts

MODEL = "demo:minilm"
SHAPES = ((1, 32), (32, 128))
VARIANTS: dict[str, Granularity | None] = {
    "per tensor": PerTensor(),
    "folded": None,
    "PEG, 3 groups": PerGroup(groups=3, permute=True),
    "PEG, 6 groups": PerGroup(groups=6, permute=True),
}


def exported(
    encoder: octavo.Encoder, ranges: Granularity | None, texts: list[str], backend: str, path: Path
) -> str:
    recipe = octavo.recipe("int8")
    if ranges is not None:  # in the place of folding, at the same sites
        (fold,) = recipe.passes
        assert isinstance(fold, octavo.Fold)
        norms = Override(roles=fold.roles, optional=True, granularity=ranges)
        recipe = replace(recipe, overrides=(*recipe.overrides, norms), passes=())
    model = octavo.quantize(encoder, recipe, calibration=texts)
    if isinstance(ranges, PerGroup):
        model = octavo.split_groups(model)
    octavo.export(model, path, backend=backend)
    return f"{path}@{backend}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calibration", required=True, help="a text a line")
    parser.add_argument("--backend", default=DEFAULT, choices=BACKENDS)
    parser.add_argument("--seconds", type=float, default=3.0)
    add_options(parser)
    options = parser.parse_args()
    texts = Path(options.calibration).read_text(encoding="utf-8").splitlines()
    encoder = octavo.load(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        files = [
            exported(encoder, ranges, texts, options.backend, Path(folder) / f"{index}.onnx")
            for index, ranges in enumerate(VARIANTS.values())
        ]
        found = bench(
            [MODEL, *files], shapes=SHAPES, texts=split_demo_texts()[1], memory=False, seconds=options.seconds
        )
    rows, first = found.rows[1:], found.rows[1]
    result = {
        "backend": options.backend,
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
