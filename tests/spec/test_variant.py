from __future__ import annotations

from dataclasses import dataclass

import pytest

from octavo.errors import SpecError
from octavo.spec.estimator import ESTIMATORS, Estimator, MinMax
from octavo.spec.granularity import GRANULARITIES, Granularity, PerTensor
from octavo.spec.passes import PASSES, Pass
from octavo.spec.variant import Variant, check_variant


def test_a_variant_without_a_name_is_refused_where_it_is_defined() -> None:
    with pytest.raises(TypeError, match=r"Median has no name; write class Median\(\.\.\., name='\.\.\.'\)"):

        class Median(Estimator):
            pass


def test_a_name_is_given_once() -> None:
    with pytest.raises(
        SpecError, match=r"the estimator 'mse' exists already, in octavo\..*; give Other another name"
    ):

        class Other(Estimator, name="mse"):
            pass


def test_a_new_family_knows_its_own_variants_alone() -> None:
    class Fruit(Variant, family="fruit"):
        pass

    @dataclass(frozen=True, kw_only=True)
    class Apple(Fruit, name="apple"):
        weight: int = 1

    assert dict(Fruit.variants()) == {"apple": Apple} and Apple.variant_name == "apple"
    assert "apple" not in ESTIMATORS
    with pytest.raises(SpecError, match="fruit must be one of Apple, got 'pear'"):
        check_variant("fruit", "pear", Fruit)


def test_tables_are_the_families() -> None:
    assert ESTIMATORS["min-max"] is MinMax and GRANULARITIES["per-tensor"] is PerTensor
    assert dict(PASSES) == dict(Pass.variants())


@pytest.mark.parametrize("kind", Granularity.variants().values(), ids=lambda kind: kind.variant_name)
def test_every_granularity_says_how_it_lays_out_channels(kind: type[Granularity]) -> None:
    assert kind.layout is not Granularity.layout
