from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import SpecError
from octavo.spec.estimator import MinMax, RunningMinMax
from octavo.spec.granularity import PerGroup
from octavo.spec.recipe import Override, Recipe
from octavo.spec.tensor import TensorSpec
from octavo.spec.yaml import dump_recipe, load_recipe, parse_recipe

from .strategies import recipes

EXAMPLE = """\
octavo: 2
name: w8a8-peg6
placement: full
weights: {bits: 8, symmetric: true, granularity: per-tensor, estimator: min-max}
activations: {bits: 8, symmetric: false, granularity: per-tensor, estimator: {running-min-max: {momentum: 0.9}}}
overrides:
  - sites: ["layers.*.ffn_input", "layers.*.ffn_output", "layers.*.ffn_residual"]
    granularity: {per-group: {groups: 6, permute: true}}
"""  # noqa: E501

HEAD = "octavo: 2\nname: mine\nactivations: null\n"


def test_the_documented_example_is_read() -> None:
    assert parse_recipe(EXAMPLE) == Recipe(
        name="w8a8-peg6",
        weights=TensorSpec(symmetric=True, estimator=MinMax()),
        activations=TensorSpec(estimator=RunningMinMax(momentum=0.9)),
        overrides=(
            Override(
                sites=("layers.*.ffn_input", "layers.*.ffn_output", "layers.*.ffn_residual"),
                granularity=PerGroup(groups=6, permute=True),
            ),
        ),
    )


def test_the_documented_example_is_written_as_it_was() -> None:
    assert dump_recipe(parse_recipe(EXAMPLE)) == EXAMPLE


@given(recipe=recipes())
def test_yaml_brings_back_an_equal_recipe(recipe: Recipe) -> None:
    assert parse_recipe(dump_recipe(recipe)) == recipe


@given(text=st.text(st.sampled_from("octavo1: {}[]-&*!|>'\"\n\t#?@%~,<"), max_size=60))
def test_any_other_text_is_refused_with_a_spec_error(text: str) -> None:
    with pytest.raises(SpecError, match=r"^recipe: "):
        parse_recipe(text)


@pytest.mark.parametrize(
    "text",
    ["\x85", "a\nb", "a\r\nb ", "\u2028", "\ufeff", "\x00", "off", "~", "1", "1e3", "- a: #b", "é", "*"],
    ids=ascii,
)
def test_awkward_texts_survive(text: str) -> None:
    recipe = Recipe(
        name=text,
        description=text,
        weights=TensorSpec(),
        activations=None,
        overrides=(Override(sites=(text,), bits=4),),
    )
    assert parse_recipe(dump_recipe(recipe)) == recipe


def test_specs_that_are_equal_are_written_out_without_aliases() -> None:
    text = dump_recipe(Recipe(name="mine", weights=TensorSpec(), activations=TensorSpec()))
    assert "&" not in text and "*" not in text


@pytest.mark.parametrize("key", ["off", "'off'", "OFF"])
def test_off_is_a_word_and_not_false(key: str) -> None:
    text = HEAD + f"weights: {{bits: 8}}\noverrides: [{{sites: pooler.weight, {key}: true}}]\n"
    if key == "OFF":
        with pytest.raises(SpecError, match=r"overrides\[0\]: unknown key 'OFF'"):
            parse_recipe(text)
    else:
        assert parse_recipe(text).overrides == (Override(sites=("pooler.weight",), off=True),)


def test_off_is_written_without_quotes() -> None:
    recipe = Recipe(
        name="off", weights=TensorSpec(), activations=None, overrides=(Override(roles=("off",), off=True),)
    )
    assert dump_recipe(recipe).endswith('  - roles: ["off"]\n    off: true\n')
    assert parse_recipe(dump_recipe(recipe)) == recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "recipe: expected a mapping, got None"),
        ("just text", "recipe: expected a mapping, got 'just text'"),
        ("a: [", "recipe: not valid YAML: while parsing"),
        ("a: 1\n---\nb: 2", "recipe: not valid YAML: expected a single document"),
        (
            "octavo: !!python/object/apply:os.getcwd []",
            "recipe: not valid YAML: could not determine a constructor",
        ),
        ("name: 2024-99-99", "recipe: not valid YAML: month must be in 1..12"),
        ("name: \x00", "recipe: not valid YAML: unacceptable character"),
        ("[" * 5000, "recipe: not a recipe: the YAML is nested too deeply"),
        ("octavo: &a [*a]", "recipe: octavo: recipe format [[[[[[[...]]]]]]] is unknown"),
        (HEAD + "weights: {bits: 8, bits: 4}", "recipe: line 4: the key 'bits' is given twice; keep one"),
        (HEAD + "name: other", "recipe: line 4: the key 'name' is given twice; keep one"),
        (
            HEAD + "weights: {bits: eight}",
            "recipe: weights: bits must be an integer from 2 to 16, got 'eight'",
        ),
    ],
    ids=lambda value: value[:40].split("\n")[0],
)
def test_malformed_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_recipe(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_aliases_that_multiply_are_refused_quickly() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    with pytest.raises(SpecError, match="unknown key 'a0'") as caught:
        parse_recipe("\n".join(lines))
    assert len(str(caught.value)) < 300


def test_messages_start_with_the_source() -> None:
    with pytest.raises(SpecError, match=r"^mine.yaml: weights: unknown key 'bit'; did you mean 'bits'"):
        parse_recipe(HEAD + "weights: {bit: 8}", source="mine.yaml")


def test_a_file_is_read_and_named_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert load_recipe(path) == parse_recipe(EXAMPLE)
    path.write_text(EXAMPLE.replace("octavo: 2", "octavo: 3"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.yaml: octavo: recipe format 3 is unknown"):
        load_recipe(str(path))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^no recipe file at .*absent\.yaml; check the path$"):
        load_recipe(tmp_path / "absent.yaml")
    with pytest.raises(
        SpecError, match=r"^cannot read the recipe .*: Is a directory; give a readable YAML file$"
    ):
        load_recipe(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(SpecError, match=r"binary\.yaml is not UTF-8 text; a recipe is a YAML file$"):
        load_recipe(tmp_path / "binary.yaml")
