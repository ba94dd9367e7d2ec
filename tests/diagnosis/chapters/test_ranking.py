from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from octavo.diagnosis.chapters.dimensions import ChannelTally
from octavo.diagnosis.chapters.ranking import ErrorTally, rank
from octavo.diagnosis.watch import MomentsBySite, Shown
from octavo.errors import ModelError
from octavo.graph import Site
from octavo.numerics import affine_from_range, fake_quantize

SITE = Site(
    name="layers.0.ffn_output",
    role="ffn_output",
    kind="activation",
    shape=("batch", "length", 4),
    targets=("x",),
)


def passes(*batches: Tensor, site: Site = SITE) -> tuple[ChannelTally, ErrorTally]:
    by_site, channels, errors = MomentsBySite(), ChannelTally(), ErrorTally()
    for x in batches:
        shown = Shown(site=site, x=x, batch={"input_ids": x[..., 0]}, indices=range(len(x)))
        by_site.see(shown)
        channels.see_range(shown)
    for x in batches:
        indices, moments = range(len(x)), by_site.moments[site.name]
        shown = Shown(site=site, x=x, batch={"input_ids": x[..., 0]}, indices=indices, moments=moments)
        errors.see(shown)
        channels.see_outliers(shown)
    return channels, errors


def test_sqnr_is_that_of_quantizing_everything_at_once() -> None:
    torch.manual_seed(0)
    batches = [torch.randn(2, 5, 4), torch.randn(3, 7, 4) * 2]
    everything = torch.cat([x.reshape(-1) for x in batches])
    grid = affine_from_range(everything.min(), everything.max(), 8, symmetric=False)
    error = fake_quantize(everything, grid.scale, grid.zero_point, grid.low, grid.high) - everything
    expected = 10 * math.log10(float(everything.square().sum() / error.square().sum()))
    found = passes(*batches)[1].statistics(SITE)
    assert found.sqnr_db == pytest.approx(expected, abs=1e-3)
    assert (found.minimum, found.maximum) == (float(everything.min()), float(everything.max()))


def test_an_outlier_cannot_flatter_the_median_dimension() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 50, 4)
    x[..., 2] *= 500
    found = passes(x)[1].statistics(SITE)
    assert found.sqnr_db > 30
    assert found.typical_sqnr_db < 5


def test_outliers_are_counted_by_value_and_by_text() -> None:
    x = torch.zeros(3, 100, 4)
    x[0, 5, 1] = x[2, 6, 1] = x[2, 7, 1] = 9.0
    tally, errors = passes(x)
    assert errors.statistics(SITE).beyond == pytest.approx(3 / 1200)
    assert tally.channels[SITE.name].texts.tolist() == [0, 2, 0, 0]
    assert tally.first_texts[SITE.name] == {0: [1], 1: [], 2: [1]}
    assert tally.channels[SITE.name].span.tolist() == [0, 9, 0, 0]


def test_a_tensor_without_a_fixed_width_counts_as_a_whole() -> None:
    site = Site(name="layers.0.attention_probs", role="attention_probs", kind="activation",
                shape=("batch", 2, "length", "length"), targets=("p",))  # fmt: skip
    tally, errors = passes(torch.rand(2, 2, 3, 3), torch.rand(1, 2, 5, 5), site=site)
    found = errors.statistics(site)
    assert site.name not in tally.channels
    assert found.sqnr_db == found.typical_sqnr_db


def test_an_exact_tensor_has_an_infinite_ratio_and_comes_last() -> None:
    exact, noisy = torch.zeros(1, 2, 4), torch.randn(1, 2, 4)
    other = Site(
        name="layers.1.ffn_output", role="ffn_output", kind="activation", shape=SITE.shape, targets=("y",)
    )
    found = passes(exact)[1].statistics(SITE)
    assert math.isinf(found.sqnr_db)
    assert found.to_dict()["sqnr_db"] is None
    statistics = [found, passes(noisy, site=other)[1].statistics(other)]
    assert [site.name for site in rank(statistics)] == [other.name, SITE.name]


def test_nan_is_an_error_that_names_the_site() -> None:
    with pytest.raises(ModelError, match=r"layers\.0\.ffn_output holds NaN or infinity for text 1"):
        passes(torch.full((1, 2, 4), torch.nan))
