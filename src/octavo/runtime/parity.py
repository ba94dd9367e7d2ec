"""Parity: an exported file against the simulation it was made from.

A static 8-bit model rounds some hundred thousand numbers for a text. Where a float differs in its last bit,
one of them may round the other way, and from there on two runs differ by as much as quantization changes a
model at all. So `site_parity` asks at every site anew: given what the backend computed before it, does the
simulation round to the same integers?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from octavo.fidelity import Quality
from octavo.graph.encoder import Text
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.quantizers.switch import switched_off
from octavo.numerics import dequantize
from octavo.runtime.artifacts import TORCH, Artifact, torch_runner
from octavo.runtime.backends import DEFAULT, find_backend
from octavo.runtime.quality import measure_quality
from octavo.runtime.translate.options import INTEGERS

_SIGNED_SHIFT = 128  # signed bytes stand in the file as unsigned ones


@dataclass(frozen=True, kw_only=True)
class SiteParity:
    """How a backend's integers agree with the simulation's, each site given the values before it.

    Arguments:
        equal: share of integers that are the same.
        most_steps: the largest difference of two integers, in steps of 8 bits on wider grids, rounded up.
        difference: the largest difference of two outputs.
    """

    equal: float
    most_steps: int
    difference: float


def parity(
    model: QuantizedEncoder, file: str | Path, texts: Sequence[Text], backend: str = DEFAULT
) -> Quality:
    """Compare a file with the simulation, which meanwhile lacks the quantizers that the file leaves out."""
    with simulation_and_file(model, file, backend) as both:
        return measure_quality(both, texts)[1]


@contextmanager
def simulation_and_file(
    model: QuantizedEncoder, file: str | Path, backend: str = DEFAULT, *, exact: bool = True
) -> Iterator[list[Artifact]]:
    """Yield both as artifacts; meanwhile the simulation lacks the quantizers that the file leaves out.

    Arguments:
        exact: as for `open_onnx`: what the file says, and not what the backend makes of it for speed.
    """
    chosen = find_backend(backend)
    left_out = [q for q in model.quantizers.values() if q.site.role in chosen.left_out]
    simulated = Artifact(
        name="simulation",
        kind="simulated",
        backend=TORCH,
        size=None,
        run=torch_runner(model),
        encoder=model,
    )
    run = chosen.open(file, exact=exact)
    exported = Artifact(name=str(file), kind="integer", backend=backend, size=None, run=run)
    with switched_off(left_out):
        yield [simulated, exported]


def site_parity(
    model: QuantizedEncoder, file: str | Path, batch: Mapping[str, Tensor], backend: str = DEFAULT
) -> SiteParity:
    """Compare a file with the simulation site by site on one batch of token ids."""
    tokens = {name: tensor.numpy() for name, tensor in batch.items()}
    results = find_backend(backend).site_integers(Path(file), tokens)
    forced = _Forced(model, results)
    with torch.no_grad():
        outputs = forced.run(*model.arguments(batch))
    pairs = zip(model.output_names, outputs, strict=True)
    difference = max(float(np.abs(tensor.numpy() - results[name]).max()) for name, tensor in pairs)
    return SiteParity(equal=forced.same / forced.count, most_steps=forced.most, difference=difference)


class _Forced(fx.Interpreter):
    """The simulation with every activation compared with, then replaced by, the backend's."""

    def __init__(self, model: QuantizedEncoder, results: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(model.graph)
        self.results = results
        self.count, self.same, self.most = 0, 0, 0

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.module.get_submodule(str(target))
        if not isinstance(module, Quantizer) or module.site.kind != "activation":
            return super().call_module(target, args, kwargs)
        stored = self.results[module.site.name + INTEGERS]
        shift = _SIGNED_SHIFT if module.low < 0 and stored.dtype == np.uint8 else 0
        theirs = torch.from_numpy(stored.astype(np.int32) - shift).reshape(args[0].shape)
        difference = (module.integers(args[0]) - theirs).abs()
        self.count += difference.numel()
        self.same += int((difference == 0).sum())
        finer = 2 ** max(0, module.spec.bits - 8)
        self.most = max(self.most, -(-int(difference.max()) // finer))
        return dequantize(theirs, *module.per_channel(args[0].dim()))
