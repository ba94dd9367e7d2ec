"""Saved models: plain files, packed integers, nothing that runs code when it is opened.

    config.json        Hugging Face's configuration
    octavo.json        version, recipe, sites with their grids, provenance
    model.safetensors  weights packed at their bit-width, scales, zero-points, groups, and what stays float
    tokenizer files    Hugging Face's
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from octavo.errors import SavedModelError, SpecError
from octavo.versions import versions
from octavo.graph.encoder import Encoder
from octavo.graph.files import write_folder
from octavo.graph.quantized import QuantizedEncoder, attach
from octavo.graph.quantizer import Quantizer, State
from octavo.graph.ranges import Layout
from octavo.graph.source import load_tokenizer, make_encoder, network_from_config, quiet_transformers
from octavo.numerics import Affine, dequantize, pack, packed_size, unpack
from octavo.spec import PerGroup, recipe_from_dict, recipe_to_dict

FORMAT = 1
MANIFEST = "octavo.json"
WEIGHTS = "model.safetensors"


def is_saved(folder: Path) -> bool:
    """Whether a folder holds a model that Octavo saved."""
    return (folder / MANIFEST).is_file()


def save(model: QuantizedEncoder, folder: Path, force: bool = False) -> Path:
    """Write a calibrated model; the folder appears complete or not at all."""
    loose = [name for name, q in model.quantizers.items() if q.state is not State.FIX]
    if loose:
        raise SpecError(f"{len(loose)} quantizers are not fixed (the first is {loose[0]}); calibrate, then fix them")
    with write_folder(folder, force) as draft:
        save_file(_tensors(model), draft / WEIGHTS)
        (draft / MANIFEST).write_text(json.dumps(_manifest(model), indent=1) + "\n", encoding="utf-8")
        with quiet_transformers():
            model.config.save_pretrained(draft)
            if model.tokenizer is not None:
                model.tokenizer.save_pretrained(draft)
    return folder


def load(folder: Path, name: str | None = None) -> QuantizedEncoder:
    """Read a saved model: capture the architecture again and attach what was saved."""
    manifest = _read_manifest(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    encoder = _skeleton(folder, manifest, name or str(folder))
    try:
        model = attach(encoder, recipe_from_dict(manifest["recipe"]))
        _check_sites(model, manifest)
        _restore(model, manifest, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise SavedModelError(f"{folder}: {MANIFEST} and {WEIGHTS} do not fit together: {error}") from error
    model.provenance = manifest.get("provenance", {})
    return model


# -- writing ---------------------------------------------------------------------------------------------------------


def _tensors(model: QuantizedEncoder) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    packed = {target for site in model.weight_sites if site.name in model.quantizers for target in site.targets}
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
    return found


def _grid_tensors(name: str, quantizer: Quantizer) -> dict[str, Tensor]:
    if quantizer.spec.dynamic:
        return {}
    grid = {f"{name}:scale": quantizer.scale.cpu()}
    if not quantizer.spec.symmetric:
        grid[f"{name}:zero_point"] = quantizer.zero_point.cpu()
    if _is_permuted(quantizer):
        grid[f"{name}:group"] = quantizer.index.to("cpu", torch.int16)
    return {key: value.contiguous().clone() for key, value in grid.items()}


def _is_permuted(quantizer: Quantizer) -> bool:
    granularity = quantizer.spec.granularity
    return isinstance(granularity, PerGroup) and granularity.permute


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
        "activation_sites": [entry(site) for site in model.activation_sites],
        "weight_sites": [entry(site) for site in model.weight_sites],
        "provenance": {
            **model.provenance,
            "model": model.provenance.get("model", model.name),
            "versions": versions(),
        },
    }


# -- reading ---------------------------------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SavedModelError(f"{file} cannot be read ({error}); save the model again") from error
    if not isinstance(manifest, dict) or manifest.get("octavo") != FORMAT:
        found = manifest.get("octavo") if isinstance(manifest, dict) else None
        raise SavedModelError(f"{file} has format {found!r}, this Octavo reads format {FORMAT}; use a matching version")
    return manifest


def _read_tensors(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise SavedModelError(f"{file.parent} has no {file.name}; save the model again")
    try:
        with safe_open(file, framework="pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise SavedModelError(f"{file} is corrupt or truncated ({error}); save or copy the model again") from error


def _skeleton(folder: Path, manifest: dict[str, Any], name: str) -> Encoder:
    from transformers import AutoConfig

    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(folder)
            tokenizer = load_tokenizer(str(folder), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise SavedModelError(f"{folder}: config.json cannot be read ({error}); save the model again") from error
    network = network_from_config(config, manifest["head"])
    return make_encoder(name, network, tokenizer, manifest["head"], manifest["pooling"])


def _check_sites(model: QuantizedEncoder, manifest: dict[str, Any]) -> None:
    for kind, sites in (("activation_sites", model.activation_sites), ("weight_sites", model.weight_sites)):
        saved, found = [entry["name"] for entry in manifest[kind]], [site.name for site in sites]
        if saved != found:
            odd = next(iter(set(saved) ^ set(found)), "their order")
            raise SavedModelError(
                f"{model.name}: the {kind.replace('_', ' ')} found now differ from those saved (at {odd}); load it "
                f"with the versions it was saved with: {manifest.get('provenance', {}).get('versions')}"
            )


def _restore(model: QuantizedEncoder, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    entries = {entry["name"]: entry for entry in manifest["activation_sites"] + manifest["weight_sites"]}
    for name, quantizer in model.quantizers.items():
        if not quantizer.spec.dynamic:
            _restore_grid(quantizer, entries[name], tensors)
        quantizer.state = State.FIX
    packed = _restore_weights(model, tensors)
    used = {str(node.target) for node in model.graph.graph.nodes if node.op == "get_attr"}
    with torch.no_grad():
        for path, parameter in model.graph.named_parameters():
            if path in used and path not in packed:
                parameter.copy_(_expect(tensors, path))


def _restore_grid(quantizer: Quantizer, entry: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    name = quantizer.site.name
    if _is_permuted(quantizer):
        quantizer.set_layout(Layout(-1, _expect(tensors, f"{name}:group").long()))
    scale = _expect(tensors, f"{name}:scale")
    zero_point = tensors.get(f"{name}:zero_point", torch.zeros_like(scale, dtype=torch.int32))
    quantizer.set_affine(Affine(scale=scale, zero_point=zero_point, low=entry["low"], high=entry["high"]))


def _restore_weights(model: QuantizedEncoder, tensors: dict[str, Tensor]) -> set[str]:
    """Put every packed weight, back on its grid, into the graph; the parameters that were filled."""
    filled: set[str] = set()
    for site in model.weight_sites:
        quantizer = model.quantizers.get(site.name)
        if quantizer is None:
            continue
        parameter = model.parameter(site)
        data, bits = _expect(tensors, site.targets[0]), quantizer.spec.bits
        count = math.prod(parameter.shape)
        if data.numel() != packed_size(count, bits):
            raise SavedModelError(f"{model.name}: {site.name} has {data.numel()} bytes, not {packed_size(count, bits)}")
        integers = unpack(data, bits, count, signed=quantizer.low < 0).reshape(parameter.shape)
        scale, zero_point = quantizer.per_channel(parameter.dim())
        with torch.no_grad():
            parameter.copy_(dequantize(integers, scale, zero_point))
        quantizer.constant = parameter.detach()
        filled.update(site.targets)
    return filled


def _expect(tensors: dict[str, Tensor], key: str) -> Tensor:
    if key not in tensors:
        raise SavedModelError(f"{WEIGHTS} lacks {key}; save the model again")
    return tensors[key]
