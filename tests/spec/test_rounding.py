from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import SpecError
from octavo.spec import AdaRound, Nearest, Recipe, TensorSpec, dump_recipe, parse_recipe
from octavo.spec.presets import recipe

ROUNDINGS = st.one_of(
    st.builds(Nearest),
    st.builds(
        AdaRound,
        iterations=st.integers(1, 10**6),
        learning_rate=st.none() | st.floats(1e-6, 10),
        weight=st.floats(1e-6, 10),
        warmup=st.floats(0, 1, exclude_max=True),
        beta=st.tuples(st.floats(5, 30), st.floats(2, 5)),
    ),
)


@given(ROUNDINGS)
def test_every_rounding_survives_yaml(rounding: Nearest | AdaRound) -> None:
    made = Recipe(name="r", weights=TensorSpec(bits=4), activations=None, rounding=rounding)
    assert parse_recipe(dump_recipe(made)) == made


def test_the_defaults_are_the_papers() -> None:
    settings = AdaRound()
    assert (settings.iterations, settings.step, settings.weight) == (10_000, 1e-3, 0.01)
    assert (settings.warmup, settings.beta) == (0.2, (20.0, 2.0))


def test_shorter_runs_stride_further_unless_told() -> None:
    assert AdaRound(iterations=1000).step == pytest.approx(1e-2)
    assert AdaRound(iterations=1000, learning_rate=1e-3).step == 1e-3


def test_yaml_names_it_and_gives_options() -> None:
    text = "octavo: 1\nname: r\nweights: {bits: 4}\nactivations: null\nrounding: "
    assert parse_recipe(f"{text}nearest\n").rounding == Nearest()
    assert parse_recipe(f"{text}adaround\n").rounding == AdaRound()
    made = parse_recipe(f"{text}{{adaround: {{iterations: 50, beta: [10, 3]}}}}\n")
    assert made.rounding == AdaRound(iterations=50, beta=(10.0, 3.0))


def test_nearest_is_not_written() -> None:
    assert "rounding" not in dump_recipe(recipe("w4a32"))
    assert "rounding: {adaround: {iterations: 1000" in dump_recipe(recipe("w4a32-adaround"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("adaround2", "rounding: unknown name 'adaround2'; did you mean 'adaround'"),
        ("{adaround: {iteration: 5}}", "adaround: unknown key 'iteration'; did you mean 'iterations'"),
        ("{adaround: {iterations: 0}}", "iterations must be an integer of at least 1"),
        ("{adaround: {learning_rate: -1}}", "learning_rate must be a number above 0"),
        ("{adaround: {weight: much}}", "weight must be a number"),
        ("{adaround: {warmup: 1}}", "warmup must be at least 0 and below 1"),
        ("{adaround: {beta: 20}}", "beta must be two numbers"),
        ("{adaround: {beta: [2, 20]}}", "beta must fall and stay at 2 or above"),
        ("{nearest: {iterations: 5}}", "unknown key 'iterations'; it has no options"),
    ],
)
def test_mistakes_are_named(written: str, message: str) -> None:
    text = f"octavo: 1\nname: r\nweights: {{bits: 4}}\nactivations: null\nrounding: {written}\n"
    with pytest.raises(SpecError, match=f"rounding.*{message}" if "rounding" not in message else message):
        parse_recipe(text)
