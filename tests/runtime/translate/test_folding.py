from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import octavo
from octavo.graph import Encoder
from octavo.graph.sites.flow import operation
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.exporting import export
from octavo.runtime.translate.folding import foldable_factors
from tests.graph import families

RECIPES = (None, "w8a32", "w4a32")


def assert_file_equals(encoder: Encoder, recipe: str | None, folder: Path, tolerance: float) -> None:
    model = encoder if recipe is None else octavo.quantize(encoder, octavo.recipe(recipe))
    batch = families.batch((2, 9))
    tokens = {name: tensor.numpy() for name, tensor in batch.items()}
    found = open_onnx(export(model, folder / "model.onnx"), exact=True)(tokens)
    for name, expected in model(batch).items():
        np.testing.assert_allclose(found[name], expected.numpy(), atol=tolerance)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_layers_that_share_a_weight_keep_their_factors(recipe: str | None, tmp_path: Path) -> None:
    encoder = families.fresh("albert", "encoder", initializer_range=0.2)
    assert_file_equals(encoder, recipe, tmp_path, 1e-4)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_layer_tied_to_the_token_table_keeps_its_factor(recipe: str | None, tmp_path: Path) -> None:
    encoder = families.fresh("bert", "masked-lm", initializer_range=0.2)
    nodes = encoder.graph.graph.nodes
    decoder = next(node for node in reversed(nodes) if operation(node) == "linear")
    with encoder.graph.graph.inserting_after(decoder):
        scaled = encoder.graph.graph.call_function(torch.ops.aten.mul.Tensor, (decoder, 0.25))
    scaled.meta = dict(decoder.meta)
    decoder.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
    encoder.graph.recompile()
    assert_file_equals(encoder, recipe, tmp_path, 1e-4)


def test_a_layer_with_a_weight_of_its_own_takes_the_factor_over() -> None:
    _, replaced = foldable_factors(families.captured("bert")[1].graph)
    assert len(replaced) == 2  # 1/√d of each layer
    _, shared = foldable_factors(families.captured("albert")[1].graph)
    assert not shared


def test_a_tied_table_is_stored_once_in_float_too(tmp_path: Path) -> None:
    import onnx

    path = export(families.fresh("bert", "masked-lm"), tmp_path / "model.onnx")
    tables = [t for t in onnx.load(str(path)).graph.initializer if families.VOCABULARY in t.dims[:2]]
    assert sum(len(table.dims) == 2 for table in tables) == 1
