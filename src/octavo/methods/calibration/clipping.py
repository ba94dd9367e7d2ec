"""A warning where a range cuts off structured outliers: dimensions that reach far beyond it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.errors import OctavoWarning
from octavo.graph import QuantizedEncoder, Quantizer, State
from octavo.numerics import AllMinMax

# Beyond the range by its own width: a hundredth of the dimensions, or one by three widths, is no accident.
_FEW = 0.01
_FAR = 3.0
_SITES_NAMED = 3
_DIMENSIONS_NAMED = 4


@dataclass(frozen=True, eq=False)
class Clipped:
    """A site with dimensions that reach far outside its range, worst first; `times` is the worst reach."""

    site: str
    dimensions: tuple[int, ...]
    times: float


def may_clip(quantizer: Quantizer) -> bool:
    """Whether a quantizer is finding a static range for dimensions that its estimator may cut off."""
    clips = quantizer.spec.estimator.clips
    observes = quantizer.state is State.OBSERVE and not quantizer.spec.dynamic
    return quantizer.site.kind == "activation" and quantizer.site.width is not None and clips and observes


def find_clipped(model: QuantizedEncoder, extremes: Mapping[str, AllMinMax]) -> list[Clipped]:
    """The sites where many dimensions reach beyond twice the range chosen for them, or a few very far."""
    found = []
    for name, estimator in extremes.items():
        minimum, maximum = estimator.range()
        low, high = (edge.expand_as(minimum) for edge in _covered(model.quantizers[name]))
        # what lies outside, in widths of the range
        outside = torch.maximum(maximum - high, low - minimum).clamp(min=0) / (high - low)
        dimensions = (outside > 1).nonzero().flatten()
        if len(dimensions) > _FEW * len(outside) or bool((outside > _FAR).any()):
            ranked = dimensions[outside[dimensions].argsort(descending=True)]
            found.append(Clipped(name, tuple(ranked.tolist()), 1 + float(outside.max())))
    return sorted(found, key=lambda clipped: -clipped.times)


def _covered(quantizer: Quantizer) -> tuple[Tensor, Tensor]:
    """The ends of the grid of every channel."""
    affine = quantizer.affine()
    low, high = ((end - affine.zero_point) * affine.scale for end in (affine.low, affine.high))
    return low[quantizer.index], high[quantizer.index]


def warn_of_clipping(model: QuantizedEncoder, extremes: Mapping[str, AllMinMax]) -> None:
    """Warn once, of the worst sites."""
    found = find_clipped(model, extremes)
    if not found:
        return
    more = f" and {len(found) - _SITES_NAMED} more sites" if len(found) > _SITES_NAMED else ""
    named = "; ".join(_described(clipped) for clipped in found[:_SITES_NAMED])
    warnings.warn(
        f"recipe {model.recipe.name!r} clips whole dimensions: {named}{more}. If quality suffers, use the "
        "estimator all-min-max, 16 bits or per-group ranges there",
        OctavoWarning,
        stacklevel=4,
    )


def _described(clipped: Clipped) -> str:
    shown = ", ".join(map(str, clipped.dimensions[:_DIMENSIONS_NAMED]))
    rest = len(clipped.dimensions) - _DIMENSIONS_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"{clipped.site} (dimensions {shown}{more}, up to {clipped.times:.1f} times the range)"
