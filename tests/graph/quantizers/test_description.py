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
CASES: dict[Granularity, tuple[str, int | None, bool, tuple[int, ...] | None]] = {
    PerTensor(): ("per-tensor", 1, False, None),
    PerEmbedding(): ("per-embedding", 12, False, None),
    PerChannel(axis=2): ("per-channel", 12, False, None),
    PerGroup(groups=5): ("per-group", 5, False, (3, 3, 2, 2, 2)),
    PerGroup(groups=4, permute=True): ("per-group", 4, True, (3, 3, 3, 3)),
    PerGroup(groups=99, at_most=True): ("per-group", 12, False, (1,) * 12),
    PerToken(): ("per-token", None, False, None),
}


@pytest.mark.parametrize("granularity", CASES, ids=str)
def test_bits_granularity_and_groups(granularity: Granularity) -> None:
    spec = TensorSpec(bits=4, granularity=granularity, dynamic=isinstance(granularity, PerToken))
    name, groups, permuted, sizes = CASES[granularity]
    expected = Quantization(bits=4, granularity=name, groups=groups, permuted=permuted, sizes=sizes)
    assert describe_quantizer(Quantizer(ACTIVATION, spec)) == expected


def test_every_granularity_is_described() -> None:
    assert {type(granularity) for granularity in CASES} == set(GRANULARITIES.values())
