from __future__ import annotations

import pytest
import torch

from octavo import numerics
from octavo.errors import SpecError
from octavo.graph import Site
from octavo.graph.quantizers.ranges import ESTIMATORS, Layout, make_estimator
from octavo.spec import (
    AllMinMax,
    CrossEntropy,
    Estimator,
    Granularity,
    MinMax,
    Mse,
    Percentile,
    PerChannel,
    PerEmbedding,
    PerGroup,
    PerTensor,
    PerToken,
    RunningMinMax,
    TensorSpec,
    TokenQuantile,
)

HIDDEN = Site(
    name="layers.3.ffn_output",
    role="ffn_output",
    kind="activation",
    shape=("batch", "length", 4),
    targets=("a",),
)
PROBS = Site(
    name="probs",
    role="attention_probs",
    kind="activation",
    shape=("batch", 4, "length", "length"),
    targets=("b",),
)
CONVOLVED = Site(
    name="conv", role="ffn_output", kind="activation", shape=("batch", 6, "length"), targets=("c",)
)
WEIGHT = Site(
    name="layers.3.ffn_output.weight", role="linear_weight", kind="weight", shape=(5, 8), targets=("w",)
)


@pytest.mark.parametrize(
    ("site", "granularity", "axis", "index"),
    [
        (HIDDEN, PerTensor(), None, [0]),
        (HIDDEN, PerEmbedding(), -1, [0, 1, 2, 3]),
        (HIDDEN, PerGroup(groups=3), -1, [0, 0, 1, 2]),
        (CONVOLVED, PerGroup(groups=2), -2, [0, 0, 0, 1, 1, 1]),
        (CONVOLVED, PerEmbedding(), -2, [0, 1, 2, 3, 4, 5]),
        (PROBS, PerChannel(axis=1), 1, [0, 1, 2, 3]),
        (WEIGHT, PerChannel(), 0, [0, 1, 2, 3, 4]),
        (WEIGHT, PerGroup(groups=2), 0, [0, 0, 0, 1, 1]),
        (WEIGHT, PerEmbedding(), -1, list(range(8))),
    ],
    ids=str,
)
def test_layout(site: Site, granularity: Granularity, axis: int | None, index: list[int]) -> None:
    layout = Layout.of(site, TensorSpec(granularity=granularity))
    assert (layout.axis, layout.index.tolist()) == (axis, index)


def test_an_order_moves_channels_between_groups() -> None:
    layout = Layout.of(HIDDEN, TensorSpec(granularity=PerGroup(groups=2)), torch.tensor([2, 0, 3, 1]))
    assert layout.index.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("site", "spec", "message"),
    [
        (
            HIDDEN,
            TensorSpec(granularity=PerGroup(groups=5)),
            "5 groups asked for layers.3.ffn_output, width 4; use at most 4",
        ),
        (
            PROBS,
            TensorSpec(granularity=PerEmbedding()),
            "axis -1 of probs is the length, which varies; use per-tensor",
        ),
        (
            HIDDEN,
            TensorSpec(granularity=PerChannel(axis=3)),
            "layers.3.ffn_output has 3 axes, axis 3 asked for",
        ),
        (
            WEIGHT,
            TensorSpec(granularity=PerToken(), dynamic=True),
            "is a weight and has no tokens; use per-channel",
        ),
        (WEIGHT, TensorSpec(granularity=PerGroup(groups=2, permute=True)), "only activations are permuted"),
    ],
    ids=["too many groups", "length varies", "no such axis", "weights have no tokens", "permuted weight"],
)
def test_senseless_pairs_are_errors(site: Site, spec: TensorSpec, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Layout.of(site, spec)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (MinMax(), numerics.CurrentMinMax),
        (RunningMinMax(), numerics.RunningMinMax),
        (AllMinMax(), numerics.AllMinMax),
        (Percentile(), numerics.HistogramPercentile),
        (TokenQuantile(), numerics.TokenQuantiles),
        (Mse(), numerics.HistogramMse),
        (CrossEntropy(), numerics.RowCrossEntropy),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_every_estimator_has_its_class(estimator: Estimator, expected: type) -> None:
    assert type(make_estimator(TensorSpec(estimator=estimator), torch.zeros(1, dtype=torch.long))) is expected


def test_every_estimator_of_a_recipe_computes() -> None:
    missing = [kind.__name__ for kind in Estimator.variants().values() if kind not in ESTIMATORS]
    assert not missing, f"octavo.graph.quantizers.ranges.ESTIMATORS lacks {missing}"
