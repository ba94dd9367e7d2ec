"""Second-order sensitivity of layers (Q-BERT): the largest eigenvalue of the Hessian, by power iteration.

Without labels the loss is the distance of the outputs to the model's own: it is 0 with gradient 0 at the
trained weights, and its Hessian is 2 J^T J for the squared distance of embeddings or scores, and the Fisher
information for the Kullback-Leibler divergence of classes. With labels in the batches it is the task's
cross-entropy, as in Q-BERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.errors import CalibrationError
from octavo.graph import Encoder
from octavo.graph.batches import without_padding
from octavo.progress import Progress, silent

_ITERATIONS = 30
_TOLERANCE = 1e-2


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The largest eigenvalue of one layer on each part of the data, (parts,)."""

    eigenvalues: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the parts of the data."""
        return sum(self.eigenvalues) / len(self.eigenvalues)

    @property
    def deviation(self) -> float:
        """Standard deviation over the parts of the data."""
        mean = self.mean
        return float((sum((value - mean) ** 2 for value in self.eigenvalues) / len(self.eigenvalues)) ** 0.5)

    @property
    def value(self) -> float:
        """|mean| + standard deviation: flat everywhere is robust, flat on average is not."""
        return abs(self.mean) + self.deviation


def layer_sensitivities(
    encoder: Encoder,
    layers: Mapping[str, Sequence[nn.Parameter]],
    batches: Iterable[Mapping[str, Tensor]],
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Sensitivity]:
    """The sensitivity of every layer, an eigenvalue for each batch.

    Arguments:
        layers: the parameters that count as one layer, by its name.
        batches: token ids, and `labels` (batch,) where the task's loss is wanted.
        progress: called with (batches done, batches in all).
    """
    parts = list(batches)
    if not parts:
        raise CalibrationError("there is no data for the Hessian; give at least one text")
    found: dict[str, list[float]] = {name: [] for name in layers}
    for done, batch in enumerate(parts, start=1):
        loss = _loss(encoder, batch)
        for name, values in _eigenvalues(loss, layers, seed).items():
            found[name].append(values)
        progress(done, len(parts))
    return {name: Sensitivity(eigenvalues=tuple(values)) for name, values in found.items()}


def largest_eigenvalue(
    product: Callable[[list[Tensor]], Sequence[Tensor]],
    like: Sequence[Tensor],
    seed: int = 0,
    iterations: int = _ITERATIONS,
    tolerance: float = _TOLERANCE,
) -> float:
    """The eigenvalue of largest magnitude of a symmetric operator, by power iteration.

    Arguments:
        product: the operator, from tensors shaped like `like` to tensors of the same shapes.
        tolerance: stop when the eigenvalue changes by less than this share of it.
    """
    generator = torch.Generator().manual_seed(seed)
    vector = _unit([torch.randn(t.shape, generator=generator).to(t) for t in like])
    value = 0.0
    for _ in range(iterations):
        image = [tensor.detach() for tensor in product(vector)]
        previous, value = value, float(sum((v * w).sum() for v, w in zip(vector, image, strict=True)))
        if value == 0.0 or abs(value - previous) <= tolerance * abs(value):
            break
        vector = _unit(image)
    return value


def _unit(tensors: Sequence[Tensor]) -> list[Tensor]:
    length = torch.sqrt(torch.stack([tensor.square().sum() for tensor in tensors]).sum())
    return [tensor / length.clamp(min=torch.finfo(length.dtype).tiny) for tensor in tensors]


def _eigenvalues(loss: Tensor, layers: Mapping[str, Sequence[nn.Parameter]], seed: int) -> dict[str, float]:
    """One first derivative for all layers; then a power iteration for each."""
    parameters = [parameter for group in layers.values() for parameter in group]
    gradients = dict(
        zip(map(id, parameters), torch.autograd.grad(loss, parameters, create_graph=True), strict=True)
    )

    def hessian(group: Sequence[nn.Parameter]) -> Callable[[list[Tensor]], Sequence[Tensor]]:
        def product(vector: list[Tensor]) -> Sequence[Tensor]:
            slope = torch.stack(
                [(gradients[id(p)] * v).sum() for p, v in zip(group, vector, strict=True)]
            ).sum()
            return torch.autograd.grad(slope, list(group), retain_graph=True)

        return product

    return {name: largest_eigenvalue(hessian(group), group, seed) for name, group in layers.items()}


def _loss(encoder: Encoder, batch: Mapping[str, Tensor]) -> Tensor:
    """The mean loss of a batch, its padding left out."""
    losses, rows = [], 0
    for piece in without_padding(batch):
        results = encoder.graph(*encoder.arguments(piece))
        count = len(piece["input_ids"])
        losses.append(_distance(encoder, results, piece) * count)
        rows += count
    return torch.stack(losses).sum() / rows


def _distance(encoder: Encoder, results: Sequence[Tensor], batch: Mapping[str, Tensor]) -> Tensor:
    logits, labels = results[0], batch.get("labels")
    if encoder.head == "encoder":
        embedding = encoder.embed(batch, {encoder.output_names[0]: logits})
        return (embedding - embedding.detach()).square().sum(-1).mean()
    if labels is not None:
        if logits.shape[-1] == 1:
            return functional.mse_loss(logits.flatten(), labels.to(logits).flatten())
        return functional.cross_entropy(logits.flatten(0, -2), labels.to(logits.device).flatten())
    if logits.shape[-1] == 1:
        return functional.mse_loss(logits, logits.detach())
    return torch.stack([_divergence(result) for result in results]).sum()


def _divergence(logits: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the outputs from the model's own, mean over the rows."""
    log_probabilities = functional.log_softmax(logits, -1)
    target = log_probabilities.detach()
    return functional.kl_div(log_probabilities, target, log_target=True, reduction="none").sum(-1).mean()
