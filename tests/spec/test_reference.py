from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from octavo.spec import Override, Recipe, TensorSpec
from octavo.spec.estimator import Estimator
from octavo.spec.granularity import Granularity
from octavo.spec.passes import Budget, Pass
from octavo.spec.reference import recipe_reference

PAGE = Path(__file__).parents[2] / "docs" / "recipe-keys.md"


def test_the_page_in_the_docs_is_what_the_types_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == recipe_reference(), "run python -m octavo.spec.reference"


def test_every_variant_and_every_key_is_there() -> None:
    page = recipe_reference()
    families = (Granularity, Estimator, Pass, Budget)
    variants = [variant for family in families for variant in family.variants().values()]
    for variant in variants:
        assert f"### `{variant.variant_name}`" in page
    for kind in (Recipe, TensorSpec, Override, *variants):
        for field in fields(kind):  # type: ignore[arg-type]
            assert f"| `{field.name}` |" in page
