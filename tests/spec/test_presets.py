from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import SpecError
from octavo.spec import E4M3, IntegerFunctions
from octavo.spec.estimator import AllMinMax, MinMax, Mse, RunningMinMax
from octavo.spec.granularity import Granularity, PerChannel, PerEmbedding, PerGroup, PerTensor
from octavo.spec.presets import PRESETS, preset_names, recipe
from octavo.spec.recipe import Recipe
from octavo.spec.rounding import Gptq
from octavo.spec.tensor import TensorSpec
from octavo.spec.yaml import dump_recipe, parse_recipe

FFN = ["layers.11.ffn_input", "layers.11.ffn_output", "layers.11.ffn_residual"]


OURS = ("int8", "int8-full", "int8-small", "int8-weights", "w4a8", "w6a6", "w4a4", "fp8", "fp8-full")


def activation(name: str, site: str) -> TensorSpec:
    spec = recipe(name).spec(site, "activation")
    assert spec is not None
    return spec


def weight(name: str, site: str) -> TensorSpec:
    spec = recipe(name).spec(site, "weight")
    assert spec is not None
    return spec


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_survives_yaml_and_says_which_table_it_is(name: str) -> None:
    preset = recipe(name)
    assert preset.name == name
    assert "table" in preset.description and "\n" not in preset.description
    assert parse_recipe(dump_recipe(preset)) == preset


@pytest.mark.parametrize("name", [name for name in preset_names() if name not in OURS])
def test_weights_are_symmetric_and_low_bits_use_the_mse(name: str) -> None:
    for site in ("layers.0.query.weight", "embeddings.token.weight"):
        spec = recipe(name).spec(site, "weight")
        if spec is not None:
            assert spec.symmetric
            groups = PerGroup(groups=128, at_most=True)
            assert spec.granularity == (groups if name.startswith("qbert") else PerTensor())
            assert spec.estimator == (Mse() if spec.bits < 8 else MinMax())


@pytest.mark.parametrize(
    ("name", "weights", "activations"),
    [
        ("w8a8", 8, 8),
        ("w32a8", None, 8),
        ("w8a32", 8, None),
        ("w6a32", 6, None),
        ("w4a32", 4, None),
    ],
)
def test_names_say_the_bits(name: str, weights: int | None, activations: int | None) -> None:
    preset = recipe(name)
    assert (preset.weights and preset.weights.bits) == weights
    assert (preset.activations and preset.activations.bits) == activations
    if preset.activations is not None:
        assert not preset.activations.symmetric
        assert preset.activations.estimator == RunningMinMax(momentum=0.9)


@pytest.mark.parametrize("site", FFN)
def test_mixed_precision_keeps_the_three_ffn_tensors_in_16_bits(site: str) -> None:
    assert activation("w8a8-mp", site).bits == 16
    assert activation("w8a8-mp", "layers.11.layer_output").bits == 8
    assert activation("w8a8-mp", "logits").bits == 8


def test_the_sts_b_variant_widens_the_output_too() -> None:
    assert activation("w8a8-mp-output", "pooler") == TensorSpec(bits=16, estimator=RunningMinMax())
    assert activation("w8a8-mp-output", "logits") == TensorSpec(bits=16, estimator=Mse())
    assert activation("w8a8-mp-output", FFN[0]).bits == 16


@pytest.mark.parametrize("site", FFN)
@pytest.mark.parametrize(
    ("name", "granularity"),
    [
        ("w8a8-per-embedding", PerEmbedding()),
        ("w8a8-peg3", PerGroup(groups=3, permute=True)),
        ("w8a8-peg6", PerGroup(groups=6, permute=True)),
        ("w8a8-peg3-noperm", PerGroup(groups=3)),
        ("w8a8-peg6-noperm", PerGroup(groups=6)),
    ],
)
def test_finer_granularity_only_in_the_ffn(name: str, granularity: Granularity, site: str) -> None:
    assert activation(name, site) == TensorSpec(granularity=granularity, estimator=AllMinMax())
    assert activation(name, "layers.11.ffn_hidden") == TensorSpec(estimator=RunningMinMax())
    assert weight(name, f"{site}.weight").granularity == PerTensor()


@pytest.mark.parametrize(("base", "bits"), [("w8a32", 6), ("w8a32", 4), ("w8a32", 2), ("w4a32", 2)])
def test_low_bit_embeddings_touch_the_token_table_only(base: str, bits: int) -> None:
    name = f"{base}-e{bits}"
    assert weight(name, "embeddings.token.weight") == TensorSpec(bits=bits, symmetric=True, estimator=Mse())
    assert weight(name, "embeddings.position.weight") == recipe(base).weights


def test_q8bert_is_dynamic_symmetric_and_leaves_norms_and_attention_products_in_float() -> None:
    preset = recipe("q8bert")
    assert preset.placement == "linear-inputs"
    assert preset.activations == TensorSpec(symmetric=True, dynamic=True)
    assert preset.spec("embeddings.norm.weight", "weight", "norm_weight") is None
    assert preset.spec("layers.0.attention_probs", "activation", "attention_probs") is None
    assert preset.spec("layers.0.ffn_hidden", "activation", "ffn_hidden") == preset.activations


@pytest.mark.parametrize("bits", [8, 4])
def test_qbert_leaves_norms_and_the_last_layer_in_float(bits: int) -> None:
    preset = recipe(f"qbert-w{bits}a8")
    assert preset.weights is not None and preset.weights.bits == bits
    assert preset.spec("logits.weight", "weight", "linear_weight") is None
    table = preset.spec("embeddings.token.weight", "weight", "embedding_weight")
    assert table is not None and table.bits == 8
    assert preset.spec("pooler", "activation", "pooler") is None
    assert preset.spec("embeddings.norm.weight", "weight", "norm_weight") is None
    assert preset.spec("layers.0.ffn_hidden", "activation", "ffn_hidden") == preset.activations


def test_ibert_is_symmetric_with_wide_accumulators_and_integer_functions() -> None:
    preset = recipe("ibert")
    assert preset.passes == (IntegerFunctions(),)
    assert activation("ibert", "layers.0.ffn_input") == TensorSpec(symmetric=True, estimator=RunningMinMax())
    assert preset.spec("layers.0.ffn_residual", "activation", "ffn_residual") == TensorSpec(
        bits=16, symmetric=True, estimator=RunningMinMax()
    )


def test_int8_full_quantizes_every_tensor_and_norms_with_one_scale() -> None:
    preset = recipe("int8-full")
    assert preset.placement == "full" and not any(override.off for override in preset.overrides)
    norm = preset.spec("embeddings.norm.weight", "weight", "norm_weight")
    assert norm is not None and norm.bits == 8 and norm.granularity == PerTensor()
    for role, groups in (("layer_output", 6), ("ffn_residual", 6)):
        spec = preset.spec(f"layers.0.{role}", "activation", role)
        assert spec is not None and spec.bits == 8 and spec.estimator == AllMinMax()
        assert spec.granularity == PerGroup(groups=groups, permute=True, at_most=True, sizes="optimal")


def test_a_path_to_yaml_is_read(tmp_path: Path) -> None:
    expected = recipe("w8a8")
    for name in ("mine.yaml", "mine.YML", "without-suffix"):
        path = tmp_path / name
        path.write_text(dump_recipe(expected), encoding="utf-8")
        assert recipe(path) == recipe(str(path)) == expected


def test_a_missing_yaml_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^no recipe file at .*absent.yaml; check the path$"):
        recipe(tmp_path / "absent.yaml")


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"^no preset 'w8a8-peg' and no such file; did you mean 'w8a8-peg6'"):
        recipe("w8a8-peg")


def test_a_name_like_no_other_lists_all_presets() -> None:
    with pytest.raises(SpecError, match=f"; presets are {', '.join(PRESETS)}$"):
        recipe("zzzz")


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="and no such file"):
        recipe(tmp_path)


def test_presets_are_recipes_in_the_order_of_the_paper() -> None:
    assert preset_names()[:3] == ("w8a8", "w32a8", "w8a32")
    assert all(isinstance(preset, Recipe) for preset in PRESETS.values())


def test_small_tables_have_a_grid_for_every_row_and_relative_ones_stay() -> None:
    for name, linear in (("int8-small", 8), ("w4a8", 4)):
        for table in ("embeddings.token", "embeddings.position", "embeddings.token_type"):
            spec = weight(name, f"{table}.weight")
            assert (spec.bits, spec.symmetric, spec.granularity) == (4, False, PerChannel())
        assert weight(name, "layers.0.query.weight").bits == linear
    assert weight("int8-small", "embeddings.relative.weight").bits == 8


@pytest.mark.parametrize(("name", "bits"), [("w6a6", 6), ("w4a4", 4)])
def test_few_bits_are_those_of_linear_layers_and_tables_keep_eight(name: str, bits: int) -> None:
    assert weight(name, "layers.0.query.weight").bits == activation(name, "layers.0.ffn_hidden").bits == bits
    table = recipe(name).spec("embeddings.token.weight", "weight", "embedding_weight")
    assert table is not None and table.bits == 8
    assert recipe(name).spec("embeddings.norm.weight", "weight", "norm_weight") is None
    passes = [entry.variant_name for entry in recipe(name).passes]
    if bits == 6:
        assert passes == ["equalize", "spill", "gptq", "bias-correction"]
    else:
        assert passes == ["equalize", "gptq", "clip-tokens", "bias-correction"]


@pytest.mark.parametrize("name", ["int8-small", "w6a6", "w4a4"])
def test_gptq_counts_tokens_alike(name: str) -> None:
    assert Gptq(relative=True, shrinkage=0.9) in recipe(name).passes


def test_gptq_of_w4a8_finds_ranges_by_what_layers_read() -> None:
    assert Gptq(weighted=True) in recipe("w4a8").passes


def test_weights_alone_need_no_texts() -> None:
    preset = recipe("int8-weights")
    assert preset.activations is None and not preset.passes
    assert weight("int8-weights", "layers.0.query.weight").granularity == PerChannel()
    assert preset.spec("embeddings.norm.weight", "weight", "norm_weight") is None


@pytest.mark.parametrize(("name", "placement"), [("fp8", "linear-inputs"), ("fp8-full", "full")])
def test_fp8_is_chosen_plainly(name: str, placement: str) -> None:
    preset = recipe(name)
    assert preset.placement == placement and preset.passes == ()
    assert preset.weights is not None and preset.activations is not None
    assert preset.weights.format == preset.activations.format == E4M3()
    assert preset.weights.granularity == PerChannel() and preset.activations.granularity == PerTensor()
