"""Modules that compute GELU, softmax and LayerNorm on the grids of the quantizers before them (I-BERT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from octavo.graph.quantizer import Quantizer, State
from octavo.numerics.integer_functions import LARGEST, integer_gelu, integer_layer_norm, integer_softmax


class IntegerFunction(nn.Module):
    """A function of a tensor that lies on a grid: the product of the scales of some quantizers and a factor.

    It computes in integers once they all are fixed; while ranges are being found, or are switched off, in
    float. Scales are read at every call, so that a model can be rewritten first and calibrated or loaded
    afterwards.
    """

    def __init__(self, sources: tuple[Quantizer, ...], factor: float = 1.0) -> None:
        super().__init__()
        self._sources = sources  # in a tuple, because they belong to their own sites in the graph
        self.factor = factor

    @property
    def is_active(self) -> bool:
        """Whether the input is on its grid."""
        return all(source.state is State.FIX for source in self._sources)

    def grid(self) -> Tensor:
        """The scale of the input, 0-d, or (channels,) where weights have a scale for every row."""
        result = torch.tensor(self.factor, dtype=torch.float64, device=self._sources[0].scale.device)
        for source in self._sources:
            scale = source.scale.double()
            result = result * (scale.reshape(()) if scale.numel() == 1 else scale[source.index])
        return result

    def integers(self, x: Tensor, scale: Tensor) -> Tensor:
        """The 32-bit accumulators that the input stands for, int64."""
        return (x.double() / scale).clamp(-LARGEST, LARGEST).round().long()


class IntegerGelu(IntegerFunction):
    """GELU of a linear layer's output, whose grid is that of its input times that of its weight."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return functional.gelu(x)
        q, scale = integer_gelu(self.integers(x, self.grid()), self.grid())
        return (q * scale).to(x.dtype)


class IntegerSoftmax(IntegerFunction):
    """Softmax along the last axis; masked positions are far below every other."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return torch.softmax(x, -1)
        q, scale = integer_softmax(self.integers(x, self.grid()), self.grid())
        return (q * scale).to(x.dtype)


class IntegerLayerNorm(IntegerFunction):
    """LayerNorm over the last axis; its weight goes into the scale of a channel, its bias onto that grid."""

    _SMALLEST = 2.0**-20  # a weight of 0 would leave no grid for the bias

    def __init__(self, sources: tuple[Quantizer, ...], eps: float) -> None:
        super().__init__(sources)
        self.eps = eps

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if not self.is_active:
            return functional.layer_norm(x, (x.shape[-1],), weight, bias, self.eps)
        q, scale = integer_layer_norm(self.integers(x, self.grid()), self.grid(), self.eps)
        sign = torch.where(weight < 0, -1.0, 1.0)
        scale = scale.to(x.device) * sign * weight.double().abs().clamp(min=self._SMALLEST)
        q = q + (bias.double() / scale).round().long()
        return (q * scale).to(x.dtype)
