"""Every family that transformers has and Octavo captures: equal to Hugging Face, with all its layers found.

The default run has a slice; `-m slow` runs the whole matrix.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from octavo.errors import CaptureError, OctavoWarning
from octavo.graph import Encoder
from octavo.graph.capture.source import make_encoder
from octavo.graph.capture.traits import layers_of
from tests.graph import families

LENGTHS = (3, 64, 65, 130)
LONGEST = 160
LAYERS = 3
USUAL = ("deberta", "umt5", "xlm")  # the rest of the default run's families are in test_families
FAMILIES = [
    name if name in USUAL else pytest.param(name, marks=pytest.mark.slow)
    for name in (*families.EVERY, *families.FURTHER)
]
# Where a configuration calls its layers something other than num_hidden_layers.
LAYER_NAMES = {"distilbert": "n_layers", "xlm": "n_layers", "flaubert": "n_layers"}

REFUSED = {
    "canine": r"in modeling_canine, line \d+ \(.*\): what it computes depends on the length of the texts",
    "big-bird-sparse": r"in modeling_big_bird, line \d+ \(.*\): what it computes depends on the length",
    "reformer": r"in modeling_reformer, line \d+ \(.*\): what it computes depends on the length",
    "longformer": r"in modeling_longformer\.LongformerSelfAttention\._chunk, line \d+, `hidden_.*data-dep",
    "nystromformer-landmarks": r"in modeling_nystromformer\..*, line \d+, `q_land.*`: shape",
    "bros": r"in modeling_bros\.BrosModel\.forward, line \d+, .* \(Octavo gives it token ids",
}


def made(family: str) -> nn.Module:
    layers = {LAYER_NAMES.get(family, "num_layers" if "t5" in family else "num_hidden_layers"): LAYERS}
    return families.network(family, "encoder", length=LONGEST, **layers)


def captured(family: str) -> tuple[nn.Module, Encoder]:
    network = made(family)
    return network, make_encoder(f"tiny {family}", network, None, "encoder")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_equals_hugging_face_at_every_length_and_has_all_its_layers(family: str) -> None:
    network, encoder = captured(family)  # a warning of missing layers would be an error here
    assert encoder.layers == layers_of(encoder.config) == LAYERS
    for length in LENGTHS:
        for padded in (False, True):
            batch = families.batch((3, length), padded)
            with torch.no_grad():
                expected = network(**batch).last_hidden_state
            found = encoder(batch)["last_hidden_state"]
            scale = float(expected.abs().max())
            assert float((found - expected).abs().max()) <= 2e-6 * max(scale, 1), (length, padded)


@pytest.mark.parametrize(
    "family",
    # BigBird's attention depends on the length: a short text turns it to another kind for good
    [each if each == "big-bird-sparse" else pytest.param(each, marks=pytest.mark.slow) for each in REFUSED],
)
def test_a_family_that_cannot_be_captured_is_refused_with_the_operation_and_its_place(family: str) -> None:
    with pytest.raises(
        CaptureError, match=rf"^tiny {family}: torch\.export cannot capture this model {REFUSED[family]}"
    ):
        captured(family)


def test_layers_that_are_not_found_are_told() -> None:
    network = families.network("bert", "encoder")
    network.config.num_hidden_layers = 6
    with pytest.warns(
        OctavoWarning, match="tiny bert: 2 layers were found, its configuration says 6; names and"
    ):
        make_encoder("tiny bert", network, None, "encoder")


def test_zeros_in_place_of_a_missing_kernel_are_refused() -> None:
    """Without its CUDA kernel, Hugging Face's MRA has zeros for attention, and says nothing."""
    message = r"^tiny mra: the model computes a constant in modeling_mra, line \d+ \(zeros_like\), where "
    with pytest.raises(CaptureError, match=message):
        captured("mra")


def test_attention_without_softmax_lies_in_its_own_layer() -> None:
    """YOSO's probabilities are powers of arc cosines."""
    _, encoder = captured("yoso")
    roles = [{s.role for s in encoder.activation_sites if s.layer == layer} for layer in range(LAYERS)]
    assert roles[0] == roles[1] == roles[2] >= {"projection", "activation", "ffn_input", "layer_output"}
    assert {s.role for s in encoder.activation_sites if s.layer is None} == {
        "embedding_sum",
        "embedding_norm",
    }
