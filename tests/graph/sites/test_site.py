from __future__ import annotations

from collections import Counter

import pytest

from octavo.graph import Encoder, Site, in_placement
from tests.graph import families


@pytest.fixture(scope="module")
def twelve_layers() -> Encoder:
    return families.fresh(
        "bert", num_hidden_layers=12, hidden_size=16, num_attention_heads=2, intermediate_size=32
    )


def test_bert_with_twelve_layers_has_the_161_sites_of_the_paper(twelve_layers: Encoder) -> None:
    sites = in_placement(twelve_layers.activation_sites, "full")
    counts = Counter(site.role for site in sites)
    assert len(sites) == 161
    assert counts["ffn_input"] + counts["ffn_output"] + counts["ffn_residual"] == 36
    outside = {"embedding_sum": 2, "embedding_norm": 1, "pooler": 1, "logits": 1}
    assert {role: count for role, count in counts.items() if count != 12} == outside
    assert len(set(counts) - set(outside)) == 13


def test_linear_inputs_of_bert_are_eight_a_layer(twelve_layers: Encoder) -> None:
    counts = Counter(site.role for site in in_placement(twelve_layers.activation_sites, "linear-inputs"))
    per_layer = "query key value attention_probs attention_context ffn_input ffn_hidden layer_output".split()
    assert counts == dict.fromkeys(per_layer, 12) | {"embedding_norm": 1, "pooler": 1}


def test_weights_of_bert(twelve_layers: Encoder) -> None:
    counts = Counter(site.role for site in twelve_layers.weight_sites)
    # six linear layers and two norms a layer; three tables and a norm before them; pooler and classifier
    # after
    assert counts == {"linear_weight": 6 * 12 + 2, "norm_weight": 2 * 12 + 1, "embedding_weight": 3}


def test_shared_layers_have_one_set_of_weights_and_activations_of_their_own() -> None:
    _, albert = families.captured("albert")
    names = {site.name for site in albert.weight_sites}
    assert "layers.0.query.weight" in names
    assert not any(name.startswith("layers.1.") for name in names)
    assert "layers.1.query" in {site.name for site in albert.activation_sites}


def test_shapes_say_batch_and_length(bert: Encoder) -> None:
    shapes = {site.name: site.shape for site in bert.activation_sites}
    assert shapes["layers.0.ffn_input"] == ("batch", "length", 32)
    assert shapes["layers.0.attention_probs"] == ("batch", 4, "length", "length")
    assert shapes["logits"] == ("batch", 2)


@pytest.mark.parametrize(
    ("shape", "axis", "width"),
    [
        (("batch", "length", 32), -1, 32),
        (("batch", 32, "length"), -2, 32),
        (("batch", 4, "length", "length"), -1, None),
        (("4*batch", "length", "length"), -1, None),
        (("batch", 2), -1, 2),
    ],
    ids=["usual", "convolution", "scores", "scores of merged heads", "logits"],
)
def test_channels_lie_on_the_last_axis_or_before_the_length(
    shape: tuple[int | str, ...], axis: int, width: int | None
) -> None:
    site = Site(name="x", role="x", kind="activation", shape=shape, targets=("x",))
    assert (site.channel_axis, site.width) == (axis, width)


def test_a_site_describes_itself(bert: Encoder) -> None:
    assert bert.activation_sites[0].to_dict() == {
        "name": "embeddings.sum.0",
        "role": "embedding_sum",
        "shape": ["batch", "length", 32],
    }


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("layers.11.ffns.2.ffn_output", 11),
        ("layers.0.query.weight", 0),
        ("embeddings.norm", None),
        ("logits", None),
    ],
)
def test_the_layer_of_a_site(name: str, layer: int | None) -> None:
    site = Site(name=name, role="any", kind="activation", shape=("batch", 2), targets=("x",))
    assert site.layer == layer
