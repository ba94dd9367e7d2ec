"""Every grid that a spec can ask for, as a file computes it, against the quantizer itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import fx

import octavo
from octavo.graph import Encoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.sites.site import Site
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.backends import BACKENDS
from octavo.runtime.exporting import export
from octavo.runtime.parity import site_parity
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.grids import quantize_activation
from octavo.runtime.translate.onnx_graph import OnnxGraph
from tests.runtime.conftest import TEXTS

SHAPE = (2, 400)
SITE = Site(name="site", role="ffn_input", kind="activation", shape=("batch", "length"), targets=("x",))


def fixed(bits: int, symmetric: bool, low: float) -> Quantizer:
    """Return a quantizer with a range from `low` to 3.1."""
    quantizer = Quantizer(SITE, octavo.TensorSpec(bits=bits, symmetric=symmetric))
    quantizer.observe(torch.tensor([[low, 3.1]]))
    quantizer.commit()
    quantizer.fix()
    return quantizer


def file_of(quantizer: Quantizer, folder: Path, factor: float) -> Path:
    """Write a file that does nothing but quantize its input."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(SHAPE)
    graph.output((x,))
    written = OnnxGraph(21, reserved=("input_ids", "y"))
    t = Translation(fx.GraphModule(torch.nn.Module(), graph), written)
    t.values[x] = Value(name=written.add("Cast", "input_ids", to=1))
    scaled = written.add("Div", t.value(x).name, written.constant(np.float32(1000)))
    t.values[x] = Value(name=scaled)
    written.rename(quantize_activation(t, x, quantizer, factor).name, "y")
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, SHAPE)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)]
    path = folder / "grid.onnx"
    onnx.save(written.model(inputs, outputs, "grid", {}), str(path))
    return path


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("low", [-2.3, 0.0], ids=["signed", "unsigned"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("bits", range(2, 17))
def test_a_file_rounds_and_clips_as_the_quantizer_does(
    bits: int, symmetric: bool, low: float, backend: str, tmp_path: Path
) -> None:
    pytest.importorskip(backend)
    quantizer = fixed(bits, symmetric, low)
    ids = np.linspace(-5000, 5000, SHAPE[0] * SHAPE[1]).astype(np.int64).reshape(SHAPE)
    x = torch.from_numpy(ids).float() / 1000  # beyond the range on both sides
    expected = quantizer(x).numpy()
    found = open_onnx(file_of(quantizer, tmp_path, 1.0), backend, threads=1, exact=True)({"input_ids": ids})[
        "y"
    ]
    step = float(quantizer.scale)
    difference = np.abs(found - expected) / step
    # a number in the middle between two integers may go either way
    ties = np.abs(np.abs(x.numpy() / step) % 1 - 0.5) < 1e-3
    assert difference.max() < 1.01
    # OpenVINO does not round to more than 256 steps, but stays within them
    allowed = 0.51 if backend == "openvino" and bits > 8 else 0.01
    assert difference[~ties].max() < allowed, f"{difference.max():.2f} steps"


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("bits", [4, 7, 12])
@pytest.mark.parametrize("placement", ["full", "linear-inputs"])
def test_activations_of_any_width_agree_with_the_simulation(
    placement: str, bits: int, symmetric: bool, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    recipe = octavo.Recipe(
        name="odd",
        placement=placement,
        weights=octavo.TensorSpec(bits=8, symmetric=True),
        activations=octavo.TensorSpec(bits=bits, symmetric=symmetric, estimator=octavo.AllMinMax()),
    )
    model = octavo.quantize(tiny_encoder, recipe, calibration=list(TEXTS))
    path = export(model, tmp_path / "model.onnx")
    batch = next(iter(model.batches(list(TEXTS))))[1]
    found = site_parity(model, path, batch)
    assert found.equal > 0.99 and found.most_steps <= 1, found
