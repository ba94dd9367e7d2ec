"""Encodings: every grid of a model as JSON, for toolchains that quantize a float graph themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.files import check_output, write_file
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.runtime.translate.grids import check_fixed
from octavo.versions import versions

FORMAT = 1


def encodings(model: QuantizedEncoder) -> dict[str, Any]:
    """Return scale and offset of every site: real value = scale · (integer - offset)."""
    check_fixed(model.quantizers.values())
    kinds: dict[str, dict[str, Any]] = {"activation": {}, "weight": {}}
    for name, quantizer in model.quantizers.items():
        kinds[quantizer.site.kind][name] = _entry(quantizer)
    return {
        "encodings": FORMAT,
        "model": model.name,
        "recipe": model.recipe.name,
        "activations": kinds["activation"],
        "weights": kinds["weight"],
        "versions": versions(),
    }


def write_encodings(model: QuantizedEncoder, path: str | Path, force: bool = False) -> Path:
    """Write the encodings of a model; an existing file needs `force`."""
    target = Path(path)
    check_output(target, force)
    document = encodings(model)
    with write_file(target, force) as draft:
        draft.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return target


def _entry(quantizer: Quantizer) -> dict[str, Any]:
    described: dict[str, Any] = {
        "role": quantizer.site.role,
        "tensors": list(quantizer.site.targets),
        "shape": list(quantizer.site.shape),
        "bits": quantizer.spec.bits,
        "symmetric": quantizer.spec.symmetric,
        "low": quantizer.low,
        "high": quantizer.high,
        "scale": quantizer.scale.tolist(),
        "offset": quantizer.zero_point.tolist(),
    }
    if quantizer.scale.numel() > 1:
        described |= {"axis": quantizer.axis, "group": quantizer.index.tolist()}
    return described
