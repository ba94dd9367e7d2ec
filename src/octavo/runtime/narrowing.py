"""Weights of 7 bits for processors whose products of bytes overflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from octavo.errors import SpecError
from octavo.graph.encoder import Encoder
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer, State
from octavo.graph.sites.flow import LINEAR, operation
from octavo.numerics import affine_from_range, by_channel, min_max

NARROW_BITS = 7


@contextmanager
def narrowed_weights(model: Encoder) -> Iterator[None]:
    """Round the signed 8-bit weights of linear layers to 7 bits inside the block, in simulation and export.

    A product of bytes is at most 255 · 64 then, and the sum of two fits 16 bits, which is what x86 processors
    without VNNI add them in. Weights that a pass has rounded its own way are rounded from there.
    """
    chosen = wide_weights(model)
    if not chosen:
        raise SpecError(
            f"{model.name} has no signed 8-bit weights that could be narrowed to {NARROW_BITS} bits; "
            "export it without reduce_range, or quantize it with a recipe such as int8 first"
        )
    assert isinstance(model, QuantizedEncoder)
    weights = {site.name: model.parameter(site).detach() for site in model.weight_sites}
    with ExitStack() as stack:
        for quantizer in chosen:
            stack.enter_context(_narrowed(quantizer, weights[quantizer.site.name]))
        yield


def wide_weights(model: Encoder) -> list[Quantizer]:
    """Return the quantizers of signed 8-bit weights that linear layers read."""
    if not isinstance(model, QuantizedEncoder):
        return []
    read = {
        str(node.target)
        for node in model.graph.graph.nodes
        if node.op == "call_module" and any(operation(user) in LINEAR for user in node.users)
    }
    return [
        quantizer
        for target, quantizer in model.graph.named_modules()
        if isinstance(quantizer, Quantizer)
        and target in read
        and quantizer.site.kind == "weight"
        and (quantizer.low, quantizer.high) == (-128, 127)
        and quantizer.state is State.FIX
    ]


def multiplies_bytes(model: Encoder) -> bool:
    """Return whether some activations are bytes, which wide weights would be multiplied with."""
    return isinstance(model, QuantizedEncoder) and any(
        quantizer.site.kind == "activation" and quantizer.spec.bits <= 8
        for quantizer in model.quantizers.values()
    )


@contextmanager
def _narrowed(quantizer: Quantizer, weight: Tensor) -> Iterator[None]:
    before, rounded = quantizer.affine(), quantizer.constant
    with torch.no_grad():
        quantizer.keep(None)
        plain = rounded is None or torch.equal(quantizer(weight), rounded)
        source = weight if plain or rounded is None else rounded
        ends = min_max(by_channel(source, quantizer.axis), quantizer.index, before.scale.numel())
        quantizer.set_affine(affine_from_range(*ends, NARROW_BITS, True, signed=True))
        quantizer.keep(quantizer(source))
    try:
        yield
    finally:
        quantizer.set_affine(before)
        quantizer.keep(rounded)
