"""What finer activation ranges cost in a deployed file: per tensor, folded, split into groups.

    python benchmarks/deploy_groups.py --calibration FILE [--backend openvino] [-o FILE]

All are the recipe int8 but for the ranges of norm outputs and of the FFN's hidden layer. Times are CPU time
of one thread, which other work on the machine disturbs least, medians of turns in one run, as ratios to the
per-tensor file; cosines are to FP32 on the demo's texts. Goals: 3 groups at most 1.15, or else folding, whose
cost and fidelity stand beside it. `kernels` counts what ONNX Runtime runs after its optimizations, and
`profile` has the share of its time by kind of kernel at 32 x 128: they say where the cost of a split is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from output import add_options, report

import octavo
from octavo.runtime.artifacts import Artifact, open_artifacts
from octavo.runtime.backends import BACKENDS, DEFAULT
from octavo.runtime.benchmark import sample
from octavo.runtime.quality import find_reader, measure_quality
from octavo.spec import Granularity, Override, Pass, PerGroup, PerTensor
from octavo.tasks.demo import split_demo_texts
from octavo.versions import versions

MODEL = "demo:minilm"
SHAPES = ((1, 32), (32, 128))
HIDDEN = "ffn_hidden"
WHOLE = PerTensor()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Ranges of norm outputs and of the hidden layer, and passes in their place."""

    norms: Granularity = WHOLE
    hidden: Granularity = WHOLE
    passes: tuple[Pass, ...] = ()
    in_place: bool = False

    @property
    def is_split(self) -> bool:
        return isinstance(self.norms, PerGroup) or isinstance(self.hidden, PerGroup)


def optimal(groups: int) -> PerGroup:
    return PerGroup(groups=groups, permute=True, sizes="optimal")


NORMS = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")
FOLDED = (octavo.Fold(roles=NORMS, optional=True),)
VARIANTS: dict[str, Variant] = {
    "per tensor": Variant(),
    "folded": Variant(passes=FOLDED),
    "norms: 3 even groups": Variant(norms=PerGroup(groups=3, permute=True)),
    "norms: 3 optimal groups": Variant(norms=optimal(3)),
    "norms: 3 optimal groups, in place": Variant(norms=optimal(3), in_place=True),
    "norms: 2 optimal groups, in place": Variant(norms=optimal(2), in_place=True),
    "norms and hidden: 3 optimal groups": Variant(norms=optimal(3), hidden=optimal(3)),
    "norms and hidden: 3 optimal groups, in place": Variant(
        norms=optimal(3), hidden=optimal(3), in_place=True
    ),
    "folded; hidden: 2 optimal groups": Variant(passes=FOLDED, hidden=optimal(2)),
    "folded; hidden: 2 optimal groups, in place": Variant(passes=FOLDED, hidden=optimal(2), in_place=True),
    "int8": Variant(passes=octavo.recipe("int8").passes),
}


def quantized(encoder: octavo.Encoder, variant: Variant, texts: list[str]) -> octavo.QuantizedEncoder:
    recipe = octavo.recipe("int8")
    ranges = (
        Override(roles=(HIDDEN,), granularity=variant.hidden),
        Override(roles=NORMS, optional=True, granularity=variant.norms),
    )
    recipe = replace(recipe, overrides=(*recipe.overrides, *ranges), passes=variant.passes)
    model = octavo.quantize(encoder, recipe, calibration=texts)
    return octavo.split_groups(model, in_place=variant.in_place) if variant.is_split else model


def profiled(path: Path, threads: int) -> dict[str, Any]:
    """Return how many kernels ONNX Runtime runs, by kind, and the share of its time that each kind takes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}
    tokens = {name: value for name, value in sample(*SHAPES[-1]).items() if name in names}
    runs = 5
    for _ in range(runs):
        session.run(None, tokens)
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    spent, count = Counter[str](), Counter[str]()
    for event in kernels:
        spent[event["args"]["op_name"]] += event["dur"]
        count[event["args"]["op_name"]] += 1
    whole = sum(spent.values())
    return {
        "kernels": sum(count.values()) // runs,
        "profile": {
            name: {"count": count[name] // runs, "share": round(part / whole, 3)}
            for name, part in spent.most_common(9)
        },
    }


def seconds(artifacts: list[Artifact], shape: tuple[int, int], rounds: int) -> list[float]:
    """Return the CPU time of a run of each artifact: the median of turns, short runs several times a turn."""
    tokens = sample(*shape)
    calls = 20 if shape[0] == 1 else 1
    times = []
    for artifact in artifacts:
        artifact.run(tokens)
    for _ in range(rounds):
        turn = []
        for artifact in artifacts:
            start = time.process_time()
            for _ in range(calls):
                artifact.run(tokens)
            turn.append((time.process_time() - start) / calls)
        times.append(turn)
    return list(np.median(np.array(times), axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calibration", required=True, help="a text a line")
    parser.add_argument("--backend", default=DEFAULT, choices=BACKENDS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--variants", help="only these, separated by commas, beside the per-tensor file")
    add_options(parser)
    options = parser.parse_args()
    texts = Path(options.calibration).read_text(encoding="utf-8").splitlines()
    encoder = octavo.load(MODEL)
    asked = ["per tensor", *(options.variants.split(",") if options.variants else list(VARIANTS)[1:])]
    chosen = {name: VARIANTS[name] for name in asked}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{index}.onnx" for index in range(len(chosen))]
        for file, variant in zip(files, chosen.values(), strict=True):
            octavo.export(quantized(encoder, variant, texts), file, backend=options.backend)
        artifacts = [open_artifacts(f"{file}@{options.backend}", threads=1)[0] for file in files]
        times = {shape: seconds(artifacts, shape, options.rounds) for shape in SHAPES}
        compared = [open_artifacts(MODEL)[0], *artifacts]
        qualities = measure_quality(compared, split_demo_texts()[1], find_reader(compared, None))
        is_profiled = options.backend == DEFAULT
        profiles = [profiled(file, threads=1) if is_profiled else {} for file in files]
    variants = {}
    for index, (name, quality) in enumerate(zip(chosen, qualities[1:], strict=True)):
        ratios = {f"{b}x{n}": round(taken[index] / taken[0], 3) for (b, n), taken in times.items()}
        cosine = quality.to_dict()["cosine"] if quality else {}
        kept = {measure: round(value, 4) for measure, value in cosine.items()}
        variants[name] = {**ratios, "cosine": kept, **profiles[index]}
    result = {
        "backend": options.backend,
        "threads": 1,
        "rounds": options.rounds,
        "per tensor, ms of CPU time": {
            f"{b}x{n}": round(taken[0] * 1e3, 2) for (b, n), taken in times.items()
        },
        "variants": variants,
        "versions": versions(),
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
