"""Saved models: plain files, packed integers, nothing that runs code when it is opened.

config.json        Hugging Face's configuration
octavo.json        version, recipe, sites with their grids, provenance
model.safetensors  weights packed at their bit-width, scales, zero-points, groups, and what stays float
tokenizer files    Hugging Face's
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from octavo.errors import ModelError, SavedModelError, SiteError, SpecError
from octavo.files import write_folder
from octavo.graph.capture.source import load_tokenizer, make_encoder, network_from_config, quiet_transformers
from octavo.graph.encoder import Encoder, Head
from octavo.graph.quantizers.attach import QuantizedEncoder, attach
from octavo.graph.quantizers.quantizer import Quantizer, State
from octavo.graph.saved.read import is_permuted, restore
from octavo.numerics import pack
from octavo.sentence import SentenceModules, in_folder, read_modules, write_files
from octavo.spec import recipe_from_dict, recipe_to_dict
from octavo.versions import versions

FORMAT = 1
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


def load(folder: Path, name: str | None = None) -> QuantizedEncoder:
    """Read a saved model: capture the architecture again and attach what was saved."""
    manifest = _read_manifest(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    encoder = _skeleton(folder, manifest, name or str(folder))
    try:
        recipe = recipe_from_dict(manifest["recipe"])
        model = restore(attach(encoder, recipe), manifest, tensors)
    except SavedModelError:
        raise
    except _BROKEN as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise SavedModelError(
            f"{folder}: {MANIFEST} and {WEIGHTS} do not fit together ({reason}); save the model again"
        ) from error
    model.provenance = manifest.get("provenance", {})
    return model


# What reading a file that was changed by hand or by accident can raise.
_BROKEN = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError, SiteError, SpecError)


# -- writing -------------------------------------------------------------------------------------------------


def _tensors(model: QuantizedEncoder) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    packed = {
        target for site in model.weight_sites if site.name in model.quantizers for target in site.targets
    }
    used = {str(node.target) for node in model.graph.graph.nodes if node.op == "get_attr"}
    for path, parameter in model.graph.named_parameters():
        if path in used and path not in packed:
            found[path] = parameter.detach().cpu().contiguous().clone()
    for site in model.weight_sites:
        quantizer = model.quantizers.get(site.name)
        if quantizer is not None:
            integers = quantizer.integers(model.parameter(site).detach()).cpu()
            found[site.targets[0]] = pack(integers, quantizer.spec.bits)
    for name, quantizer in model.quantizers.items():
        found |= _grid_tensors(name, quantizer)
    for name, index in model.group_index.items():
        found[f"{name}:group"] = index.to("cpu", torch.int16)
    return found


def _grid_tensors(name: str, quantizer: Quantizer) -> dict[str, Tensor]:
    grid = {}
    if not quantizer.spec.dynamic:
        grid[f"{name}:scale"] = quantizer.scale.cpu()
        if not quantizer.spec.symmetric:
            grid[f"{name}:zero_point"] = quantizer.zero_point.cpu()
    if is_permuted(quantizer):
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
        "transforms": list(model.transforms),
        "activation_sites": [entry(site) for site in model.activation_sites],
        "weight_sites": [entry(site) for site in model.weight_sites],
        "provenance": {
            **model.provenance,
            "model": model.provenance.get("model", model.name),
            "versions": versions(),
        },
    }


# -- reading -------------------------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SavedModelError(f"{file} cannot be read ({error}); save the model again") from error
    if not isinstance(manifest, dict) or manifest.get("octavo") != FORMAT:
        found = manifest.get("octavo") if isinstance(manifest, dict) else None
        raise SavedModelError(
            f"{file} has format {found!r}, this Octavo reads format {FORMAT}; use a matching version"
        )
    return manifest


def _read_tensors(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise SavedModelError(f"{file.parent} has no {file.name}; save the model again")
    try:
        with safe_open(file, framework="pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}
    except (SafetensorError, OSError) as error:
        raise SavedModelError(
            f"{file} is corrupt or truncated ({error}); save or copy the model again"
        ) from error


def _skeleton(folder: Path, manifest: dict[str, Any], name: str) -> Encoder:
    from transformers import AutoConfig

    head: Any = manifest.get("head")
    if head not in get_args(Head):
        raise SavedModelError(
            f"{folder / MANIFEST} names the head {head!r}, unknown to this Octavo; update it"
        )
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(folder)
            tokenizer = load_tokenizer(str(folder), trust_remote_code=False)
            network = network_from_config(config, head)
        sentence = read_modules(in_folder(folder), name)
        if not sentence.files:  # a model without files of sentence-transformers
            sentence = SentenceModules(pooling=manifest.get("pooling", "mean"))
    except (OSError, ModelError, *_BROKEN) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SavedModelError(
            f"{folder}: config.json or the tokenizer cannot be read ({reason}); save the model again"
        ) from error
    return make_encoder(name, network, tokenizer, head, sentence)
