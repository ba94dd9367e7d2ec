"""Recipes on one model: simulated, saved, and as files in both runtimes, on texts that chose nothing.

    python benchmarks/recipes.py MODEL --glue GLUE_DIR [--recipes int8,int8-full] [--files] [-o FILE]

Embedding models are calibrated with the first 64 sentences of STS-B's training set, and compared with the
float model on 200 sentences spread over its development set: the first of them are like those of training.
Taggers and classifiers read sentences of MRPC and SST-2, masked language models those of korean.txt, half of
them each.
The measures speak the head's language: cosines and neighbours of embeddings, labels and entities of taggers
(special tokens aside), the best token at masked places; predictions of classifiers, the divergence of their
probabilities in nats and the SQNR of their logits in decibels.

Rows of an output that is there already stay, unless their recipe is asked for again.
Recipes were chosen on demo:minilm and gte-small; other models prove them.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from output import add_options, report

import octavo
from octavo.fidelity import Reference
from octavo.fidelity.content import content_mask, label_names
from octavo.fidelity.entities import EntityTally
from octavo.graph import Encoder
from octavo.runtime.file_model import open_model
from octavo.versions import versions

CALIBRATION = 64
TEXTS = 200
MASKED = 4
"""Every fourth token of a text is masked."""


def column(file: Path, index: int) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[index] for line in lines]


def spread(texts: list[str], count: int) -> list[str]:
    return texts[:: max(1, len(texts) // count)][:count]


def texts_for(encoder: Encoder, glue: Path) -> tuple[list[str], list[str]]:
    """Return the texts of calibration and those to measure on."""
    if encoder.head == "masked-lm":
        texts = (Path(__file__).parent / "korean.txt").read_text(encoding="utf-8").splitlines()
        return texts[::2], texts[1::2]
    if encoder.head == "encoder":
        calibration = column(glue / "STS-B" / "train.tsv", 7)[:CALIBRATION]
        return calibration, spread(column(glue / "STS-B" / "dev.tsv", 7), TEXTS)
    calibration = spread(column(glue / "MRPC" / "train.tsv", 3), CALIBRATION)
    half = TEXTS // 2
    return calibration, [
        *spread(column(glue / "MRPC" / "dev.tsv", 3), half),
        *spread(column(glue / "SST-2" / "dev.tsv", 0), half),
    ]


def measure(model: Any, encoder: Encoder, texts: list[str]) -> dict[str, Any]:
    if encoder.head == "encoder":
        batches = encoder.batches(texts, 32)
        found = Reference(encoder, batches, len(texts)).compare(model).to_dict()
        return {
            "cosine": {name: round(value, 5) for name, value in found["cosine"].items()},
            "neighbours": round(found["neighbours"]["kept"], 4),
        }
    if encoder.head == "sequence-classification":
        found = Reference(encoder, encoder.batches(texts, 16), len(texts)).compare(model).to_dict()
        return {
            "agreement": round(found["agreement"]["logits"], 4),
            "kl": round(found["kl"]["logits"], 5),
            "sqnr": round(found["sqnr"]["logits"], 1),
        }
    return _masked(model, encoder, texts) if encoder.head == "masked-lm" else _tagged(model, encoder, texts)


def _masked(model: Any, encoder: Encoder, texts: list[str]) -> dict[str, Any]:
    """Return the share of masked places whose best token is the float model's."""
    assert encoder.tokenizer is not None
    same = total = 0
    for _, batch in encoder.batches(texts, 16, pad=False):
        ids = batch["input_ids"]
        for first in range(1, 1 + MASKED):
            places = list(range(first, ids.shape[1] - 1, MASKED))
            if places:
                masked = ids.clone()
                masked[:, places] = int(encoder.tokenizer.mask_token_id)  # type: ignore[arg-type]
                best = [
                    m({**batch, "input_ids": masked})["logits"][:, places].argmax(-1)
                    for m in (encoder, model)
                ]
                same, total = same + int((best[0] == best[1]).sum()), total + best[0].numel()
    return {"tokens": round(same / total, 4), "places": total}


def _tagged(model: Any, encoder: Encoder, texts: list[str]) -> dict[str, Any]:
    """Return the share of labels kept and the F1 of entities, as the float model finds them."""
    names, tally = label_names(encoder), EntityTally()
    same = total = 0
    for _, batch in encoder.batches(texts, 16):
        kept = content_mask(encoder, batch)
        assert kept is not None
        best = [m(batch)["logits"].argmax(-1) for m in (model, encoder)]
        same, total = same + int((best[0] == best[1])[kept].sum()), total + int(kept.sum())
        for row, tokens in enumerate(kept):
            tally.add(*([names[int(label)] for label in labels[row][tokens]] for labels in best))
    return {"labels": round(same / total, 4), "tokens": total, "entities": round(tally.f1, 4)}


def one(encoder: Encoder, name: str, calibration: list[str], texts: list[str], files: bool) -> dict[str, Any]:
    start = time.perf_counter()
    model = octavo.quantize(encoder, octavo.recipe(name), calibration=calibration)
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 1)}
    row["simulated"] = measure(model, encoder, texts)
    with tempfile.TemporaryDirectory() as folder:
        saved = model.save(Path(folder) / "saved")
        row["megabytes"] = round((saved / "model.safetensors").stat().st_size / 1e6, 2)
        for backend in ("onnxruntime", "openvino") if files else ():
            try:
                path = octavo.export(model, Path(folder) / f"{backend}.onnx", backend=backend)
            except octavo.OctavoError as error:
                row[backend] = {"refused": str(error)}
                continue
            row[backend] = {
                **measure(open_model(path, saved, backend=backend), encoder, texts),
                "megabytes": round(path.stat().st_size / 1e6, 2),
            }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("--recipes", default="int8,int8-full,int8-weights,w8a8,w8a8-mp,w8a8-peg6")
    parser.add_argument(
        "--files", action="store_true", help="export each for both runtimes, and measure the files"
    )
    add_options(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    encoder = octavo.load(options.model)
    calibration, texts = texts_for(encoder, options.glue)
    result = {
        "model": Path(options.model).name,
        "calibration": len(calibration),
        "texts": len(texts),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "recipes": measured_before(options.output),
    }
    for name in options.recipes.split(","):
        result["recipes"][name] = one(encoder, name, calibration, texts, options.files)
        result["peak_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
        report(result, options.output)


def measured_before(output: str | None) -> dict[str, Any]:
    """Return the rows of an earlier run; those of recipes asked for are measured anew."""
    if output is None or not Path(output).exists():
        return {}
    rows: dict[str, Any] = json.loads(Path(output).read_text(encoding="utf-8"))["recipes"]
    return rows


if __name__ == "__main__":
    main()
