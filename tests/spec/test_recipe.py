from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import SpecError
from octavo.spec.estimator import AllMinMax, Mse
from octavo.spec.granularity import PerGroup, PerToken
from octavo.spec.recipe import Override, Recipe
from octavo.spec.tensor import TensorSpec

WEIGHTS = TensorSpec(symmetric=True)
ACTIVATIONS = TensorSpec()


def make(*overrides: Override, **changes: Any) -> Recipe:
    """Return a W8A8 recipe with these overrides and changed fields."""
    options: dict[str, Any] = {"name": "mine", "weights": WEIGHTS, "activations": ACTIVATIONS}
    return Recipe(**(options | {"overrides": overrides} | changes))


def test_without_overrides_the_base_specs_hold() -> None:
    recipe = make()
    assert recipe.spec("layers.0.ffn_input", "activation") is ACTIVATIONS
    assert recipe.spec("layers.0.ffn_input.weight", "weight") is WEIGHTS


def test_an_override_changes_only_what_it_sets() -> None:
    recipe = make(
        Override(sites=("layers.*.ffn_input",), granularity=PerGroup(groups=6), estimator=AllMinMax())
    )
    spec = recipe.spec("layers.11.ffn_input", "activation")
    assert spec == TensorSpec(granularity=PerGroup(groups=6), estimator=AllMinMax())
    assert recipe.spec("layers.11.ffn_output", "activation") is ACTIVATIONS


def test_an_activation_pattern_leaves_the_weight_of_the_same_name_alone() -> None:
    recipe = make(Override(sites=("layers.*.ffn_output",), bits=16))
    assert recipe.spec("layers.3.ffn_output.weight", "weight") is WEIGHTS
    assert recipe.spec("layers.3.ffn_output", "activation") == TensorSpec(bits=16)


def test_a_star_crosses_dots_and_case_counts() -> None:
    recipe = make(Override(sites=("layers.*",), bits=4))
    assert recipe.spec("layers.3.ffn_output.weight", "weight") == TensorSpec(bits=4, symmetric=True)
    assert recipe.spec("Layers.3.ffn_output", "activation") is ACTIVATIONS


def test_overrides_apply_in_order() -> None:
    recipe = make(Override(sites=("*",), bits=4, symmetric=True), Override(sites=("layers.1.*",), bits=6))
    assert recipe.spec("layers.0.query", "activation") == TensorSpec(bits=4, symmetric=True)
    assert recipe.spec("layers.1.query", "activation") == TensorSpec(bits=6, symmetric=True)


def test_an_override_by_role_needs_no_pattern() -> None:
    recipe = make(Override(roles=("norm_weight",), off=True))
    assert recipe.spec("embeddings.norm.weight", "weight", "norm_weight") is None
    assert recipe.spec("layers.0.query.weight", "weight", "linear_weight") is WEIGHTS
    assert recipe.spec("embeddings.norm.weight", "weight") is WEIGHTS


def test_a_role_is_matched_exactly() -> None:
    recipe = make(Override(roles=("*",), bits=4))
    assert recipe.spec("layers.0.query", "activation", "query") is ACTIVATIONS


def test_off_leaves_a_site_in_float_until_a_later_override_sets_it() -> None:
    recipe = make(Override(sites=("layers.*",), off=True), Override(sites=("layers.0.query",), bits=16))
    assert recipe.spec("layers.0.key", "activation") is None
    assert recipe.spec("layers.0.query", "activation") == TensorSpec(bits=16)


def test_an_override_on_a_float_kind_starts_from_the_default_of_that_kind() -> None:
    recipe = make(Override(sites=("a*",), bits=4), weights=None, activations=None)
    assert recipe.spec("a.weight", "weight") == TensorSpec(bits=4, symmetric=True)
    assert recipe.spec("a", "activation") == TensorSpec(bits=4, symmetric=False)
    assert recipe.spec("b", "activation") is None


def test_a_senseless_combination_names_the_override_and_the_site() -> None:
    recipe = make(Override(sites=("*",), bits=4), Override(sites=("*.query",), granularity=PerToken()))
    with pytest.raises(
        SpecError, match=r"^overrides\[1\] at layers\.0\.query: per-token has no static ranges"
    ):
        recipe.spec("layers.0.query", "activation")


def test_weights_have_no_dynamic_ranges() -> None:
    with pytest.raises(SpecError, match=r"^weights: dynamic ranges are for activations"):
        make(weights=TensorSpec(dynamic=True))
    recipe = make(Override(sites=("layers.*",), dynamic=True))
    with pytest.raises(SpecError, match=r"^layers\.0\.query\.weight: dynamic .* narrow the override"):
        recipe.spec("layers.0.query.weight", "weight")


@pytest.mark.parametrize(
    "overrides", [(), (Override(sites=("*",), off=True),)], ids=["no-overrides", "only-off"]
)
def test_a_recipe_that_quantizes_nothing_is_refused(overrides: tuple[Override, ...]) -> None:
    with pytest.raises(SpecError, match="recipe 'mine' quantizes nothing; give weights, activations or an"):
        make(weights=None, activations=None, overrides=overrides)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name is empty; give the recipe a name"),
        ({"name": 8}, "name must be text, got 8"),
        ({"description": None}, "description must be text, got None"),
        (
            {"placement": "ful"},
            "placement must be 'full' or 'linear-inputs', got 'ful'; did you mean 'full'?",
        ),
        ({"placement": []}, "placement must be 'full' or 'linear-inputs', got []"),
        ({"weights": 8}, "weights must be a TensorSpec, or None for float, got 8"),
        ({"activations": "w8"}, "activations must be a TensorSpec, or None for float, got 'w8'"),
        ({"overrides": []}, "overrides must be a tuple of Override, got []"),
        ({"overrides": (8,)}, "overrides must be a tuple of Override, got (8,)"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_malformed_recipes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        make(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 8}, "an override names neither sites nor roles; say where it applies"),
        ({"sites": ("*",)}, "an override changes nothing; set off, bits, "),
        (
            {"sites": ("*",), "off": True, "bits": 8},
            "an override cannot turn sites off and set bits; keep one",
        ),
        ({"sites": "layers.*", "bits": 8}, "sites must be a tuple of strings, got 'layers.*'"),
        ({"roles": ("",), "bits": 8}, "roles must hold strings that are not empty, got ''"),
        ({"sites": ("*",), "off": None}, "off must be true or false, got None"),
        ({"sites": ("*",), "bits": 1}, "bits must be an integer from 2 to 16, got 1"),
        ({"sites": ("*",), "symmetric": 1}, "symmetric must be true or false, got 1"),
        ({"sites": ("*",), "dynamic": "no"}, "dynamic must be true or false, got 'no'"),
        ({"sites": ("*",), "granularity": "ngp6"}, "granularity must be one of PerTensor, PerChannel, "),
        ({"sites": ("*",), "estimator": "mse"}, "estimator must be one of MinMax, RunningMinMax, "),
    ],
    ids=lambda value: str(value)[:30],
)
def test_malformed_overrides_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Override(**options)
    assert str(caught.value).startswith(message)


def test_a_false_flag_is_a_change() -> None:
    override = Override(sites=("*",), symmetric=False)
    assert override.changes() == {"symmetric": False}


def test_patterns_and_roles_are_listed_once_each() -> None:
    recipe = make(
        Override(sites=("a", "b"), roles=("query",), estimator=Mse()),
        Override(sites=("b", "c"), roles=("query", "key"), bits=4),
    )
    assert recipe.patterns() == ("a", "b", "c")
    assert recipe.roles() == ("query", "key")


def test_optional_overrides_need_no_match() -> None:
    overrides = (Override(sites=("logits",), off=True, optional=True), Override(roles=("ffn_input",), bits=4))
    recipe = Recipe(name="r", weights=None, activations=TensorSpec(), overrides=overrides)
    assert recipe.patterns() == ()
    assert recipe.roles() == ("ffn_input",)
    assert recipe.spec("logits", "activation") is None
