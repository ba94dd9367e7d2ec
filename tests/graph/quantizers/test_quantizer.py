from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.errors import CalibrationError, SpecError
from octavo.graph import Quantizer, Site, State
from octavo.numerics import affine_from_range, fake_quantize
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

SITE = Site(
    name="layers.0.ffn_output",
    role="ffn_output",
    kind="activation",
    shape=("batch", "length", 6),
    targets=("a",),
)
WEIGHT = Site(
    name="layers.0.ffn_output.weight", role="linear_weight", kind="weight", shape=(6, 8), targets=("w",)
)


def data(seed: int = 0) -> Tensor:
    """(2, 5, 6), whose channels grow and whose last channel is an outlier."""
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(seed)) + 0.3
    return x * torch.tensor([1.0, 1.0, 2.0, 2.0, 4.0, 60.0])


def fixed(spec: TensorSpec, x: Tensor, site: Site = SITE) -> Quantizer:
    quantizer = Quantizer(site, spec)
    quantizer.observe(x)
    quantizer.commit()
    quantizer.fix()
    return quantizer


def by_hand(x: Tensor, low: Tensor, high: Tensor, bits: int = 8, symmetric: bool = False) -> Tensor:
    """Quantize with ranges that broadcast against x."""
    grid = affine_from_range(low, high, bits, symmetric)
    return fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)


# -- granularities, against ranges taken by hand -------------------------------------------------------------


def test_per_tensor() -> None:
    x = data()
    assert torch.equal(fixed(TensorSpec(), x)(x), by_hand(x, x.min(), x.max()))


def test_per_embedding_has_a_range_for_every_channel() -> None:
    x = data()
    expected = by_hand(x, x.amin((0, 1)), x.amax((0, 1)))
    assert torch.equal(fixed(TensorSpec(granularity=PerEmbedding()), x)(x), expected)


def test_per_group_has_a_range_for_every_run_of_channels() -> None:
    x = data()
    found = fixed(TensorSpec(granularity=PerGroup(groups=4)), x)(x)  # sizes 2, 2, 1, 1
    pieces = [by_hand(piece, piece.min(), piece.max()) for piece in x.split([2, 2, 1, 1], dim=-1)]
    assert torch.equal(found, torch.cat(pieces, dim=-1))


def test_per_channel_of_a_weight_has_a_range_for_every_row() -> None:
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    spec = TensorSpec(bits=4, symmetric=True, granularity=PerChannel())
    expected = torch.stack([by_hand(row, row.min(), row.max(), bits=4, symmetric=True) for row in weight])
    assert torch.equal(fixed(spec, weight, WEIGHT)(weight), expected)


def test_groups_of_a_weight_are_groups_of_rows() -> None:
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    found = fixed(TensorSpec(symmetric=True, granularity=PerGroup(groups=2)), weight, WEIGHT)(weight)
    pieces = [by_hand(piece, piece.min(), piece.max(), symmetric=True) for piece in weight.split(3)]
    assert torch.equal(found, torch.cat(pieces))


@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
@pytest.mark.parametrize(
    "estimator", [MinMax(), Percentile(percent=100), Mse()], ids=lambda e: type(e).__name__
)
def test_per_token_has_a_range_for_every_token_of_the_tensor_at_hand(
    estimator: Estimator, symmetric: bool
) -> None:
    spec = TensorSpec(granularity=PerToken(), dynamic=True, symmetric=symmetric, estimator=estimator)
    quantizer = Quantizer(SITE, spec)
    quantizer.fix()
    x = data()
    whole = TensorSpec(dynamic=True, symmetric=symmetric, estimator=estimator)
    single = Quantizer(SITE, whole)
    single.fix()
    tokens = torch.stack([single(token[None, None])[0, 0] for token in x.flatten(0, 1)])
    assert torch.equal(quantizer(x), tokens.reshape(x.shape))


def test_dynamic_ranges_follow_the_tensor() -> None:
    quantizer = Quantizer(SITE, TensorSpec(dynamic=True))
    quantizer.fix()
    for x in (data(0), data(1) * 100):
        assert torch.equal(quantizer(x), by_hand(x, x.min(), x.max()))


@pytest.mark.parametrize("granularity", [PerTensor(), PerEmbedding(), PerGroup(groups=4)], ids=str)
@pytest.mark.parametrize(
    "estimator",
    [MinMax(), RunningMinMax(), AllMinMax(), Percentile(), TokenQuantile(keep=1), Mse()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_estimator_works_with_every_granularity(estimator: Estimator, granularity: Granularity) -> None:
    x = data()
    quantizer = fixed(TensorSpec(granularity=granularity, estimator=estimator), x)
    channels = quantizer.index.numel() if quantizer.axis is not None else 1
    assert quantizer.scale.numel() == int(quantizer.index.max()) + 1 <= channels
    assert float((quantizer(x) - x).abs().max()) <= float(quantizer.scale.max())


def test_the_quantile_of_tokens_leaves_an_odd_token_out() -> None:
    x = data()
    odd = torch.cat([x, torch.full_like(x[:, :1], 1e6)], dim=1)
    spec = TensorSpec(estimator=TokenQuantile(keep=0.5))
    assert float(fixed(spec, odd).scale) < 2 * float(fixed(TensorSpec(estimator=AllMinMax()), x).scale)


def test_tokens_of_a_convolution_stand_along_its_last_axis() -> None:
    site = Site(name="c", role="c", kind="activation", shape=("batch", 2, "length"), targets=("c",))
    x = torch.tensor([[[1.0, 5.0, 900.0], [2.0, 4.0, 0.0]]])
    quantizer = fixed(TensorSpec(estimator=TokenQuantile(keep=0.6)), x, site)
    assert float(quantizer.scale) * 255 == pytest.approx(5.0)


def test_cross_entropy_watches_rows_of_logits() -> None:
    logits = Site(name="logits", role="logits", kind="activation", shape=("batch", 3), targets=("l",))
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)) * 3
    assert fixed(TensorSpec(estimator=CrossEntropy()), x, logits).has_range


# -- states --------------------------------------------------------------------------------------------------


def test_observing_and_off_pass_the_tensor_itself() -> None:
    quantizer, x = Quantizer(SITE, TensorSpec()), data()
    assert quantizer.state is State.OBSERVE
    assert quantizer(x) is x
    quantizer.turn_off()
    assert quantizer(x) is x


def test_fixing_without_data_is_an_error() -> None:
    with pytest.raises(CalibrationError, match=r"layers\.0\.ffn_output saw no data; give at least one"):
        Quantizer(SITE, TensorSpec()).fix()


def test_asking_for_a_grid_without_a_range_is_an_error() -> None:
    with pytest.raises(CalibrationError, match=r"layers\.0\.ffn_output has no range; calibrate"):
        Quantizer(SITE, TensorSpec()).affine()


def test_learning_a_dynamic_range_is_an_error() -> None:
    quantizer = Quantizer(SITE, TensorSpec(dynamic=True))
    quantizer.fix()
    with pytest.raises(SpecError, match="dynamic ranges cannot be learned"):
        quantizer.learn()


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=["NaN", "infinity"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_what_is_not_finite_names_the_site(value: float, dynamic: bool) -> None:
    quantizer, x = Quantizer(SITE, TensorSpec(dynamic=dynamic)), data()
    x[0, 1, 2] = value
    if dynamic:
        quantizer.fix()
    with pytest.raises(CalibrationError, match=r"layers\.0\.ffn_output.*NaN or infinity"):
        quantizer(x)
        quantizer.fix()  # static ranges are asked for once, in the end


def test_a_tensor_is_never_overwritten_unless_it_may_be() -> None:
    x = data()
    quantizer = fixed(TensorSpec(), x)
    before = x.clone()
    result = quantizer(x)
    assert torch.equal(x, before)
    quantizer.inplace = True
    assert torch.equal(quantizer(x), result)
    assert torch.equal(x, result)


def test_a_leaf_that_takes_gradients_is_not_overwritten() -> None:
    x = data()
    quantizer = fixed(TensorSpec(), x)
    quantizer.inplace = True
    leaf = x.clone().requires_grad_()
    assert torch.equal(quantizer(leaf), quantizer(x.clone()))
    assert torch.equal(leaf, x)


def test_a_fixed_quantizer_passes_gradients_straight_through() -> None:
    quantizer = fixed(TensorSpec(), torch.tensor([[-1.0, 1.0]]))
    x = torch.tensor([[-5.0, -0.5, 0.25, 5.0]], requires_grad=True)
    quantizer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 1, 1, 0]]


def test_training_looks_at_a_weight_that_learns_and_not_at_its_cached_copy() -> None:
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    quantizer = fixed(TensorSpec(symmetric=True), weight, WEIGHT)
    quantizer.constant = quantizer(weight)
    assert torch.equal(quantizer.eval()(weight / 2), quantizer.constant)
    learning = (weight / 2).requires_grad_()
    assert not torch.equal(quantizer.train()(learning), quantizer.constant)
    assert quantizer(learning.detach()) is quantizer.constant  # one that does not learn stays


# -- learning ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
@pytest.mark.parametrize("granularity", [PerTensor(), PerEmbedding(), PerGroup(groups=4)], ids=str)
def test_learning_starts_from_the_fixed_grid_and_ends_in_one(
    granularity: Granularity, symmetric: bool
) -> None:
    x = data()
    quantizer = fixed(TensorSpec(granularity=granularity, symmetric=symmetric), x)
    before = quantizer(x)
    quantizer.learn()
    assert torch.allclose(quantizer(x), before, rtol=1e-5)
    quantizer.fix()
    assert not list(quantizer.parameters())
    assert torch.allclose(quantizer(x), before, rtol=1e-5)


def test_the_scale_stays_positive_however_far_it_is_pushed() -> None:
    x = data()
    quantizer = fixed(TensorSpec(), x)
    quantizer.learn()
    optimizer = torch.optim.SGD(quantizer.parameters(), lr=1e3)
    for _ in range(3):
        optimizer.zero_grad()
        quantizer(x).square().sum().sqrt().backward()  # smallest at scale 0
        optimizer.step()
    quantizer.fix()
    assert bool((quantizer.scale > 0).all())
    assert bool(quantizer.scale.isfinite().all())


def test_learning_reduces_the_error_of_a_bad_range() -> None:
    x = torch.randn(4, 8, 6, generator=torch.Generator().manual_seed(0))
    quantizer = fixed(TensorSpec(bits=4), x * 4)

    def error() -> Tensor:
        return (quantizer(x) - x).square().mean()

    start = float(error())
    quantizer.learn()
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        error().backward()
        optimizer.step()
    quantizer.fix()
    assert float(error()) < start / 4


def test_learning_again_goes_on_from_what_was_learned() -> None:
    quantizer = fixed(TensorSpec(), data())
    quantizer.learn()
    assert quantizer.log_scale is not None
    with torch.no_grad():
        quantizer.log_scale.add_(1)
    learned = quantizer.log_scale.detach().clone()
    quantizer.learn()
    assert torch.allclose(quantizer.log_scale, learned)


def test_integers_are_on_the_grid() -> None:
    x = data()
    quantizer = fixed(TensorSpec(bits=4, granularity=PerEmbedding()), x)
    integers = quantizer.integers(x)
    assert integers.dtype == torch.int32
    assert (int(integers.min()), int(integers.max())) == (0, 15)
