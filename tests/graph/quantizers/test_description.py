from __future__ import annotations

import pytest

from octavo.graph import Quantizer, Site
from octavo.graph.quantizers.description import Quantization, describe_quantizer
from octavo.spec import PerChannel, PerEmbedding, PerGroup, PerTensor, PerToken, TensorSpec
from octavo.spec.granularity import GRANULARITIES, Granularity

ACTIVATION = Site(
    name="layers.0.ffn_output",
    role="ffn_output",
    kind="activation",
    shape=("batch", "length", 12),
    targets=("x",),
)
CASES: dict[Granularity, tuple[str, int | None, bool]] = {
    PerTensor(): ("per-tensor", 1, False),
    PerEmbedding(): ("per-embedding", 12, False),
    PerChannel(axis=2): ("per-channel", 12, False),
    PerGroup(groups=3): ("per-group", 3, False),
    PerGroup(groups=4, permute=True): ("per-group", 4, True),
    PerGroup(groups=99, at_most=True): ("per-group", 12, False),
    PerToken(): ("per-token", None, False),
}


@pytest.mark.parametrize("granularity", CASES, ids=str)
def test_bits_granularity_and_groups(granularity: Granularity) -> None:
    spec = TensorSpec(bits=4, granularity=granularity, dynamic=isinstance(granularity, PerToken))
    name, groups, permuted = CASES[granularity]
    expected = Quantization(bits=4, granularity=name, groups=groups, permuted=permuted)
    assert describe_quantizer(Quantizer(ACTIVATION, spec)) == expected


def test_every_granularity_is_described() -> None:
    assert {type(granularity) for granularity in CASES} == set(GRANULARITIES.values())
