from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import OctavoWarning, SpecError
from octavo.spec import (
    AdaRound,
    FixedRanges,
    Fold,
    IntegerFunctions,
    LearnedRanges,
    Override,
    PerTensor,
    Recipe,
    RunningRanges,
    dump_recipe,
    parse_recipe,
    recipe_from_dict,
    recipe_to_dict,
)
from octavo.spec.format_1 import upgraded
from octavo.spec.presets import PRESETS

RECIPES = sorted((Path(__file__).parents[1] / "fixtures" / "format_1" / "recipes").glob("*.yaml"))
# `int8` is ours and was chosen anew since; the others are rows of the paper and stay what they are.
OF_PRESETS = [path for path in RECIPES if path.stem in PRESETS.keys() - {"int8"}]
HEAD = "octavo: 1\nname: mine\nweights: {bits: 8}\nactivations: {bits: 8}\n"


def read(text: str) -> Recipe:
    with pytest.warns(OctavoWarning, match="mine.yaml is a recipe of format 1, read as format 2: .* is now"):
        return parse_recipe(HEAD + text, source="mine.yaml")


@pytest.mark.filterwarnings("ignore::octavo.errors.OctavoWarning")
@pytest.mark.parametrize("path", OF_PRESETS, ids=lambda path: path.stem)
def test_every_preset_as_format_1_wrote_it_is_the_preset_of_today(path: Path) -> None:
    assert parse_recipe(path.read_text(encoding="utf-8")) == PRESETS[path.stem]


@pytest.mark.filterwarnings("ignore::octavo.errors.OctavoWarning")
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_format_1_survives_being_written_as_format_2(path: Path) -> None:
    made = parse_recipe(path.read_text(encoding="utf-8"))
    assert parse_recipe(dump_recipe(made)) == made


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("rounding: nearest", ()),
        ("rounding: adaround", (AdaRound(),)),
        ("rounding: {adaround: {iterations: 7}}", (AdaRound(iterations=7),)),
        ("training: learned", (LearnedRanges(),)),
        ("training: {learned: {gradient_scaling: true}}", (LearnedRanges(gradient_scaling=True),)),
        ("training: fixed", (FixedRanges(),)),
        ("training: {running: {momentum: 0.5}}", (RunningRanges(momentum=0.5),)),
        ("integer_functions: true", (IntegerFunctions(),)),
        ("integer_functions: false", ()),
        (
            "training: fixed\ninteger_functions: true\nrounding: adaround",
            (AdaRound(), IntegerFunctions(), FixedRanges()),
        ),
    ],
)
def test_keys_that_are_gone_are_passes(text: str, passes: tuple[object, ...]) -> None:
    assert read(text).passes == passes


def test_a_recipe_that_uses_no_removed_key_is_read_without_a_note() -> None:
    assert parse_recipe(HEAD).passes == ()


@pytest.mark.parametrize(
    ("overrides", "kept", "passes"),
    [
        ([{"roles": ["a"], "granularity": "folded"}], [], [Fold(roles=("a",))]),
        (
            [{"roles": ["a"], "bits": 4, "granularity": {"folded": {"power": 1.0}}, "optional": True}],
            [Override(roles=("a",), bits=4, optional=True)],
            [Fold(roles=("a",), power=1.0, optional=True)],
        ),
        (
            [
                {"roles": ["a"], "granularity": "folded"},
                {"sites": ["x.*"], "granularity": "per-tensor"},
                {"roles": ["b"], "off": True},
                {"roles": ["c"], "bits": 4},
            ],
            [
                Override(sites=("x.*",), granularity=PerTensor()),
                Override(roles=("b",), off=True),
                Override(roles=("c",), bits=4),
            ],
            [Fold(roles=("a",), skip_sites=("x.*",), skip_roles=("b",))],
        ),
        (
            [
                {"sites": "y", "granularity": {"per-channel": {"axis": 2}}},
                {"sites": "y", "granularity": "folded"},
            ],
            None,
            [Fold(sites=("y",))],
        ),
    ],
    ids=["alone", "with other fields", "undone later", "after several ranges"],
)
def test_a_folded_granularity_is_a_pass_for_the_same_sites(
    overrides: list[dict[str, Any]], kept: list[Override] | None, passes: list[Fold]
) -> None:
    made = recipe_from_dict(
        {"octavo": 1, "name": "f", "weights": None, "activations": {"bits": 8}, "overrides": overrides}
    )
    assert list(made.passes) == passes
    if kept is not None:
        assert list(made.overrides) == kept
    spec = made.spec("y", "activation")
    assert spec is not None and spec.granularity == PerTensor()


def test_activations_folded_everywhere_are_one_pass_for_all_sites() -> None:
    made = recipe_from_dict(
        {
            "octavo": 1,
            "name": "f",
            "weights": None,
            "activations": {"bits": 8, "granularity": "folded"},
            "overrides": [{"roles": ["logits"], "off": True}],
        }
    )
    assert made.passes == (Fold(sites=("*",), skip_roles=("logits",), optional=True),)
    assert recipe_from_dict(recipe_to_dict(made)) == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounding: adaround2", r"passes\[0\]: unknown name 'adaround2'; did you mean 'adaround'"),
        ("integer_functions: 1", "integer_functions must be true or false, got 1"),
        ("training: sometimes", "unknown name 'sometimes'"),
        ("rounding: [1]", r"passes\[0\] must be a name"),
        ("overrides: 5", "overrides must be a list, got 5"),
        ("overrides: [5]", r"overrides\[0\]: expected a mapping, got 5"),
        ("roundings: nearest", "unknown key 'roundings'"),
    ],
)
def test_what_was_wrong_in_format_1_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_recipe(HEAD + text)


def test_the_given_document_is_not_changed() -> None:
    data = {"octavo": 1, "overrides": [{"roles": ["a"], "granularity": "folded"}], "rounding": "nearest"}
    before = repr(data)
    upgraded(data)
    assert repr(data) == before
