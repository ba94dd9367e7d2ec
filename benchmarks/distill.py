"""Distillation on one model: what training without labels mends of recipes, on texts that taught nothing.

    python benchmarks/distill.py MODEL --glue GLUE_DIR [--recipes w8a8,...] [--texts 3000] [-o FILE]

Texts to learn from are sentences of GLUE's training sets (STS-B, MRPC, SST-2, QNLI), without their labels.
Models are measured as `recipes.py` does: embedders by cosines with the float model on 200 sentences spread
over STS-B's development set, taggers by labels and entities. Besides presets there are recipes of this file:

    w8a8-folded     w8a8 after channels were folded and spilled: still one scale for every tensor
    w8a8-clipped    the same with ranges that leave out the few odd tokens
    w8a8-rows       int8-full without its groups: weights with a scale a row, one scale for every activation
    w4a8-full       4-bit weights with a scale a row, every activation in 8 bits
    w4a8-groups     the same with the groups of int8-full for what is as wide as the residual stream
    w4a8-e2-rows    w4a8-full with token tables in 2 bits, a grid for every row

Rows of an output that is there already stay, unless their recipe is asked for again; each is written when it
is measured.

On a GPU (`--device cuda`) steps are CUDA graphs, float32 products are TensorFloat-32, and larger batches of
more texts cost no more time. `--minutes` ends a run that takes longer; with `--work` the next call goes on.
mpnet-base with every tensor in 8 bits takes five minutes on one core:

    python benchmarks/distill.py mpnet-base --glue GLUE_DIR --recipes int8-full --texts 1500 \
        --set learning_rate=1e-5 epochs=2 -o results/distill/mpnet-base-full.json
"""

from __future__ import annotations

import argparse
import platform
import random
import resource
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from output import add_options, report
from recipes import column, measure, measured_before, spread, texts_for

import octavo
from octavo.methods.distillation.distilling import distill
from octavo.methods.distillation.settings import Distillation
from octavo.methods.training.loop import RunOptions, TimeOverError
from octavo.numerics.half_linear import multiplies_half
from octavo.versions import versions

SOURCES = (("STS-B", 7), ("STS-B", 8), ("MRPC", 3), ("SST-2", 0), ("QNLI", 1), ("QNLI", 2))
"""Columns of sentences in the training sets."""

W8A8 = octavo.recipe("w8a8")
W4A8_FULL = replace(octavo.recipe("w4a8"), name="w4a8-full", placement="full")
STREAM = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")
W8A8_FOLDED = replace(
    W8A8,
    name="w8a8-folded",
    description="w8a8 after channels were folded and spilled",
    passes=(
        octavo.Equalize(roles=(*STREAM, "value", "attention_context"), optional=True),
        octavo.Spill(roles=("ffn_hidden",), optional=True),
    ),
)
INT8_FULL = octavo.recipe("int8-full")
GROUPS = tuple(entry for entry in INT8_FULL.overrides if isinstance(entry.granularity, octavo.PerGroup))
OWN = {
    "w8a8-folded": W8A8_FOLDED,
    "w8a8-clipped": replace(
        W8A8_FOLDED,
        name="w8a8-clipped",
        description="w8a8-folded with ranges that leave out the few tokens that reach far beyond all others",
        passes=(*W8A8_FOLDED.passes, octavo.ClipTokens()),
    ),
    "w8a8-rows": replace(
        INT8_FULL,
        name="w8a8-rows",
        description="8-bit weights with a scale a row, one scale for every activation",
        overrides=tuple(entry for entry in INT8_FULL.overrides if entry not in GROUPS),
        passes=(),
    ),
    "w4a8-full": W4A8_FULL,
    "w4a8-groups": replace(
        W4A8_FULL,
        name="w4a8-groups",
        description="4-bit weights, every activation in 8 bits, groups where the residual stream runs",
        overrides=(*W4A8_FULL.overrides, *GROUPS),
    ),
    "w4a8-e2-rows": replace(
        W4A8_FULL,
        name="w4a8-e2-rows",
        overrides=(*W4A8_FULL.overrides, octavo.Override(sites=("embeddings.token.weight",), bits=2)),
    ),
}


def texts_to_learn(glue: Path, count: int) -> list[str]:
    """Return sentences of the training sets, as many of each column, none twice."""
    found: list[str] = []
    for folder, index in SOURCES:
        found += spread(column(glue / folder / "train.tsv", index), count // len(SOURCES))
    different = list(dict.fromkeys(text for text in found if text.strip()))
    random.Random(0).shuffle(different)
    return different


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("--recipes", default="w8a8,w4a8-full,w4a8-e2-rows,w4a8-qat,w4a8-e2-qat")
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings other than ours")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=1e6, help="the longest that a recipe may train")
    parser.add_argument("--no-graphs", action="store_true", help="run steps one by one on a GPU, too")
    parser.add_argument("--work", type=Path, help="keep checkpoints here, and resume")
    add_options(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    encoder = octavo.load(options.model, device=options.device)
    _, judged = texts_for(encoder, options.glue)
    # a few sentences are in training and development sets alike
    known = set(judged)
    texts = [text for text in texts_to_learn(options.glue, options.texts) if text not in known]
    kinds = {field: type(value) for field, value in Distillation().to_dict().items()}
    given = dict(item.split("=") for item in options.set)
    settings = Distillation(**{name: _read(kinds[name], value) for name, value in given.items()})
    about = {
        "model": Path(options.model).name,
        "seed": 0,
        "hardware": _hardware(encoder.device),
        "judged": len(judged),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "recipes": measured_before(options.output),
    }
    for name in options.recipes.split(","):
        row = one(encoder, name, texts, judged, settings, options)
        row["command"] = (
            f"python benchmarks/distill.py {Path(options.model).name} --glue GLUE_DIR "
            f"--recipes {name} --texts {options.texts}"
            + (f" --device {options.device}" if options.device != "cpu" else "")
            + (f" --set {' '.join(options.set)}" if options.set else "")
        )
        about["recipes"][name] = row
        about["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
        report(about, options.output)


def one(
    encoder: octavo.Encoder,
    name: str,
    texts: list[str],
    judged: list[str],
    settings: Distillation,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Quantize by a recipe, measure, distill, measure again."""
    recipe = OWN.get(name) or octavo.recipe(name)
    start, cpu = time.perf_counter(), time.process_time()
    ptq = octavo.quantize(encoder, recipe, texts[: settings.calibration])
    before = measure(ptq, encoder, judged)
    print(f"{name} before: {before}", flush=True)
    middle, middle_cpu = time.perf_counter(), time.process_time()
    row: dict[str, Any] = {"texts": len(texts), "settings": settings.to_dict(), "before": before}
    run = RunOptions(
        progress=_say,
        stop_at=time.monotonic() + 60 * options.minutes,
        record=not options.no_graphs,
    )
    work = None if options.work is None else options.work / name
    try:
        model, result = distill(encoder, recipe, texts, settings, work=work, options=run)
    except TimeOverError as error:
        return {**row, "stopped": str(error)}
    seconds = {"quantize": round(middle - start, 1), "distill": round(time.perf_counter() - middle, 1)}
    end_cpu = time.process_time()
    return {
        **row,
        "after": measure(model, encoder, judged),
        "held_out": {
            "measure": result.measure,
            "before": result.error_before,
            "after": result.error_after,
        },
        "scores": [training.scores for training in result.trainings],
        "losses": [training.losses for training in result.trainings],
        "training_seconds": round(result.seconds, 1),
        "seconds": seconds,
        "cpu_seconds": {"quantize": round(middle_cpu - cpu), "distill": round(end_cpu - middle_cpu)},
    }


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, bfloat16 products: {multiplies_half()}"


def _say(done: int, total: int) -> None:
    if done == total or done % max(1, total // 20) == 0:
        print(f"{done} of {total}, {time.process_time():.0f} s", flush=True)


def _read(kind: type, value: str) -> Any:
    return value == "True" if kind is bool else kind(value)


if __name__ == "__main__":
    main()
