"""What a saved model is, in numbers: sites at each bit-width, extra parameters, bytes on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from octavo.graph import QuantizedEncoder
from octavo.graph.saved.write import WEIGHTS
from octavo.graph.sites.site import Kind
from octavo.graph.sizes import float_bytes, folder_bytes, sites_by_bits
from octavo.methods.calibration.permutation import extra_parameters


def describe_saved(model: QuantizedEncoder, folder: Path) -> dict[str, Any]:
    """Return plain data about a model and the folder it was saved in, for `--json` and for tables."""
    weights, fp32 = (folder / WEIGHTS).stat().st_size, float_bytes(model)
    return {
        "recipe": model.recipe.name,
        "placement": model.recipe.placement,
        "activation_sites": _count_sites(model, "activation"),
        "weight_sites": _count_sites(model, "weight"),
        "extra_parameters": extra_parameters(model),
        "weights_bytes": weights,
        "folder_bytes": folder_bytes(folder),
        "fp32_bytes": fp32,
        "times_smaller": fp32 / weights,
    }


def _count_sites(model: QuantizedEncoder, kind: Kind) -> dict[str, int]:
    counts = sites_by_bits(model, kind)
    return {"float" if bits is None else str(bits): count for bits, count in counts.items()}
