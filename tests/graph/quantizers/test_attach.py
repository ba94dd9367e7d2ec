from __future__ import annotations

import pytest
import torch

import octavo
from octavo.errors import CalibrationError, ModelError, SiteError, SpecError
from octavo.graph import Encoder, Head, QuantizedEncoder, State, attach, fix_weights
from octavo.methods import quantize
from octavo.spec import AllMinMax, MinMax, Override, Recipe, TensorSpec
from tests.graph import families

W8 = TensorSpec(symmetric=True, estimator=MinMax())
A8 = TensorSpec(estimator=AllMinMax())
W8A8 = Recipe(name="w8a8", weights=W8, activations=A8)
BATCH = families.batch((3, 9), padded=True)


@pytest.fixture
def model(bert: Encoder) -> QuantizedEncoder:
    return quantize(bert, W8A8, [BATCH])


def recipe(
    *overrides: Override, activations: TensorSpec | None = A8, weights: TensorSpec | None = W8
) -> Recipe:
    return Recipe(name="mine", weights=weights, activations=activations, overrides=overrides)


def test_every_covered_site_has_one_quantizer_in_the_graph(bert: Encoder) -> None:
    model = attach(bert, W8A8)
    calls = [str(node.target) for node in model.graph.graph.nodes if node.op == "call_module"]
    found = [name for name in calls if name.startswith("quantizers.")]
    assert len(set(found)) == len(model.quantizers) == 31 + 22
    assert set(model.quantizers) == {site.name for site in (*bert.activation_sites, *bert.weight_sites)}


def test_overrides_choose_specs_by_pattern_and_role(bert: Encoder) -> None:
    overrides = (
        Override(sites=("layers.*.ffn_residual",), bits=16),
        Override(roles=("norm_weight",), off=True),
        Override(sites=("layers.0.ffn_residual",), bits=4),
    )
    model = attach(bert, recipe(*overrides))
    assert model.quantizers["layers.0.ffn_residual"].spec.bits == 4
    assert model.quantizers["layers.1.ffn_residual"].spec.bits == 16
    assert "layers.0.ffn_input.weight" not in model.quantizers
    assert model.quantizers["layers.0.ffn_input"].spec.bits == 8


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            Override(sites=("layers.*.ffn_ouput",), bits=4),
            r"'layers\.\*\.ffn_ouput' matches no site of tiny bert; did you mean",
        ),
        (
            Override(roles=("ffn_outptu",), bits=4),
            r"no site of tiny bert has the role 'ffn_outptu'; did you mean 'ffn_output'",
        ),
    ],
    ids=["pattern", "role"],
)
def test_what_matches_nothing_is_an_error_with_the_nearest_names(
    bert: Encoder, override: Override, message: str
) -> None:
    with pytest.raises(SiteError, match=message):
        attach(bert, recipe(override))


def test_a_pattern_outside_the_placement_says_so(bert: Encoder) -> None:
    narrow = Recipe(
        name="narrow", placement="linear-inputs", weights=W8, activations=A8,
        overrides=(Override(sites=("*.attention_scores",), bits=4),),
    )  # fmt: skip
    with pytest.raises(SiteError, match="placement linear-inputs does not cover it"):
        attach(bert, narrow)


def test_a_recipe_that_quantizes_nothing_here_is_an_error(bert: Encoder) -> None:
    nothing = recipe(Override(sites=("*",), off=True))
    with pytest.raises(SpecError, match="recipe 'mine' quantizes nothing in tiny bert"):
        attach(bert, nothing)


def test_a_quantized_model_is_not_quantized_again(model: QuantizedEncoder) -> None:
    with pytest.raises(ModelError, match="is quantized already; quantize the float model"):
        attach(model, W8A8)


def test_states_switch_by_pattern(model: QuantizedEncoder, bert: Encoder) -> None:
    model.set_state("*", "off")
    assert torch.equal(model(BATCH)["logits"], bert(BATCH)["logits"])
    model.set_state("layers.0.*", "fix")
    states = {name.startswith("layers.0."): quantizer.state for name, quantizer in model.quantizers.items()}
    assert states == {True: State.FIX, False: State.OFF}
    model.set_state("layers.1.ffn_*", "learn")
    assert model.quantizers["layers.1.ffn_hidden"].state is State.LEARN
    assert model.quantizers["layers.1.query"].state is State.OFF


def test_off_and_on_again_is_where_it_was(model: QuantizedEncoder) -> None:
    before = model(BATCH)["logits"]
    for state in ("off", "fix", "learn", "fix"):
        model.set_state("*", state)  # type: ignore[arg-type]
    assert torch.allclose(model(BATCH)["logits"], before, atol=1e-5)


def test_a_state_for_no_site_is_an_error(model: QuantizedEncoder) -> None:
    with pytest.raises(
        SiteError, match=r"'layers.7.query' matches no quantized site of tiny bert; did you mean"
    ):
        model.set_state("layers.7.query", "off")


def test_an_unknown_state_is_an_error(model: QuantizedEncoder) -> None:
    with pytest.raises(SpecError, match="unknown state 'on'; use fix, learn or off"):
        model.set_state("*", "on")  # type: ignore[arg-type]


def test_every_quantizer_learns(model: QuantizedEncoder) -> None:
    model.set_state("*", "learn")
    model.graph.train()
    model.graph(*model.arguments(BATCH))[0].square().sum().backward()
    silent = [name for name, q in model.quantizers.items() if q.log_scale is None or q.log_scale.grad is None]
    # tables of token types and positions included: each has a path to the logits
    assert silent == []
    for parameter in model.graph.parameters():
        parameter.grad = None


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=["NaN", "infinity"])
def test_a_weight_that_is_not_finite_is_named(value: float) -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.encoder.layer.1.output.dense.weight")[0, 0] = value
    model = attach(encoder, W8A8)
    with pytest.raises(
        CalibrationError, match=r"the weight layers\.1\.ffn_output\.weight holds NaN or infinity"
    ):
        fix_weights(model)


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("w8a8", "ffn_hidden"),
        ("w8a8-per-embedding", "ffn_hidden"),
        ("int8", "layer_output"),  # the first of those that its first pass watches
        ("w4a8", "ffn_hidden"),
        ("fp8", "ffn_hidden"),
    ],
)
def test_an_activation_that_is_not_finite_is_named(name: str, site: str) -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.encoder.layer.1.intermediate.dense.bias")[0] = float("nan")
    with pytest.raises(CalibrationError, match=rf"layers\.1\.{site} holds NaN or infinity; no range"):
        quantize(encoder, octavo.recipe(name), [BATCH])


def test_only_tensors_nobody_else_reads_are_overwritten(bert: Encoder) -> None:
    model = attach(bert, W8A8)
    nodes = {node.name: node for node in model.graph.graph.nodes}
    for quantizer in model.quantizers.values():
        if quantizer.inplace:
            node = nodes[quantizer.site.targets[0]]
            assert len(node.users) == 1
            assert not str(node.target).split(".")[0].endswith("_")
    assert any(quantizer.inplace for quantizer in model.quantizers.values())
    assert not any(q.inplace for name, q in model.quantizers.items() if name.endswith(".weight"))


@pytest.mark.parametrize("family", ["mobilebert", "modernbert", "deberta-v2", "squeezebert", "t5"])
def test_overwriting_gives_what_copying_gives(family: str) -> None:
    _, encoder = families.captured(family, families.usual_head(family))
    model = quantize(encoder, W8A8, [BATCH])
    name = model.output_names[0]
    overwritten = model(BATCH)[name]
    for quantizer in model.quantizers.values():
        quantizer.inplace = False
    assert torch.equal(model(BATCH)[name], overwritten)


@pytest.mark.parametrize("head", ["sequence-classification", "token-classification", "question-answering"])
def test_dynamic_ranges_do_not_depend_on_neighbours_or_padding(head: Head) -> None:
    model = quantize(families.captured("bert", head)[1], octavo.recipe("q8bert"))
    whole = families.batch((4, 12), padded=True)
    together = model(whole)
    for position in range(4):
        length = int(whole["attention_mask"][position].sum())
        alone = model({name: x[position : position + 1, :length] for name, x in whole.items()})
        for name, result in together.items():
            row = result[position] if head == "sequence-classification" else result[position, :length]
            assert torch.equal(row, alone[name][0])
            assert head == "sequence-classification" or not result[position, length:].any()


@pytest.mark.filterwarnings("ignore:.* reads padding")
def test_rounded_cosines_stay_where_arc_cosines_have_a_value() -> None:
    """YOSO's similarities reach 1, and factors that are rounded to 3 bits of mantissa pass it."""
    encoder = families.captured("yoso", "encoder")[1]
    batch = families.batch((3, 40))
    model = octavo.quantize(encoder, octavo.recipe("fp8-full"), calibration=[batch])
    clamped = [node for node in model.graph.graph.nodes if "acos" in str(node.target)]
    assert clamped and all("clamp" in str(node.all_input_nodes[0].target) for node in clamped)
    assert bool(model(batch)["last_hidden_state"].isfinite().all())
