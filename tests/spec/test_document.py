from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from octavo.errors import SpecError
from octavo.spec.document import recipe_from_dict, recipe_to_dict, variant_to_data
from octavo.spec.estimator import Mse, Percentile, RunningMinMax
from octavo.spec.granularity import PerChannel, PerGroup
from octavo.spec.recipe import Override, Recipe
from octavo.spec.tensor import TensorSpec

from .strategies import recipes


def document(**changes: Any) -> dict[str, Any]:
    """Return a small valid document with these keys changed."""
    return {"octavo": 2, "name": "mine", "weights": {"bits": 8}, "activations": None} | changes


def override(**options: Any) -> dict[str, Any]:
    """Return a document with one override of these options."""
    return document(overrides=[options])


@given(recipe=recipes())
def test_json_brings_back_an_equal_recipe(recipe: Recipe) -> None:
    assert recipe_from_dict(json.loads(json.dumps(recipe_to_dict(recipe)))) == recipe


def test_keys_come_in_the_order_in_which_people_read_them() -> None:
    recipe = Recipe(
        name="mine",
        description="all of it",
        weights=None,
        activations=TensorSpec(dynamic=True),
        overrides=(Override(sites=("a",), roles=("b",), symmetric=False, bits=4),),
    )
    data = recipe_to_dict(recipe)
    assert list(data) == ["octavo", "name", "description", "placement", "weights", "activations", "overrides"]
    assert list(data["activations"]) == ["bits", "symmetric", "granularity", "estimator", "dynamic"]
    assert list(data["overrides"][0]) == ["sites", "roles", "bits", "symmetric"]
    assert data["octavo"] == 2 and data["weights"] is None


def test_numbers_are_written_and_flags_that_are_off_are_not() -> None:
    spec = TensorSpec(granularity=PerGroup(groups=6, permute=True), estimator=RunningMinMax())
    data = recipe_to_dict(Recipe(name="mine", weights=None, activations=spec))["activations"]
    assert data == {
        "bits": 8,
        "symmetric": False,
        "granularity": {"per-group": {"groups": 6, "permute": True}},
        "estimator": {"running-min-max": {"momentum": 0.9}},
    }


def test_left_out_options_take_their_defaults() -> None:
    recipe = recipe_from_dict(
        document(weights={"granularity": "per-channel", "estimator": {"mse": None}}, activations={})
    )
    assert recipe.weights == TensorSpec(granularity=PerChannel(axis=0), estimator=Mse(candidates=100))
    assert recipe.activations == TensorSpec()
    assert (recipe.placement, recipe.description, recipe.overrides) == ("full", "", ())


def test_whole_numbers_serve_as_floats() -> None:
    recipe = recipe_from_dict(document(activations={"estimator": {"percentile": {"percent": 99}}}))
    assert recipe.activations == TensorSpec(estimator=Percentile(percent=99.0))


def test_one_pattern_needs_no_list() -> None:
    assert recipe_from_dict(override(sites="layers.*", roles="query", bits=4)).overrides == (
        Override(sites=("layers.*",), roles=("query",), bits=4),
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "expected a mapping, got None"),
        ([], "expected a mapping, got []"),
        ({}, "the key 'octavo' is missing; add it"),
        ({"octavo": 2}, "the key 'name' is missing; add it"),
        (
            {"octavo": 2, "name": "mine", "activations": {}},
            "the key 'weights' is missing; add it, null leaves them in float",
        ),
        (document(weight={}), "unknown key 'weight'; did you mean 'weights'?"),
        (document(zzz={}), "unknown key 'zzz'; known are octavo, name, description, placement, weights, "),
        (document(**{"7": 1}) | {7: 1}, "unknown key '7'; known are octavo, "),
        (document(name=7), "name must be text, got 7"),
        (document(placement="fully"), "placement must be 'full' or 'linear-inputs', got 'fully'; did you"),
        (document(weights=8), "weights: expected a mapping, got 8"),
        (document(weights={"bits": "eight"}), "weights: bits must be an integer from 2 to 16, got 'eight'"),
        (document(weights={"bit": 8}), "weights: unknown key 'bit'; did you mean 'bits'"),
        (document(weights={"bits": None}), "weights: bits must be an integer from 2 to 16, got None"),
        (document(weights={"granularity": None}), "weights: granularity must be one of PerTensor, "),
        (document(weights={"dynamic": True}), "weights: dynamic ranges are for activations"),
        (document(weights=None), "recipe 'mine' quantizes nothing"),
        (document(overrides={}), "overrides must be a list, got {}"),
        (document(overrides=None), "overrides must be a list, got None"),
        (document(overrides=["layers.*"]), "overrides[0]: expected a mapping, got 'layers.*'"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
def test_malformed_documents_are_refused_with_their_place(data: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        recipe_from_dict(data)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"site": "*"}, ": unknown key 'site'; did you mean 'sites'"),
        ({"sites": 3, "bits": 4}, ".sites must be a string or a list of strings, got 3"),
        ({"sites": [3], "bits": 4}, ": sites must hold strings that are not empty, got 3"),
        ({"sites": "*", "bits": None}, ".bits is empty; give it a value, or write off: true for float"),
        ({"sites": "*"}, ": an override changes nothing; set off, "),
        ({"bits": 4}, ": an override names neither sites nor roles"),
        ({"sites": "*", "granularity": 6}, ".granularity must be a name, or a mapping from one name"),
        ({"sites": "*", "granularity": {}}, ".granularity must be a name, or a mapping from one name"),
        (
            {"sites": "*", "granularity": "per-grup"},
            ".granularity: unknown name 'per-grup'; did you mean 'per-group'",
        ),
        (
            {"sites": "*", "granularity": "xyzzy"},
            ".granularity: unknown name 'xyzzy'; known are per-tensor, per-channel, per-token, ",
        ),
        (
            {"sites": "*", "granularity": "per-group"},
            ".granularity.per-group: the key 'groups' is missing; add it",
        ),
        (
            {"sites": "*", "granularity": {"per-group": {"group": 6}}},
            ".granularity.per-group: unknown key 'group'; did you mean 'groups'?",
        ),
        (
            {"sites": "*", "granularity": {"per-group": {"groups": 0}}},
            ".granularity.per-group: groups must be an integer of at least 1, got 0",
        ),
        (
            {"sites": "*", "granularity": {"per-group": 6}},
            ".granularity.per-group: expected a mapping, got 6",
        ),
        (
            {"sites": "*", "granularity": {"per-tensor": {"groups": 6}}},
            ".granularity.per-tensor: unknown key 'groups'; it has no options",
        ),
        (
            {"sites": "*", "estimator": {"running-min-max": {"momentum": "high"}}},
            ".estimator.running-min-max: momentum must be a number, got 'high'",
        ),
        (
            {"sites": "*", "estimator": "min_max"},
            ".estimator: unknown name 'min_max'; did you mean 'min-max'",
        ),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_malformed_overrides_are_refused_with_their_place(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        recipe_from_dict(document(overrides=[{"sites": "*", "bits": 4}, options]))
    assert str(caught.value).startswith(f"overrides[1]{message}")


@pytest.mark.parametrize("version", [0, 3, "1", 1.0, True, None], ids=repr)
def test_another_version_is_refused_before_anything_else(version: object) -> None:
    with pytest.raises(
        SpecError, match=f"^octavo: recipe format {version!r} is unknown, this Octavo reads 1 and 2; "
    ):
        recipe_from_dict(document(octavo=version, something_new=1))


def test_even_sizes_are_not_written_so_that_files_stay_as_they_were() -> None:
    assert variant_to_data(PerGroup(groups=6, permute=True)) == {"per-group": {"groups": 6, "permute": True}}
    assert variant_to_data(PerGroup(groups=6, permute=True, sizes="optimal")) == {
        "per-group": {"groups": 6, "permute": True, "sizes": "optimal"}
    }
