"""How large a model is, and how many of its sites have how many bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from octavo.graph.encoder import Encoder
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.sites.site import Kind, Site, in_placement


def float_bytes(encoder: Encoder) -> int:
    """Bytes of the parameters that the graph reads, each once, in 32 bits: the size of an FP32 checkpoint."""
    return sum(4 * parameter.numel() for parameter in encoder.used_parameters().values())


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def sites_by_bits(model: QuantizedEncoder, kind: Kind) -> dict[int | None, int]:
    """Number of sites at each bit-width, widest last; None counts those that the recipe leaves in float."""
    sites: Iterable[Site] = model.weight_sites
    if kind == "activation":
        sites = in_placement(model.activation_sites, model.recipe.placement)
    quantizers = (model.quantizers.get(site.name) for site in sites)
    counts = Counter(None if quantizer is None else quantizer.spec.bits for quantizer in quantizers)
    return dict(sorted(counts.items(), key=lambda item: item[0] or 99))
