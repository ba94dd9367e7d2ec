from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.graph import Encoder
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.loop import RunOptions
from octavo.methods.training.step import repeatable
from tests.graph import families

HYPER = Hyperparameters(
    learning_rate=1e-3, batch_size=16, epochs=1, clip=1e3, hidden_dropout=0.0, attention_dropout=0.0
)


class ScaledOptimizer:
    """As accelerate's: the scaler takes the steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        self.optimizer, self.scaler = optimizer, scaler
        self.param_groups, self.zero_grad = optimizer.param_groups, optimizer.zero_grad

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Scaling:
    """Stands for accelerate's `Accelerator(mixed_precision="fp16")`: the loss is scaled, the rest float."""

    process_index, num_processes = 0, 1

    def __init__(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def prepare_model(self, module: Any) -> Any:
        return module

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool) -> ScaledOptimizer:
        return ScaledOptimizer(optimizer, self.scaler)

    def autocast(self) -> Any:
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def unscale_gradients(self, optimizer: ScaledOptimizer) -> None:
        self.scaler.unscale_(optimizer.optimizer)


def test_gradients_are_summed_in_one_order_while_a_step_lasts() -> None:
    torch.use_deterministic_algorithms(False)
    with repeatable():
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # a kernel for every tensor
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("record", [False, True])
def test_training_repeats_to_the_bit_on_a_gpu(record: bool) -> None:
    """Relative positions are looked up more than 4,096 times, by which torch takes other kernels."""
    encoder = families.fresh("mpnet", length=96).to("cuda")
    inputs = families.batch((64, 96))
    data = Labelled(
        inputs=tuple(inputs[name] for name in encoder.inputs),
        lengths=torch.full((64,), 96),
        labels=torch.arange(64) % 2,
    ).to("cuda")
    runs = []
    for _ in range(2):
        model = own_copy(encoder)
        finetune(model, data, replace(HYPER, epochs=6), options=RunOptions(record=record))
        runs.append(dict(model.graph.named_parameters()))
    for name, parameter in runs[0].items():
        assert torch.equal(parameter, runs[1][name]), name


def test_scaled_gradients_are_unscaled_before_they_are_cut(
    tiny_classifier: Encoder, tiny_data: Labelled
) -> None:
    plain, scaled = own_copy(tiny_classifier), own_copy(tiny_classifier)
    finetune(plain, tiny_data, HYPER)
    accelerator: Any = Scaling()
    finetune(scaled, tiny_data, HYPER, options=RunOptions(accelerator=accelerator))
    for (name, first), second in zip(plain.graph.named_parameters(), scaled.graph.parameters(), strict=True):
        assert torch.allclose(first, second, atol=1e-6), name
        # of the last step: with Adam, which divides by their size, parameters alone would hardly tell
        assert first.grad is not None and second.grad is not None
        assert torch.allclose(first.grad, second.grad, rtol=1e-3, atol=1e-6), name
