"""Watching activations: the one way to see tensors at sites while a model runs, without keeping them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from octavo.errors import CalibrationError
from octavo.graph.encoder import Encoder
from octavo.graph.quantizers.attach import QuantizedEncoder, attach
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.numerics import AllMinMax, by_channel
from octavo.numerics.min_max import NotFiniteError, Range
from octavo.spec import Placement, Recipe, TensorSpec

See = Callable[[Quantizer, Tensor], None]
"""Called with a quantizer and the tensor that reaches it; it must copy what it keeps."""


@contextmanager
def watched(quantizers: Mapping[str, Quantizer], see: See) -> Iterator[None]:
    """Show every tensor that reaches these quantizers, whatever they do with it, inside the block."""

    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, Quantizer)
        see(module, inputs[0])

    with ExitStack() as stack:
        for quantizer in quantizers.values():
            stack.callback(quantizer.register_forward_pre_hook(hook).remove)
        yield


@contextmanager
def channel_extremes(quantizers: Mapping[str, Quantizer]) -> Iterator[dict[str, AllMinMax]]:
    """Yield the smallest and largest value of every channel, by site, of what passes inside the block."""
    extremes = {
        name: AllMinMax(torch.arange(q.site.width or 0, device=q.index.device))
        for name, q in quantizers.items()
    }

    def see(quantizer: Quantizer, x: Tensor) -> None:
        extremes[quantizer.site.name].observe(by_channel(x, quantizer.site.channel_axis))

    with watched(quantizers, see):
        yield extremes


def range_at(site: str, estimator: AllMinMax) -> Range:
    """Return what an estimator saw at a site, which is named where there is no range."""
    try:
        return estimator.range()
    except NotFiniteError as error:
        raise error.at(site) from error
    except CalibrationError as error:
        raise CalibrationError(f"{site}: {error}") from error


def probe(encoder: Encoder, placement: Placement = "full") -> QuantizedEncoder:
    """Return the encoder with a quantizer, turned off, at every activation site, to watch it in float."""
    recipe = Recipe(name="probe", placement=placement, weights=None, activations=TensorSpec())
    model = attach(encoder, recipe)
    model.set_state("*", "off")
    return model
