"""From a spec to numbers: the layout of a site's channels and the estimator of its ranges."""

from __future__ import annotations

from dataclasses import asdict, dataclass
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


ESTIMATORS: dict[type[specs.Estimator], type[RangeEstimator]] = {
    specs.MinMax: numerics.CurrentMinMax,
    specs.RunningMinMax: numerics.RunningMinMax,
    specs.AllMinMax: numerics.AllMinMax,
    specs.Percentile: numerics.HistogramPercentile,
    specs.TokenQuantile: numerics.TokenQuantiles,
    specs.Mse: numerics.HistogramMse,
    specs.CrossEntropy: numerics.RowCrossEntropy,
}
"""What computes every estimator of a recipe, made with its fields; a test names the one that is missing."""


FLOATS: dict[type[specs.Format], torch.dtype] = {
    specs.E4M3: torch.float8_e4m3fn,
    specs.E5M2: torch.float8_e5m2,
}
"""What computes every floating-point format; a test names the one that is missing."""


def make_estimator(spec: TensorSpec, index: Tensor, importance: Tensor | None = None) -> RangeEstimator:
    """Return the estimator that a spec names, for channels grouped by `index`.

    `importance`, (channels,), is what errors count where the spec weighs them.
    """
    options: dict[str, Any] = {"bits": spec.bits, "symmetric": spec.symmetric, **asdict(spec.estimator)}
    if options.pop("weighted", False):
        options["importance"] = importance
    if spec.dynamic and spec.symmetric:
        options["signed"] = True  # a grid for tensors to come has negative integers, whatever this one has
    return ESTIMATORS[type(spec.estimator)](index, **options)
