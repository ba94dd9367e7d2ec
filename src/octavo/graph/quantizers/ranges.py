"""From a spec to numbers: the layout of a site's channels and the estimator of its ranges."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo import numerics
from octavo import spec as specs
from octavo.errors import SpecError
from octavo.graph.sites.site import Site
from octavo.numerics import RangeEstimator, group_index
from octavo.spec import TensorSpec


@dataclass(frozen=True, eq=False)
class Layout:
    """Along which axis channels are counted (None: one channel) and which group each belongs to."""

    axis: int | None
    index: Tensor

    @staticmethod
    def of(site: Site, spec: TensorSpec, order: Tensor | None = None) -> Layout:
        """The layout of a granularity at a site; `order` is a permutation of its channels.

        A pair that makes no sense there (groups along an axis that varies, too many groups) is an error.
        """
        match spec.granularity:
            case specs.PerTensor():
                return Layout(None, torch.zeros(1, dtype=torch.long))
            case specs.Folded():
                if site.kind == "weight":
                    raise SpecError(f"folded: {site.name} is a weight; fold the activations that it reads")
                _size(site, site.channel_axis, "folded")
                return Layout(None, torch.zeros(1, dtype=torch.long))
            case specs.PerToken():
                if site.kind == "weight":
                    raise SpecError(f"per-token: {site.name} is a weight and has no tokens; use per-channel")
                return Layout(None, torch.empty(0, dtype=torch.long))
            case specs.PerChannel(axis=axis):
                return Layout(axis, torch.arange(_size(site, axis, "per-channel")))
            case specs.PerEmbedding():
                return Layout(
                    site.channel_axis, torch.arange(_size(site, site.channel_axis, "per-embedding"))
                )
            case specs.PerGroup(groups=groups, permute=permute, at_most=at_most):
                if permute and site.kind == "weight":
                    raise SpecError(
                        f"per-group: {site.name} is a weight, only activations are permuted; drop permute"
                    )
                axis = 0 if site.kind == "weight" else site.channel_axis
                width = _size(site, axis, "per-group")
                if at_most:
                    groups = min(groups, width)
                if groups > width:
                    raise SpecError(
                        f"per-group: {groups} groups asked for {site.name}, width {width}; "
                        f"use at most {width}"
                    )
                return Layout(axis, group_index(width, groups, order))
        raise AssertionError(spec.granularity)


def _size(site: Site, axis: int, granularity: str) -> int:
    if not -len(site.shape) <= axis < len(site.shape):
        raise SpecError(f"{granularity}: {site.name} has {len(site.shape)} axes, axis {axis} asked for")
    size = site.shape[axis]
    if not isinstance(size, int):
        raise SpecError(
            f"{granularity}: axis {axis} of {site.name} is the {size}, which varies; use per-tensor there"
        )
    return size


def make_estimator(spec: TensorSpec, index: Tensor) -> RangeEstimator:
    """The estimator a spec names, for channels grouped by `index`."""
    options: dict[str, Any] = {"bits": spec.bits, "symmetric": spec.symmetric, **asdict(spec.estimator)}
    if spec.dynamic and spec.symmetric:
        options["signed"] = True  # a grid for tensors to come has negative integers, whatever this one has
    match spec.estimator:
        case specs.MinMax():
            return numerics.CurrentMinMax(index, **options)
        case specs.RunningMinMax():
            return numerics.RunningMinMax(index, **options)
        case specs.AllMinMax():
            return numerics.AllMinMax(index, **options)
        case specs.Percentile():
            return numerics.HistogramPercentile(index, **options)
        case specs.Mse():
            return numerics.HistogramMse(index, **options)
        case specs.CrossEntropy():
            return numerics.RowCrossEntropy(index, **options)
    raise AssertionError(spec.estimator)
