"""Checks of files: what a runtime computes against the float model or the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

import octavo
from octavo.graph import Encoder, Head, QuantizedEncoder
from octavo.graph.quantizers.switch import switched_off
from octavo.runtime.backends import DEFAULT, find_backend
from octavo.runtime.parity import site_parity
from tests.conformance.captured import Captured
from tests.conformance.comparing import EXACT, compare, compare_directions
from tests.conformance.outcome import Wrong
from tests.conformance.subjects import FEW, FEW_OF_PRESETS, Batch

FLOAT = "float"
# Biases are integers on the grid of the accumulator, which is coarse where weights have 4 bits, and beside
# grids of 16 bits.
_SITES_EQUAL, _SITES_EQUAL_IF_WIDE, _SITE_DIFFERENCE = 0.98, 0.95, 2e-3


def file_equals(subject: Captured, item: str, head: Head, backend: str, folder: Path) -> None:
    """A file computes what the model computes that it was made from.

    In float on every batch, and so is `int8` of the bare encoder; anything else on a few. ONNX Runtime rounds
    to the same integers at every site of a quantized model.
    """
    model = subject.encoder(head) if item == FLOAT else subject.by(item, head)
    every = subject.batches if head == "encoder" else subject.few
    batches = every if item == FLOAT else subject.of_preset(item, head)
    file = octavo.export(model, folder / f"{item}-{head}-{backend}.onnx", backend=backend)
    run = find_backend(backend).open(file, 1, exact=True)
    for name, batch in _fitting(model, batches):
        results = run({key: tensor.numpy() for key, tensor in batch.items()})
        found = dict(zip(model.output_names, map(torch.from_numpy, results.values()), strict=True))
        expected = _simulated(model, batch, backend)
        if not _rounds_activations(model):
            compare(name, batch, found, expected, EXACT * 5)
        elif backend != DEFAULT:
            compare_directions(name, batch, found, expected)
        elif name in (*FEW, *FEW_OF_PRESETS):
            assert isinstance(model, QuantizedEncoder)
            _compare_sites(name, model, file, batch, expected)


def _fitting(model: Encoder, batches: dict[str, Batch]) -> Iterator[tuple[str, Batch]]:
    return ((n, b) for n, b in batches.items() if b["input_ids"].shape[1] <= model.max_length)


def _rounds_activations(model: Encoder) -> bool:
    return isinstance(model, QuantizedEncoder) and any(
        quantizer.site.kind == "activation" for quantizer in model.quantizers.values()
    )


def _simulated(model: Encoder, batch: Batch, backend: str) -> Batch:
    """Run the simulation without the quantizers that the backend's files leave out."""
    quantizers = model.quantizers.values() if isinstance(model, QuantizedEncoder) else ()
    with switched_off([q for q in quantizers if q.site.role in find_backend(backend).left_out]):
        return model(batch)


def _compare_sites(name: str, model: QuantizedEncoder, file: Path, batch: Batch, expected: Batch) -> None:
    parity = site_parity(model, file, batch)
    allowed = _SITE_DIFFERENCE * max(1.0, *(float(v.abs().max()) for v in expected.values()))
    is_wide = any(q.spec.bits > 8 for q in model.quantizers.values() if q.site.kind == "activation")
    equal = _SITES_EQUAL_IF_WIDE if is_wide else _SITES_EQUAL
    if parity.most_steps > 1 or parity.equal < equal or parity.difference > allowed:
        raise Wrong(f"{name}: site by site {parity}")
