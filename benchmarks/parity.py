"""Exported files against the simulation they were made from, in ONNX Runtime: end to end, and site by site.

    python benchmarks/parity.py [-o FILE]                                      # the demo model and its texts
    python benchmarks/parity.py --model DIR --task glue/mrpc --data GLUE_DIR   # a classifier's predictions

End to end: cosines by text, and how often predictions agree; exact forbids the runtime to round activations
of weights-only files by itself. Sites: the share of integers that are the same when every site is given what
the runtime computed before it. Jitter: the simulation against itself, the first norm's bias multiplied by
1 + 1e-6 to 1 + 1e-4. A file differs from the simulation by such amounts: 1e-7 in functions such as GELU, 1e-5
in int32 biases, which files of recipes with `placement: full` have.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from output import add_options, report

import octavo
from octavo.fidelity import cosines
from octavo.fidelity.measures import EMBEDDING
from octavo.graph import Text
from octavo.runtime.artifacts import Artifact
from octavo.runtime.parity import simulation_and_file, site_parity
from octavo.runtime.quality import find_reader, named_outputs
from octavo.tasks.demo import split_demo_texts
from octavo.tasks.evaluation import read_examples
from octavo.tasks.glue import glue_task
from octavo.versions import versions

RECIPES = ("int8", "w8a32", "w8a32-e4", "w8a32-e2", "w4a32", "w8a8-mp", "w8a8")
SITE_TEXTS = 16
JITTER = (1e-6, 1e-5, 1e-4)
CALIBRATION_TEXTS = 64


def text_vectors(artifacts: Sequence[Artifact], texts: Sequence[Text]) -> list[NDArray[Any]]:
    """What each artifact makes of texts, (texts, width): their embeddings, or their logits."""
    encoder = find_reader(artifacts)
    vectors: list[list[NDArray[Any]]] = [[] for _ in artifacts]
    for _, batch in encoder.batches(list(texts)):
        feed = {name: tensor.numpy() for name, tensor in batch.items()}
        for index, artifact in enumerate(artifacts):
            outputs = named_outputs(artifact.run(feed), feed["attention_mask"], encoder)
            vectors[index].append(outputs[EMBEDDING if encoder.head == "encoder" else "logits"])
    return [np.concatenate(parts) for parts in vectors]


def described(found: NDArray[Any], reference: NDArray[Any], classifier: bool) -> dict[str, float]:
    values = cosines(*(torch.from_numpy(vectors).double() for vectors in (found, reference))).numpy()
    result = {
        "mean": round(float(values.mean()), 4),
        "worst": round(float(values.min()), 4),
        "above 0.9995": round(float((values > 0.9995).mean()), 3),
        "above 0.99999": round(float((values > 0.99999).mean()), 3),
    }
    if classifier:
        result["same class"] = int((found.argmax(-1) == reference.argmax(-1)).sum())
    return result


def jittered(
    model: octavo.QuantizedEncoder, simulated: Artifact, texts: Sequence[Text], size: float
) -> NDArray[Any]:
    bias = next(p for name, p in model.graph.named_parameters() if name.endswith("LayerNorm.bias"))
    kept = bias.detach().clone()
    with torch.no_grad():
        bias.mul_(1 + size)
        (found,) = text_vectors([simulated], texts)
        bias.copy_(kept)
    return found


def compare(
    encoder: octavo.Encoder, name: str, calibration: Sequence[Text], texts: Sequence[Text], file: Path
) -> dict[str, Any]:
    model = octavo.quantize(encoder, octavo.recipe(name), calibration=calibration)
    octavo.export(model, file)
    classifier = encoder.head == "sequence-classification"
    with (
        simulation_and_file(model, file) as both,
        simulation_and_file(model, file, exact=False) as (_, as_usual),
    ):
        simulated, exact, exported = text_vectors([*both, as_usual], texts)
        moved = {size: jittered(model, both[0], texts, size) for size in JITTER}
    batch = next(iter(model.batches(list(texts[:SITE_TEXTS]), batch_size=SITE_TEXTS)))[1]
    activations = any(quantizer.site.kind == "activation" for quantizer in model.quantizers.values())
    sites = site_parity(model, file, batch) if activations else None
    return {
        "file": described(exported, simulated, classifier),
        "exact": described(exact, simulated, classifier),
        "jitter": {size: described(found, simulated, classifier) for size, found in moved.items()},
        "sites": None if sites is None else {"equal": round(sites.equal, 6), "most steps": sites.most_steps},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--task", help="take texts of this task instead of the demo's")
    parser.add_argument("--data", help="folder with GLUE's tasks")
    add_options(parser)
    options = parser.parse_args()
    calibration, texts = split_demo_texts()
    if options.task:
        task = glue_task(options.task)
        calibration = list(read_examples(task, options.data, "train").texts[:CALIBRATION_TEXTS])
        texts = list(read_examples(task, options.data).texts)
    encoder = octavo.load(options.model)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.recipes.split(","):
            rows[name] = compare(encoder, name, calibration, texts, Path(folder) / f"{name}.onnx")
    result = {
        "model": "demo:minilm" if options.model == "demo:minilm" else Path(options.model).name,
        "texts": len(texts),
        "recipes": rows,
        "versions": {**versions(), "onnxruntime": onnxruntime.__version__},
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
