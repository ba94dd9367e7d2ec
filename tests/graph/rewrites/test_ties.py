from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import octavo
from octavo.graph.rewrites.ties import tie_norms, untie_norms
from octavo.spec import Equalization, Fold, ShiftAndScale
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((3, 12), seed=seed) for seed in range(3)]
NORMS = ("ffn_input", "layer_output")


@pytest.mark.parametrize(
    "done",
    [Fold(roles=NORMS), ShiftAndScale(roles=NORMS, thresholds=3)],
    ids=lambda done: done.variant_name,
)
def test_tied_norms_compute_the_same_and_move_with_the_norm_they_were_made_of(done: Equalization) -> None:
    _, bert = families.captured("bert")
    model = octavo.quantize(bert, replace(recipe("int8"), passes=(done,)), calibration=BATCHES)
    before = model(BATCHES[0])["logits"]
    named = dict(model.graph.named_parameters())
    folded = "folded.layers_0_ffn_input"
    weight, bias = (named[f"{folded}.{part}"].detach().clone() for part in ("weight", "bias"))
    tie_norms(model)
    torch.testing.assert_close(model(BATCHES[0])["logits"], before, rtol=0, atol=1e-2)
    original = next(name for name in named if name.endswith("layer.0.attention.output.LayerNorm.bias"))
    inverse = weight / named[original.replace("bias", "weight")].detach()
    with torch.no_grad():
        named[original].add_(1.0)
    try:
        untie_norms(model)
        after = dict(model.graph.named_parameters())[f"{folded}.bias"]
        torch.testing.assert_close(after, bias + inverse, rtol=1e-4, atol=1e-5)
    finally:
        with torch.no_grad():
            named[original].sub_(1.0)  # the float model's own
