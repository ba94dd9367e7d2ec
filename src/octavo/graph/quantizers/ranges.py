"""From a spec to numbers: the layout of a site's channels and the estimator of its ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octavo import numerics
from octavo import spec as specs
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
        """Return the layout of a granularity at a site; `order` is a permutation of its channels.

        A pair that makes no sense there (groups along an axis that varies, too many groups) is an error.
        """
        axis, groups = spec.granularity.layout(site)
        if axis is None:
            return Layout(None, torch.zeros(groups, dtype=torch.long))
        return Layout(axis, group_index(int(site.shape[axis]), groups, order))


Maker = Callable[[Tensor, TensorSpec, Any], RangeEstimator]
"""Makes the estimator of a spec, given the group of every channel, the tensor's spec and the estimator's."""

ESTIMATORS: dict[type[specs.Estimator], Maker] = {
    specs.MinMax: lambda index, tensor, e: numerics.CurrentMinMax(index),
    specs.RunningMinMax: lambda index, tensor, e: numerics.RunningMinMax(index, e.momentum),
    specs.AllMinMax: lambda index, tensor, e: numerics.AllMinMax(index),
    specs.Percentile: lambda index, tensor, e: numerics.HistogramPercentile(index, e.percent),
    specs.Mse: lambda index, tensor, e: numerics.HistogramMse(
        index, tensor.bits, tensor.symmetric, e.candidates
    ),
    specs.CrossEntropy: lambda index, tensor, e: numerics.RowCrossEntropy(
        index, tensor.bits, tensor.symmetric, e.candidates
    ),
}
"""How every estimator of a recipe computes; a test names the one that is missing."""


def make_estimator(spec: TensorSpec, index: Tensor) -> RangeEstimator:
    """Return the estimator that a spec names, for channels grouped by `index`."""
    return ESTIMATORS[type(spec.estimator)](index, spec, spec.estimator)
