from __future__ import annotations

import pytest

from octavo.errors import SpecError
from octavo.spec.estimator import AllMinMax, CrossEntropy, Estimator, MinMax, Mse, Percentile, RunningMinMax
from octavo.spec.granularity import Granularity, PerChannel, PerEmbedding, PerGroup, PerTensor, PerToken
from octavo.spec.tensor import TensorSpec


def test_the_default_is_asymmetric_8_bits_per_tensor() -> None:
    spec = TensorSpec()
    assert (spec.bits, spec.symmetric, spec.dynamic) == (8, False, False)
    assert (spec.granularity, spec.estimator) == (PerTensor(), MinMax())


@pytest.mark.parametrize("bits", [2, 16])
def test_the_widest_and_narrowest_grids_are_allowed(bits: int) -> None:
    assert TensorSpec(bits=bits).bits == bits


@pytest.mark.parametrize("bits", [1, 17, 32, 8.0, "8", True], ids=repr)
def test_other_widths_are_refused(bits: int) -> None:
    with pytest.raises(SpecError, match=f"bits must be an integer from 2 to 16, got {bits!r}"):
        TensorSpec(bits=bits)


def test_coded_strings_are_refused() -> None:
    with pytest.raises(
        SpecError, match=r"granularity must be one of PerTensor, .* PerGroup, got 'per-tensor'"
    ):
        TensorSpec(granularity="per-tensor")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"estimator must be one of MinMax, .* CrossEntropy, got 'mse'"):
        TensorSpec(estimator="mse")  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", [MinMax(), Percentile(), Mse()], ids=repr)
def test_a_dynamic_range_may_come_from_one_tensor(estimator: Estimator) -> None:
    assert TensorSpec(dynamic=True, estimator=estimator).estimator == estimator


@pytest.mark.parametrize("estimator", [RunningMinMax(), AllMinMax(), CrossEntropy()], ids=repr)
def test_a_dynamic_range_needs_an_estimator_without_memory(estimator: Estimator) -> None:
    name = type(estimator).__name__
    with pytest.raises(SpecError, match=f"dynamic range .* {name} .* use min-max, percentile or mse"):
        TensorSpec(dynamic=True, estimator=estimator)


def test_per_token_ranges_are_dynamic() -> None:
    assert TensorSpec(granularity=PerToken(), dynamic=True).dynamic
    with pytest.raises(SpecError, match=r"per-token has no static ranges.* add dynamic: true"):
        TensorSpec(granularity=PerToken())


@pytest.mark.parametrize("granularity", [PerChannel(), PerEmbedding(), PerGroup(groups=2)], ids=repr)
def test_cross_entropy_works_per_tensor_only(granularity: Granularity) -> None:
    name = type(granularity).__name__
    with pytest.raises(
        SpecError, match=f"cross-entropy .* got {name}; use granularity per-tensor, or the mse"
    ):
        TensorSpec(granularity=granularity, estimator=CrossEntropy())


def test_specs_are_hashable() -> None:
    assert len({TensorSpec(), TensorSpec(), TensorSpec(bits=4)}) == 2
