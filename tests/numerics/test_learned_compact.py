from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.numerics import fake_quantize
from octavo.numerics.learned import Exact, learned_fake_quantize
from octavo.numerics.learned_compact import BLOCK, Compact

CASES = {
    "asymmetric": (-4.0, 0.37, 0, 255),
    "unsigned": (-4.0, None, 0, 255),
    "4 bits": (-1.0, None, -8, 7),
    "2 bits": (0.5, None, -2, 1),
    "16 bits": (-8.8, 0.4, 0, 65535),
}


def run(function: Any, x: Tensor, case: tuple[float, float | None, int, int]) -> tuple[Tensor | None, ...]:
    log, share, low, high = case
    leaf = x.clone().requires_grad_()
    log_scale = torch.tensor([log], requires_grad=True)
    shift = None if share is None else torch.tensor([share], requires_grad=True)
    y = function.apply(leaf, log_scale, shift, low, high, 0.5)
    weights = torch.arange(y.numel()).view_as(y).sin()
    (y * weights).sum().backward()
    return y.detach(), leaf.grad, log_scale.grad, None if shift is None else shift.grad


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_byte_an_element_gives_the_exact_gradients(case: tuple[float, float | None, int, int]) -> None:
    x = data(3, 7000)
    exact, compact = run(Exact, x, case), run(Compact, x, case)
    assert torch.equal(exact[0], compact[0])  # type: ignore[arg-type]
    assert torch.equal(exact[1], compact[1])  # type: ignore[arg-type]
    assert torch.allclose(compact[2], exact[2], rtol=1e-2)  # type: ignore[arg-type]
    if exact[3] is not None and compact[3] is not None:
        assert torch.allclose(compact[3], exact[3], rtol=1e-2)


class Traced:
    """What torch.compile makes of it, without building kernels."""

    @staticmethod
    def apply(*arguments: Any) -> Any:
        return torch.compile(learned_fake_quantize, backend="aot_eager", fullgraph=True)(*arguments)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch's own, while it traces
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_under_compile_the_gradients_are_the_same(case: tuple[float, float | None, int, int]) -> None:
    x = data(3, 7, 1000)
    exact, traced = run(Exact, x, case), run(Traced, x, case)
    assert torch.equal(exact[0], traced[0])  # type: ignore[arg-type]
    assert torch.equal(exact[1], traced[1])  # type: ignore[arg-type]
    assert torch.allclose(traced[2], exact[2], rtol=1e-2)  # type: ignore[arg-type]
    if exact[3] is not None and traced[3] is not None:
        assert torch.allclose(traced[3], exact[3], rtol=1e-2)


def test_tensors_longer_than_a_block_are_one_tensor() -> None:
    x = data(2, BLOCK // 2 + 100)
    exact, compact = run(Exact, x, CASES["asymmetric"]), run(Compact, x, CASES["asymmetric"])
    assert torch.equal(exact[0], compact[0])  # type: ignore[arg-type]
    assert torch.allclose(compact[2], exact[2], rtol=1e-2, atol=0.5)  # type: ignore[arg-type]


def test_a_transposed_tensor_is_quantized_in_its_shape() -> None:
    x = data(6, 40).t()
    y = run(Compact, x, CASES["asymmetric"])[0]
    assert y is not None and y.shape == x.shape
    assert torch.equal(y, run(Exact, x, CASES["asymmetric"])[0])  # type: ignore[arg-type]


def test_without_gradients_it_is_plain_fake_quantization() -> None:
    x = data(50)
    with torch.no_grad():
        y = learned_fake_quantize(x, torch.tensor([-4.0]), torch.tensor([0.5]), 0, 255)
    zero = torch.tensor(round(0.5 * 255))
    assert torch.equal(y, fake_quantize(x, torch.tensor(-4.0).exp(), zero, 0, 255))


def test_what_is_kept_for_the_backward_pass_is_one_byte_an_element() -> None:
    kept: list[int] = []
    log_scale, shift = torch.tensor([-4.0], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.nbytes), t)[1], lambda t: t):
        learned_fake_quantize(data(1000).requires_grad_(), log_scale, shift, 0, 255)
    assert sum(kept) < 1100


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_fused_kernels_agree(case: tuple[float, float | None, int, int]) -> None:
    from octavo.numerics.learned_cuda import Fused

    x, (log, share, low, high) = data(3, 7001), case
    outputs = []
    for function, device in ((Compact, "cpu"), (Fused, "cuda")):
        leaf = x.detach().to(device).requires_grad_()
        log_scale = torch.tensor([log], device=device, requires_grad=True)
        shift = None if share is None else torch.tensor([share], device=device, requires_grad=True)
        y = function.apply(leaf, log_scale, shift, low, high, 0.5)  # type: ignore[no-untyped-call]
        y.square().sum().backward()
        outputs.append([t.detach().cpu() for t in (y, leaf.grad, log_scale.grad) if t is not None])
    for first, second in zip(*outputs, strict=True):
        assert torch.allclose(first, second, rtol=1e-3, atol=1e-3)
