from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from octavo.errors import OctavoWarning
from octavo.graph import Encoder
from octavo.methods import quantize
from octavo.spec import AllMinMax, Estimator, Percentile, RunningMinMax, TensorSpec
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((4, 12), seed=seed) for seed in range(8)]


@pytest.fixture(scope="module")
def spiked() -> Encoder:
    """A BERT whose embeddings have one dimension that is far out for one token in ten."""
    encoder = families.fresh("bert")
    norm = encoder.graph.get_parameter("bert.embeddings.LayerNorm.weight")
    with torch.no_grad():
        norm[5] = 200.0
    return encoder


def calibrated(encoder: Encoder, estimator: Estimator) -> list[str]:
    chosen = replace(recipe("w32a8"), activations=TensorSpec(estimator=estimator))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quantize(encoder, chosen, BATCHES)
    return [str(entry.message) for entry in caught if issubclass(entry.category, OctavoWarning)]


def test_one_warning_names_site_and_dimension(spiked: Encoder) -> None:
    (message,) = calibrated(spiked, Percentile(percent=96.0))
    assert "'w32a8' clips whole dimensions: " in message
    assert "embeddings.norm (dimensions 5, up to " in message and "all-min-max" in message


@pytest.mark.parametrize("estimator", [AllMinMax(), RunningMinMax(), Percentile()], ids=repr)
def test_ranges_that_hold_the_outlier_do_not_warn(spiked: Encoder, estimator: Estimator) -> None:
    assert calibrated(spiked, estimator) == []


def test_at_most_three_sites_are_named(spiked: Encoder) -> None:
    (message,) = calibrated(spiked, Percentile(percent=51.0))
    assert message.count("times the range") == 3 and "more sites" in message
