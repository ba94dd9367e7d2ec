from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from octavo.errors import CalibrationError
from octavo.graph import Encoder
from octavo.methods.allocation.hessian import (
    Sensitivity,
    _eigenvalues,
    _loss,
    largest_eigenvalue,
    layer_sensitivities,
)
from tests.graph.families import batch, captured


def symmetric(size: int, seed: int = 0) -> Tensor:
    matrix = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return matrix + matrix.T


def dominant(matrix: Tensor) -> float:
    values = np.linalg.eigvalsh(matrix.numpy())
    return float(values[np.abs(values).argmax()])


@pytest.mark.parametrize("seed", range(5))
def test_power_iteration_finds_numpys_eigenvalue(seed: int) -> None:
    matrix = symmetric(12, seed)
    found = largest_eigenvalue(
        lambda v: [matrix @ v[0]], [torch.zeros(12).double()], iterations=3000, tolerance=1e-13
    )
    assert found == pytest.approx(dominant(matrix), rel=1e-4)


def test_a_quadratic_loss_has_the_eigenvalues_of_its_blocks() -> None:
    first, second = symmetric(6, 1) @ symmetric(6, 1), symmetric(4, 2) @ symmetric(4, 2)
    x, y = nn.Parameter(torch.ones(6).double()), nn.Parameter(torch.ones(4).double())
    loss = (x @ first @ x + y @ second @ y) / 2 + x.sum() * y.sum()  # the mixed term is in neither block
    found = _eigenvalues(loss, {"x": [x], "y": [y]}, seed=0)
    assert found["x"] == pytest.approx(dominant(first), rel=1e-2)
    assert found["y"] == pytest.approx(dominant(second), rel=1e-2)


def test_a_zero_hessian_has_eigenvalue_zero() -> None:
    assert largest_eigenvalue(lambda v: [0 * v[0]], [torch.ones(3)]) == 0.0


def full_hessian(encoder: Encoder, parameter: nn.Parameter, data: dict[str, Tensor]) -> Tensor:
    (gradient,) = torch.autograd.grad(_loss(encoder, data), [parameter], create_graph=True)
    rows: Sequence[Tensor] = [
        torch.autograd.grad(entry, [parameter], retain_graph=True)[0].flatten()
        for entry in gradient.flatten()
    ]
    return torch.stack(list(rows)).double()


@pytest.mark.parametrize("labelled", [False, True], ids=["own outputs", "labels"])
def test_a_layer_of_a_captured_encoder_has_the_eigenvalue_of_its_full_hessian(labelled: bool) -> None:
    _, encoder = captured("bert")
    site = next(s for s in encoder.weight_sites if s.name == "layers.1.layer_output.weight")
    parameter = encoder.graph.get_parameter(site.targets[0])
    data = batch((4, 7)) | ({"labels": torch.tensor([0, 1, 1, 0])} if labelled else {})
    found = layer_sensitivities(encoder, {"norm": [parameter]}, [data])["norm"]
    expected = dominant(full_hessian(encoder, parameter, data))
    assert found.value == pytest.approx(abs(expected), rel=0.02)
    assert labelled or expected > 0  # without labels the Hessian is a square


def test_padding_does_not_count() -> None:
    _, encoder = captured("bert", "encoder")
    parameter = encoder.graph.get_parameter(encoder.weight_sites[-1].targets[0])
    whole = batch((2, 6))
    padded = {"input_ids": torch.cat([whole["input_ids"], torch.full((2, 3), 9)], 1)}
    padded["attention_mask"] = torch.cat([whole["attention_mask"], torch.zeros(2, 3, dtype=torch.long)], 1)
    one, other = (
        layer_sensitivities(encoder, {"l": [parameter]}, [data])["l"].value for data in (whole, padded)
    )
    assert one == pytest.approx(other, rel=1e-4)


def test_sensitivity_adds_the_spread_to_the_mean() -> None:
    found = Sensitivity(eigenvalues=(1.0, 3.0))
    assert (found.mean, found.deviation, found.value) == (2.0, 1.0, 3.0)
    assert Sensitivity(eigenvalues=(-1.0, -3.0)).value == 3.0


def test_no_data_is_an_error() -> None:
    _, encoder = captured("bert")
    with pytest.raises(CalibrationError, match="no data for the Hessian"):
        layer_sensitivities(encoder, {}, [])
