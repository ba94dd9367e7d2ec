"""Giving a freshly attached model the ranges, groups and packed weights of a saved one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from octavo.errors import SavedModelError
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.quantizers.ranges import Layout
from octavo.graph.saved.transforms import TRANSFORMS
from octavo.numerics import Affine, dequantize, packed_size, unpack
from octavo.spec import PerGroup


def restore(
    model: QuantizedEncoder, manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> QuantizedEncoder:
    """Return `model` with the saved rewrites, ranges and weights; what does not fit is an error."""
    model = _transform(model, manifest.get("transforms", []), tensors)
    _check_sites(model, manifest)
    _restore(model, manifest, tensors)
    return model


def is_permuted(quantizer: Quantizer) -> bool:
    """Whether the groups of a quantizer come from data and must be saved with it."""
    granularity = quantizer.spec.granularity
    return isinstance(granularity, PerGroup) and granularity.permute


def _transform(model: QuantizedEncoder, names: list[str], tensors: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Apply the rewrites that the saved model had gone through; a split needs the groups first."""
    for name in names:
        if name not in TRANSFORMS:
            raise SavedModelError(
                f"octavo.json names the transform {name!r}, unknown to this Octavo; update it"
            )
        for quantizer in model.quantizers.values():
            if is_permuted(quantizer):
                _restore_groups(quantizer, tensors)
        model = TRANSFORMS[name](model)
    return model


def _check_sites(model: QuantizedEncoder, manifest: Mapping[str, Any]) -> None:
    for kind, sites in (("activation_sites", model.activation_sites), ("weight_sites", model.weight_sites)):
        saved, found = [entry["name"] for entry in manifest[kind]], [site.name for site in sites]
        if saved != found:
            odd = next(iter(set(saved) ^ set(found)), "their order")
            raise SavedModelError(
                f"{model.name}: the {kind.replace('_', ' ')} found now differ from those saved (at {odd}); "
                f"load it with the versions it was saved with: {_versions(manifest)}"
            )


def _versions(manifest: Mapping[str, Any]) -> object:
    return manifest.get("provenance", {}).get("versions", "unknown")


def _restore(model: QuantizedEncoder, manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    entries = {entry["name"]: entry for entry in manifest["activation_sites"] + manifest["weight_sites"]}
    for name, quantizer in model.quantizers.items():
        if is_permuted(quantizer):
            _restore_groups(quantizer, tensors)
        quantizer.fix(None if quantizer.spec.dynamic else _saved_grid(quantizer, entries[name], tensors))
    packed = _restore_weights(model, tensors)
    used = {str(node.target) for node in model.graph.graph.nodes if node.op == "get_attr"}
    with torch.no_grad():
        for path, parameter in model.graph.named_parameters():
            if path in used and path not in packed:
                parameter.copy_(_expect(tensors, path))


def _restore_groups(quantizer: Quantizer, tensors: Mapping[str, Tensor]) -> None:
    name = quantizer.site.name
    index = _expect(tensors, f"{name}:group").long()
    if index.shape != quantizer.index.shape or not torch.equal(index.unique(), quantizer.index.unique()):
        raise SavedModelError(f"{name}: the saved groups are not those of its recipe; save the model again")
    quantizer.set_layout(Layout(quantizer.axis, index))


def _saved_grid(quantizer: Quantizer, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Affine:
    name = quantizer.site.name
    scale = _expect(tensors, f"{name}:scale")
    zero_point = torch.zeros_like(scale, dtype=torch.int32)
    if not quantizer.spec.symmetric:
        zero_point = _expect(tensors, f"{name}:zero_point")
    groups = int(quantizer.index.max()) + 1
    if scale.shape != (groups,) or zero_point.shape != (groups,):
        raise SavedModelError(f"{name} has {scale.numel()} saved scales, not {groups}; save the model again")
    if not bool((scale.isfinite() & (scale > 0)).all()):
        raise SavedModelError(f"{name} has a saved scale that is not a positive number; save the model again")
    return Affine(scale=scale, zero_point=zero_point, low=int(entry["low"]), high=int(entry["high"]))


def _restore_weights(model: QuantizedEncoder, tensors: Mapping[str, Tensor]) -> set[str]:
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
            raise SavedModelError(
                f"{model.name}: {site.name} has {data.numel()} bytes, not {packed_size(count, bits)}; "
                "save the model again"
            )
        integers = unpack(data, bits, count, signed=quantizer.low < 0).reshape(parameter.shape)
        scale, zero_point = quantizer.per_channel(parameter.dim())
        with torch.no_grad():
            parameter.copy_(dequantize(integers, scale, zero_point))
        quantizer.keep(parameter)
        filled.update(site.targets)
    return filled


def _expect(tensors: Mapping[str, Tensor], key: str) -> Tensor:
    if key not in tensors:
        raise SavedModelError(f"model.safetensors lacks {key}; save the model again")
    return tensors[key]
