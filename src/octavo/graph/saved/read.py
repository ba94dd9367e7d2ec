"""Reading saved models: capture the architecture again, attach, replay the passes, fill in what was saved.

Folders of format 1 are read for ever: their recipe is said in format 2 and their `transforms` as passes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from octavo.errors import ModelError, SavedModelError, SiteError, SpecError
from octavo.graph.capture.source import load_tokenizer, make_encoder, network_from_config, quiet_transformers
from octavo.graph.encoder import Encoder, Head
from octavo.graph.quantizers.attach import QuantizedEncoder, attach, tensors_read
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.quantizers.ranges import Layout
from octavo.graph.saved.write import FORMAT, MANIFEST, WEIGHTS
from octavo.numerics import Affine, packed_size, unpack
from octavo.numerics.float8 import largest
from octavo.sentence import SentenceModules, in_folder, read_modules
from octavo.spec import Pass, Recipe, recipe_from_dict
from octavo.spec.checks import shown
from octavo.spec.document import variant_from_data

Replay = Callable[[QuantizedEncoder, Pass, Mapping[str, Tensor]], QuantizedEncoder]
"""Does to a freshly attached model what a pass did to the saved one, whose tensors are given."""

_LARGEST = 2**16 - 1
_TRANSFORMS = {"fold": "fold", "integer-functions": "integer-functions", "split": "split-groups"}
"""How format 1 names the passes that rewrite a graph."""


def load(folder: Path, replay: Replay, name: str | None = None) -> QuantizedEncoder:
    """Read a saved model: capture the architecture again and attach what was saved."""
    manifest = _read_manifest(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    encoder = _skeleton(folder, manifest, name or str(folder))
    try:
        recipe = recipe_from_dict(manifest["recipe"])
        model = attach(encoder, recipe)
        _restore_all_groups(model, tensors)
        known = dict.fromkeys(manifest.get("replaced", ()), torch.empty(0)) | tensors
        for done in _passes(manifest, recipe):
            model = replay(model, done, known)
        _check_sites(model, manifest)
        _restore(model, manifest, tensors)
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


def _passes(manifest: Mapping[str, Any], recipe: Recipe) -> list[Pass]:
    """Return what was done to the saved model, in order."""
    if manifest["octavo"] == FORMAT:
        return [_pass(entry, f"passes[{i}]") for i, entry in enumerate(manifest["passes"])]
    done: list[Pass] = []
    for position, transform in enumerate(manifest.get("transforms", [])):
        if transform not in _TRANSFORMS:
            raise SavedModelError(
                f"{MANIFEST} names the transform {transform!r}, unknown to this Octavo; update it"
            )
        name = _TRANSFORMS[transform]
        asked = [entry for entry in recipe.passes if entry.variant_name == name]
        done += asked or [_pass(name, f"transforms[{position}]")]
    return done


def _pass(entry: object, place: str) -> Pass:
    try:
        return variant_from_data(entry, place, Pass)
    except SpecError as error:
        raise SavedModelError(f"{MANIFEST}: {error}; update Octavo, or save the model again") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SavedModelError(f"{file} cannot be read ({error}); save the model again") from error
    version = manifest.get("octavo") if isinstance(manifest, dict) else None
    if version not in (1, FORMAT) or isinstance(version, bool):
        raise SavedModelError(
            f"{file} has format {version!r}, this Octavo reads formats 1 and {FORMAT}; use a matching version"
        )
    assert isinstance(manifest, dict)
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


# -- filling in ----------------------------------------------------------------------------------------------


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
        quantizer.fix(None if quantizer.spec.dynamic else _saved_grid(quantizer, entries[name], tensors))
    packed = _restore_weights(model, tensors)
    used = tensors_read(model.graph)
    floats = [(path, value) for path, value in model.graph.named_parameters() if path in used - packed]
    with torch.no_grad():
        for path, parameter in floats:
            parameter.copy_(_expect(tensors, path))
    _check_left_over(tensors, {*packed, *dict(floats)})


def _check_left_over(tensors: Mapping[str, Tensor], filled: Collection[str]) -> None:
    """Refuse a folder with weights that the model does not read: what was done to it was not done again."""
    rest = sorted(name for name in tensors if ":" not in name and name not in filled)
    if rest:
        raise SavedModelError(
            f"{WEIGHTS} holds {rest[0]}{f' and {len(rest) - 1} more' if rest[1:] else ''}, which the model "
            f"made by {MANIFEST} does not read, so it would not be the model that was saved; save it again"
        )


def _restore_all_groups(model: QuantizedEncoder, tensors: Mapping[str, Tensor]) -> None:
    """Group channels as they were saved: groups that come from data, which a split needs before it."""
    for quantizer in model.quantizers.values():
        if quantizer.spec.granularity.permutes:
            _restore_groups(quantizer, tensors)


def _restore_groups(quantizer: Quantizer, tensors: Mapping[str, Tensor]) -> None:
    name = quantizer.site.name
    index = _expect(tensors, f"{name}:group").long()
    granularity, found = quantizer.spec.granularity, index.unique()
    # with optimal sizes, distinct ranges may have been too few for as many groups as the width allows
    fewer = granularity.has_optimal_sizes and granularity.takes_fewer
    expected = quantizer.index.unique()[: len(found) if fewer else None]
    if index.shape != quantizer.index.shape or not torch.equal(found, expected):
        raise SavedModelError(f"{name}: the saved groups are not those of its recipe; save the model again")
    quantizer.set_layout(Layout(quantizer.axis, index))


def _saved_grid(quantizer: Quantizer, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Affine:
    name = quantizer.site.name
    scale = _expect(tensors, f"{name}:scale").float()
    zero_point = torch.zeros_like(scale, dtype=torch.int32)
    if not quantizer.spec.symmetric:
        zero_point = _expect(tensors, f"{name}:zero_point").to(torch.int32)
    groups = int(quantizer.index.max()) + 1
    if scale.shape != (groups,) or zero_point.shape != (groups,):
        raise SavedModelError(f"{name} has {scale.numel()} saved scales, not {groups}; save the model again")
    if not bool((scale.isfinite() & (scale > 0)).all()):
        raise SavedModelError(f"{name} has a saved scale that is not a positive number; save the model again")
    low, high = (_bound(quantizer, entry, end) for end in ("low", "high"))
    if quantizer.float8 is not None:
        known = (-largest(quantizer.float8), largest(quantizer.float8))
        if (low, high) != known:
            raise SavedModelError(
                f"{name} has a saved grid from {low} to {high}, and its format goes from {known[0]} to "
                f"{known[1]}; save the model again"
            )
    elif not low < high <= low + 2**quantizer.spec.bits - 1:
        raise SavedModelError(
            f"{name} has a saved grid from {low} to {high}, which {quantizer.spec.bits} bits cannot hold; "
            "save the model again"
        )
    return Affine(scale=scale, zero_point=zero_point, low=low, high=high)


def _bound(quantizer: Quantizer, entry: Mapping[str, Any], end: str) -> int:
    """Return the lowest or highest integer of a saved grid, which lies within 16 bits of either sign."""
    value = entry[end]
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _LARGEST:
        raise SavedModelError(
            f"{quantizer.site.name} has a saved grid whose {end} end is {shown(value)}, not an integer of at "
            "most 16 bits; save the model again"
        )
    return value


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
        signed = quantizer.low < 0 and quantizer.float8 is None
        codes = unpack(data, bits, count, signed=signed).reshape(parameter.shape)
        with torch.no_grad():
            parameter.copy_(quantizer.decode(codes))
        quantizer.keep(parameter)
        filled.update(site.targets)
    return filled


def _expect(tensors: Mapping[str, Tensor], key: str) -> Tensor:
    if key not in tensors:
        raise SavedModelError(f"model.safetensors lacks {key}; save the model again")
    return tensors[key]
