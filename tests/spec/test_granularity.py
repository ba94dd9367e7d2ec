from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from octavo.errors import SpecError
from octavo.spec.granularity import (
    GRANULARITIES,
    Granularity,
    PerChannel,
    PerEmbedding,
    PerGroup,
    PerTensor,
    PerToken,
)


def test_variants_without_options_are_equal_and_hashable() -> None:
    assert PerTensor() == PerTensor()
    assert len({PerTensor(), PerTensor(), PerToken(), PerEmbedding()}) == 3


def test_the_defaults_are_those_of_the_paper() -> None:
    group = PerGroup(groups=6)
    assert (group.permute, group.shared) == (False, True)
    assert PerChannel().axis == 0


def test_a_granularity_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PerGroup(groups=6).groups = 3  # type: ignore[misc]


def test_every_variant_has_one_name() -> None:
    assert set(GRANULARITIES.values()) == set(Granularity.__subclasses__())


@pytest.mark.parametrize("groups", [0, -1, 2.0, True, "6"], ids=repr)
def test_senseless_group_counts_are_refused(groups: int) -> None:
    with pytest.raises(SpecError, match=f"groups must be an integer of at least 1, got {groups!r}"):
        PerGroup(groups=groups)


def test_a_negative_axis_is_refused() -> None:
    with pytest.raises(SpecError, match="axis must be an integer of at least 0, got -1"):
        PerChannel(axis=-1)


def test_a_permutation_of_its_own_needs_a_permutation() -> None:
    PerGroup(groups=6, permute=True, shared=False)
    with pytest.raises(
        SpecError, match="shared: false does nothing without a permutation; add permute: true"
    ):
        PerGroup(groups=6, shared=False)


def test_flags_must_be_flags() -> None:
    with pytest.raises(SpecError, match="permute must be true or false, got 'yes'"):
        PerGroup(groups=6, permute="yes")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="shared must be true or false, got None"):
        PerGroup(groups=6, shared=None)  # type: ignore[arg-type]


def test_optimal_sizes_need_a_permutation() -> None:
    assert PerGroup(groups=6, permute=True, sizes="optimal").has_optimal_sizes
    assert not PerGroup(groups=6, permute=True).has_optimal_sizes
    with pytest.raises(SpecError, match=r"sizes: optimal cuts channels sorted .*; add permute: true"):
        PerGroup(groups=6, sizes="optimal")


@pytest.mark.parametrize("sizes", ["best", None, ["even"], True], ids=repr)
def test_unknown_sizes_are_refused(sizes: object) -> None:
    with pytest.raises(SpecError, match="sizes must be even or optimal, got "):
        PerGroup(groups=6, permute=True, sizes=sizes)  # type: ignore[arg-type]
