"""Saved models: plain files, packed integers, nothing that runs code when it is opened.

config.json        Hugging Face's configuration
octavo.json        version, recipe, passes carried out, sites with their grids, provenance
model.safetensors  weights packed at their bit-width, scales, zero-points, groups, and what stays float
tokenizer files    Hugging Face's
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from octavo.errors import SpecError
from octavo.files import write_folder
from octavo.graph.capture.source import quiet_transformers
from octavo.graph.quantizers.attach import QuantizedEncoder, tensors_read
from octavo.graph.quantizers.quantizer import Quantizer, State
from octavo.numerics import pack
from octavo.numerics.affine import fits_half
from octavo.sentence import write_files
from octavo.spec import recipe_to_dict
from octavo.spec.document import variant_to_data
from octavo.versions import versions

FORMAT = 2
WEIGHTS_FORMAT = "octavo"
MANIFEST = "octavo.json"
WEIGHTS = "model.safetensors"


def is_saved(folder: Path) -> bool:
    """Whether a folder holds a model that Octavo saved."""
    return (folder / MANIFEST).is_file()


def save(model: QuantizedEncoder, folder: Path, force: bool = False) -> Path:
    """Write a calibrated model; the folder appears complete or not at all."""
    loose = [name for name, q in model.quantizers.items() if q.state is not State.FIX]
    if loose:
        raise SpecError(
            f"{len(loose)} quantizers are not fixed (the first is {loose[0]}); calibrate, then fix them"
        )
    with write_folder(folder, force, marker=MANIFEST) as draft:
        # the format keeps other loaders from taking packed integers for the weights they know
        save_file(_tensors(model), draft / WEIGHTS, metadata={"format": WEIGHTS_FORMAT})
        (draft / MANIFEST).write_text(json.dumps(_manifest(model), indent=1) + "\n", encoding="utf-8")
        with quiet_transformers():
            model.config.save_pretrained(draft)
            if model.tokenizer is not None:
                model.tokenizer.save_pretrained(draft)
        write_files(model.sentence, draft)
    return folder


def _tensors(model: QuantizedEncoder) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    packed = {
        target for site in model.weight_sites if site.name in model.quantizers for target in site.targets
    }
    used = tensors_read(model.graph)
    for path, parameter in model.graph.named_parameters():
        if path in used and path not in packed:
            found[path] = parameter.detach().cpu().contiguous().clone()
    for site in model.weight_sites:
        quantizer = model.quantizers.get(site.name)
        if quantizer is not None:
            codes = quantizer.codes(model.parameter(site).detach()).cpu()
            found[site.targets[0]] = pack(codes, quantizer.spec.bits)
    for name, quantizer in model.quantizers.items():
        found |= _grid_tensors(name, quantizer)
    for name, index in model.group_index.items():
        found[f"{name}:group"] = index.to("cpu", torch.int16)
    return found


def _grid_tensors(name: str, quantizer: Quantizer) -> dict[str, Tensor]:
    grid = {}
    if not quantizer.spec.dynamic:
        scale = quantizer.scale.cpu()
        grid[f"{name}:scale"] = scale.half() if fits_half(scale) else scale
        if not quantizer.spec.symmetric:
            # an integer of the grid, from 0 on: tables with a grid for every row have many
            dtype = torch.uint8 if quantizer.spec.bits <= 8 else torch.int32
            grid[f"{name}:zero_point"] = quantizer.zero_point.to("cpu", dtype)
    if quantizer.spec.granularity.permutes:
        grid[f"{name}:group"] = quantizer.index.to("cpu", torch.int16)
    return {key: value.contiguous().clone() for key, value in grid.items()}


def _manifest(model: QuantizedEncoder) -> dict[str, Any]:
    def entry(site: Any) -> dict[str, Any]:
        quantizer = model.quantizers.get(site.name)
        described: dict[str, Any] = site.to_dict()
        if quantizer is not None:
            described |= {"bits": quantizer.spec.bits, "dynamic": quantizer.spec.dynamic}
            described |= {} if quantizer.spec.dynamic else {"low": quantizer.low, "high": quantizer.high}
        return described

    return {
        "octavo": FORMAT,
        "head": model.head,
        "pooling": model.pooling,
        "recipe": recipe_to_dict(model.recipe),
        "passes": [variant_to_data(done) for done in model.passes],
        # which a later pass replaced: loading tells by the names of tensors what an earlier one did
        "replaced": sorted(model.added - tensors_read(model.graph)),
        "activation_sites": [entry(site) for site in model.activation_sites],
        "weight_sites": [entry(site) for site in model.weight_sites],
        "provenance": {
            **model.provenance,
            "model": model.provenance.get("model", model.name),
            "versions": versions(),
        },
    }
