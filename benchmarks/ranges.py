"""Measure ways to find the ranges of activations: cosine to the float model, alone and together.

    python benchmarks/ranges.py demo:minilm --glue GLUE -o results/methods/ranges-minilm.json
    python benchmarks/ranges.py NER_FOLDER --glue GLUE -o results/methods/ranges-mobilebert-ner.json

Calibration: the first 64 first sentences of STS-B's train set. Judged on 200 first sentences spread over its
dev set; a token classifier on 200 sentences of MRPC and SST-2 by the share of labels (special tokens aside)
and of entities that are the float model's. Weights per channel, below 8 bits by MSE, tables in 8 bits, norms
in float; everything else is what the row says. A row is written as soon as it is measured, and never twice.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import octavo
from octavo.spec import Estimator, Pass, Placement
from octavo.versions import versions

WIDTHS = ((8, 8), (6, 6), (4, 8), (4, 4))
WAYS: dict[str, tuple[Estimator, tuple[Pass, ...]]] = {
    "all-min-max": (octavo.AllMinMax(), ()),
    "running-min-max": (octavo.RunningMinMax(), ()),
    "mse": (octavo.Mse(), ()),
    "mse, weighted": (octavo.Mse(weighted=True), ()),
    "clip-tokens, one share": (octavo.AllMinMax(), (octavo.ClipTokens(per_site=False),)),
    "clip-tokens": (octavo.AllMinMax(), (octavo.ClipTokens(),)),
    "tune-ranges": (octavo.AllMinMax(), (octavo.TuneRanges(),)),
    "clip-tokens, tune-ranges": (octavo.AllMinMax(), (octavo.ClipTokens(), octavo.TuneRanges())),
}


def column(file: Path, name: str) -> list[str]:
    """Return a column of a GLUE file, by its header."""
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    place = rows[0].index(name)
    return [row[place] for row in rows[1:] if len(row) > place]


def spread(texts: list[str], count: int) -> list[str]:
    """Return every k-th text."""
    return texts[:: max(1, len(texts) // count)][:count]


def recipe(placement: Placement, weights: int, activations: int, way: str) -> octavo.Recipe:
    """Return the recipe of one row."""
    estimator, passes = WAYS[way]
    tables = octavo.Override(roles=("embedding_weight",), bits=8, estimator=octavo.MinMax())
    return octavo.Recipe(
        name=f"{way} W{weights}A{activations}",
        placement=placement,
        weights=octavo.TensorSpec(
            bits=weights,
            symmetric=True,
            granularity=octavo.PerChannel(),
            estimator=octavo.MinMax() if weights == 8 else octavo.Mse(),
        ),
        activations=octavo.TensorSpec(bits=activations, estimator=estimator),
        overrides=(octavo.Override(roles=("norm_weight",), off=True), *([tables] if weights < 8 else [])),
        passes=passes,
    )


def plans(head: str) -> Iterator[tuple[dict[str, Any], octavo.Recipe]]:
    """Yield every row: what it is, and its recipe."""
    if head == "token-classification":
        int8 = octavo.recipe("int8")
        for name in ("clip-tokens", "clip-tokens, tune-ranges"):
            for folded in (True, False):
                base = int8 if folded else replace(int8, passes=())
                yield (
                    {"recipe": "int8" if folded else "int8 without fold", "way": name},
                    replace(base, passes=(*base.passes, *WAYS[name][1])),
                )
        yield {"recipe": "int8", "way": "all-min-max"}, int8
        return
    for placement in ("linear-inputs", "full"):
        for weights, activations in WIDTHS:
            for way in WAYS:
                about = {"placement": placement, "bits": f"W{weights}A{activations}", "way": way}
                yield about, recipe(placement, weights, activations, way)  # type: ignore[arg-type]


def cosines(encoder: octavo.Encoder, model: octavo.QuantizedEncoder, texts: list[str]) -> dict[str, float]:
    """Return mean and worst cosine of the embeddings of texts, without padding."""
    found = []
    for _, batch in encoder.batches(texts, 16, pad=False):
        ours, theirs = (each.embed(batch, each(batch)) for each in (model, encoder))
        found.append(torch.nn.functional.cosine_similarity(ours, theirs))
    every = torch.cat(found)
    return {"mean": float(every.mean()), "worst": float(every.min())}


def entities(labels: list[str]) -> set[tuple[str, int, int]]:
    """Return (kind, first, last) of every entity that B- and I- labels describe."""
    found: set[tuple[str, int, int]] = set()
    start, kind = 0, ""
    for place, label in enumerate([*labels, "O"]):
        prefix, _, name = label.partition("-")
        if kind and (prefix != "I" or name != kind):
            found.add((kind, start, place - 1))
            kind = ""
        if prefix in ("B", "I") and not kind:
            start, kind = place, name
    return found


def agreement(encoder: octavo.Encoder, model: octavo.QuantizedEncoder, texts: list[str]) -> dict[str, float]:
    """Return which share of the float model's labels and entities stays."""
    assert encoder.tokenizer is not None
    special = torch.tensor(encoder.tokenizer.all_special_ids)
    names = encoder.config.id2label
    same = tokens = kept = spans = extra = 0
    for _, batch in encoder.batches(texts, 16, pad=False):
        ours, theirs = (each(batch)["logits"].argmax(-1) for each in (model, encoder))
        counted = ~torch.isin(batch["input_ids"], special)
        same += int((ours == theirs)[counted].sum())
        tokens += int(counted.sum())
        for own, other, mask in zip(ours, theirs, counted, strict=True):
            mine, wanted = (entities([names[int(i)] for i in row[mask]]) for row in (own, other))
            kept, spans, extra = kept + len(mine & wanted), spans + len(wanted), extra + len(mine - wanted)
    shares = {"labels": same / tokens, "entities": kept / max(1, spans)}
    return {**shares, "tokens": tokens, "entities_of_float": spans, "others_found": extra}


def main() -> None:
    """Measure every row that the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", help="only these, separated by semicolons")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message=".*clips whole dimensions")
    encoder = octavo.load(options.model)
    calibration = column(options.glue / "STS-B" / "train.tsv", "sentence1")[:64]
    tagger = encoder.head == "token-classification"
    texts = spread(column(options.glue / "STS-B" / "dev.tsv", "sentence1"), 200)
    if tagger:
        texts = spread(column(options.glue / "MRPC" / "dev.tsv", "#1 String"), 100)
        texts += spread(column(options.glue / "SST-2" / "dev.tsv", "sentence"), 100)
    result: dict[str, Any] = {"model": Path(encoder.name).name, "versions": versions(), "rows": []}
    if options.output.is_file():
        result = json.loads(options.output.read_text(encoding="utf-8"))
    done = [
        {key: row[key] for key in row if key in ("placement", "bits", "way", "recipe")}
        for row in result["rows"]
    ]
    for about, chosen in plans(encoder.head):
        if about in done or (options.ways and about["way"] not in options.ways.split(";")):
            continue
        start = time.perf_counter()
        model = octavo.quantize(encoder, chosen, calibration)
        seconds = time.perf_counter() - start
        measured = agreement(encoder, model, texts) if tagger else {"cosine": cosines(encoder, model, texts)}
        row = {**about, **measured, "seconds": round(seconds, 1)}
        result["rows"].append({**row, "findings": model.provenance.get("findings", {})})
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
