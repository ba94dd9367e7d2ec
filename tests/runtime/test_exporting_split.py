from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo.errors import ModelError
from octavo.graph.rewrites.split import split_groups
from octavo.methods import quantize
from tests.graph.families import batch, captured

onnxruntime = pytest.importorskip("onnxruntime")


def test_a_split_model_exports_with_its_gathers(tmp_path: Path) -> None:
    from octavo.runtime.exporting import export

    _, encoder = captured("bert", "encoder")
    split = split_groups(quantize(encoder, octavo.recipe("w8a8-peg6"), [batch((2, 9))]))
    session = onnxruntime.InferenceSession(export(split, tmp_path / "split.onnx"))
    data = batch((3, 7), seed=2)
    given = {i.name: data.get(i.name, 0 * data["input_ids"]).numpy() for i in session.get_inputs()}
    np.testing.assert_allclose(
        session.run(None, given)[0], split(data)["last_hidden_state"].numpy(), atol=0.1
    )


def test_integer_functions_are_refused(tmp_path: Path) -> None:
    from octavo.runtime.exporting import export

    _, encoder = captured("bert")
    model = quantize(encoder, octavo.recipe("ibert"), [batch((2, 9))])
    with pytest.raises(ModelError, match=r"is an IntegerLayerNorm, which has no ONNX translation"):
        export(model, tmp_path / "ibert.onnx")
