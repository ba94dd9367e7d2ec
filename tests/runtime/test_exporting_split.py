from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octavo
from octavo.errors import ModelError
from octavo.graph.rewrites.split import split_groups
from octavo.methods import quantize
from octavo.spec import Override, PerGroup
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


OPTIMAL = PerGroup(groups=3, permute=True, sizes="optimal")


@pytest.mark.parametrize("options", [{}, {"narrow": 4}, {"in_place": True}], ids=str)
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_uneven_groups_at_norms_and_hidden_run_as_simulated(
    backend: str, options: dict[str, Any], tmp_path: Path
) -> None:
    from octavo.runtime.artifacts import open_onnx
    from octavo.runtime.exporting import export

    pytest.importorskip(backend)
    recipe = octavo.recipe("int8")
    sites = Override(roles=("ffn_input", "layer_output", "ffn_hidden"), granularity=OPTIMAL)
    recipe = replace(recipe, overrides=(*recipe.overrides, sites), passes=())
    _, encoder = captured("bert", "encoder")
    split = split_groups(quantize(encoder, recipe, [batch((2, 9))]), **options)
    run = open_onnx(export(split, tmp_path / "split.onnx", backend=backend), backend, 1)
    data = batch((3, 7), seed=2)
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: data.get(name, 0 * data["input_ids"]).numpy() for name in names}
    found = run(given)["last_hidden_state"]
    # an activation on a rounding boundary may fall to either side
    np.testing.assert_allclose(found, split(data)["last_hidden_state"].numpy(), atol=0.1)


def test_integer_functions_are_refused(tmp_path: Path) -> None:
    from octavo.runtime.exporting import export

    _, encoder = captured("bert")
    model = quantize(encoder, octavo.recipe("ibert"), [batch((2, 9))])
    with pytest.raises(ModelError, match=r"is an IntegerLayerNorm, which has no ONNX translation"):
        export(model, tmp_path / "ibert.onnx")
