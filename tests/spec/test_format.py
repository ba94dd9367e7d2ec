from __future__ import annotations

import pytest

from octavo.errors import SpecError
from octavo.spec import (
    E4M3,
    E5M2,
    AllMinMax,
    CrossEntropy,
    Estimator,
    Format,
    Integer,
    Mse,
    Override,
    Recipe,
    TensorSpec,
    dump_recipe,
    parse_recipe,
)
from octavo.spec.format import FORMATS

FP8 = TensorSpec(symmetric=True, estimator=AllMinMax(), format=E4M3())


def test_every_format_has_one_name() -> None:
    assert dict(FORMATS) == {"integer": Integer, "e4m3": E4M3, "e5m2": E5M2}


@pytest.mark.parametrize("chosen", [E4M3(), E5M2()], ids=lambda f: f.variant_name)
def test_formats_survive_yaml(chosen: Format) -> None:
    spec = TensorSpec(symmetric=True, format=chosen)
    back = Override(roles=("logits",), format=Integer(), optional=True)
    recipe = Recipe(name="fp8", weights=spec, activations=spec, overrides=(back,))
    text = dump_recipe(recipe)
    assert f"format: {chosen.variant_name}" in text and "format: integer" in text
    assert parse_recipe(text) == recipe


def test_integers_are_not_said_so_that_recipes_stay_as_they_were() -> None:
    assert "format" not in dump_recipe(Recipe(name="w8", weights=TensorSpec(), activations=TensorSpec()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 4}, "e4m3 has 8 bits, got 4; write bits: 8, or format: integer"),
        ({"symmetric": False}, "e4m3 lies around 0 and has no zero-point; add symmetric: true"),
        ({"format": "e4m3"}, "format must be one of Integer, E4M3, E5M2, got 'e4m3'"),
    ],
)
def test_what_a_format_does_not_have_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        TensorSpec(**{"symmetric": True, "format": E4M3(), **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", [Mse(), CrossEntropy()], ids=lambda e: e.variant_name)
def test_searches_on_integers_are_refused(estimator: Estimator) -> None:
    with pytest.raises(
        SpecError, match=f"the {estimator.variant_name} estimator searches a grid of integers"
    ):
        TensorSpec(symmetric=True, format=E4M3(), estimator=estimator)


def test_an_unknown_format_is_answered_with_the_known() -> None:
    text = dump_recipe(Recipe(name="fp8", weights=FP8, activations=None)).replace("e4m3", "e4m4")
    with pytest.raises(SpecError, match=r"weights.format: unknown name 'e4m4'.*e4m3"):
        parse_recipe(text)


def test_an_override_that_changes_too_little_says_where() -> None:
    recipe = Recipe(
        name="mixed",
        weights=None,
        activations=TensorSpec(),
        overrides=(Override(roles=("ffn_hidden",), format=E4M3()),),
    )
    with pytest.raises(SpecError, match=r"overrides\[0\] at layers.0.ffn_hidden: e4m3 lies around 0"):
        recipe.spec("layers.0.ffn_hidden", "activation", "ffn_hidden")
