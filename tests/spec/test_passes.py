from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from octavo.errors import SpecError
from octavo.spec import (
    AdaRound,
    AllocateBits,
    AverageBits,
    BiasCorrection,
    FixedRanges,
    Fold,
    Gptq,
    IntegerFunctions,
    LearnedRanges,
    Megabytes,
    Pass,
    Recipe,
    RunningRanges,
    SplitGroups,
    TensorSpec,
    dump_recipe,
    parse_recipe,
)
from octavo.spec.presets import recipe
from tests.spec.strategies import PASSES, passes

HEAD = "octavo: 2\nname: r\nweights: {bits: 4}\nactivations: null\npasses:\n"


def made(*done: Pass) -> Recipe:
    return Recipe(name="r", weights=TensorSpec(bits=4), activations=None, passes=done)


@given(passes())
def test_every_list_of_passes_survives_yaml(done: tuple[Pass, ...]) -> None:
    assert parse_recipe(dump_recipe(made(*done))) == made(*done)


def test_every_pass_has_a_strategy_for_the_tests() -> None:
    assert set(PASSES) == set(Pass.variants().values())


# -- adaround ------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_papers() -> None:
    settings = AdaRound()
    assert (settings.iterations, settings.step, settings.weight) == (10_000, 1e-3, 0.01)
    assert (settings.warmup, settings.beta) == (0.2, (20.0, 2.0))


def test_shorter_runs_stride_further_unless_told() -> None:
    assert AdaRound(iterations=1000).step == pytest.approx(1e-2)
    assert AdaRound(iterations=1000, learning_rate=1e-3).step == 1e-3


def test_flips_are_written_only_where_they_are_left_out() -> None:
    assert "flips" not in dump_recipe(made(AdaRound()))
    assert parse_recipe(dump_recipe(made(AdaRound(flips=False)))).passes == (AdaRound(flips=False),)
    with pytest.raises(SpecError, match="flips must be true or false"):
        AdaRound(flips=1)  # type: ignore[arg-type]


def test_yaml_names_a_pass_and_gives_options() -> None:
    assert parse_recipe(f"{HEAD}  - adaround\n").passes == (AdaRound(),)
    read = parse_recipe(f"{HEAD}  - adaround: {{iterations: 50, beta: [10, 3]}}\n")
    assert read.passes == (AdaRound(iterations=50, beta=(10.0, 3.0)),)
    read = parse_recipe(
        f"{HEAD}  - allocate-bits: {{budget: {{average-bits: {{bits: 4}}}}, choices: [2, 8]}}\n"
    )
    assert read.passes == (AllocateBits(budget=AverageBits(bits=4), choices=(2, 8)),)


def test_passes_are_written_with_their_numbers_and_only_where_there_are_any() -> None:
    assert "passes" not in dump_recipe(recipe("w4a32"))
    assert "- {adaround: {iterations: 1000, weight: 0.01" in dump_recipe(recipe("w4a32-adaround"))
    assert dump_recipe(recipe("ibert")).endswith("passes:\n  - integer-functions\n")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("adaround2", r"passes\[0\]: unknown name 'adaround2'; did you mean 'adaround'"),
        ("splitgroups", r"unknown name 'splitgroups'; did you mean 'split-groups'"),
        ("{adaround: {iteration: 5}}", "adaround: unknown key 'iteration'; did you mean 'iterations'"),
        ("{adaround: {iterations: 0}}", "iterations must be an integer of at least 1"),
        ("{adaround: {learning_rate: -1}}", "learning_rate must be a number above 0"),
        ("{adaround: {weight: much}}", "weight must be a number"),
        ("{adaround: {warmup: 1}}", "warmup must be at least 0 and below 1"),
        ("{adaround: {beta: 20}}", "beta must be two numbers"),
        ("{adaround: {beta: [2, 20]}}", "beta must fall and stay at 2 or above"),
        ("{adaround: {shrinkage: 1.5}}", "shrinkage must be at least 0 and at most 1"),
        ("gtpq", "unknown name 'gtpq'; did you mean 'gptq'"),
        ("{gptq: {order: 1}}", "order must be true or false"),
        ("{gptq: {damping: 0}}", "damping must be a number above 0"),
        ("{gptq: {block: 0}}", "block must be an integer of at least 1"),
        ("{gptq: {sweeps: -1}}", "sweeps must be an integer of at least 0"),
        ("{gptq: {shrinkage: -0.1}}", "shrinkage must be at least 0 and at most 1"),
        ("{gptq: {asymmetric: maybe}}", "asymmetric must be true or false"),
        ("{integer-functions: {iterations: 5}}", "unknown key 'iterations'; it has no options"),
        ("fold", "fold names neither sites nor roles"),
        ("smooth-quant", "smooth-quant names neither sites nor roles"),
        ("{smooth-quant: {roles: [ffn_input], alpha: 2}}", "alpha must be a number from 0 to 1, got 2"),
        ("{equalize: {roles: [ffn_input], powers: [2]}}", "powers must be numbers from 0 to 1, got 2"),
        ("{equalize: {roles: [ffn_input], alphas: 1}}", "alphas must be a list of numbers, got 1"),
        ("{equalize: {roles: [ffn_input], worth: 2}}", "worth must be a number above 0 and at most 1, got 2"),
        (
            "{shift-and-scale: {roles: [ffn_input], thresholds: 0}}",
            "thresholds must be an integer of at least",
        ),
        ("{fold: {roles: [ffn_input], power: 2}}", "power must be a number above 0 and at most 1"),
        ("{fold: {roles: ffn_input, power: half}}", "roles must be a tuple of strings"),
        ("allocate-bits", "the key 'budget' is missing"),
        ("{allocate-bits: {budget: 4}}", "budget must be a name, or a mapping from one name"),
        (
            "{allocate-bits: {budget: {megabyte: {size: 4}}}}",
            "unknown name 'megabyte'; did you mean 'megabytes'",
        ),
        ("{allocate-bits: {budget: {megabytes: {size: 0}}}}", "size must be a number above 0"),
        (
            "{allocate-bits: {budget: {megabytes: {size: 1}}, choices: []}}",
            "choices must be a list of bit-widths",
        ),
        ("{learned-ranges: {gradient_scaling: 1}}", "gradient_scaling must be true or false"),
        ("{running-ranges: {momentum: 1}}", "momentum must be at least 0 and below 1"),
    ],
)
def test_a_senseless_pass_is_refused(written: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_recipe(f"{HEAD}  - {written}\n")


# -- order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "message"),
    [
        (
            (SplitGroups(), Fold(roles=("ffn_input",))),
            "split-groups cannot come before fold; the order that works is fold, split-groups",
        ),
        (
            (IntegerFunctions(), AdaRound()),
            "integer-functions cannot come before adaround; .* works is adaround, integer-functions",
        ),
        (
            (Fold(roles=("ffn_input",)), AdaRound(), AllocateBits(budget=Megabytes(size=3))),
            "adaround cannot come before allocate-bits; .* works is allocate-bits, fold, adaround",
        ),
        ((LearnedRanges(), SplitGroups()), "learned-ranges cannot come before split-groups"),
        (
            (LearnedRanges(), RunningRanges()),
            "a model is trained once, got learned-ranges and running-ranges",
        ),
        (
            (SplitGroups(), BiasCorrection()),
            "split-groups cannot come before bias-correction; .* works is bias-correction, split-groups",
        ),
        ((AdaRound(), Gptq()), "weights are rounded once, got adaround and gptq; keep one"),
    ],
    ids=[
        "split before fold",
        "functions before rounding",
        "rounding before bits",
        "trained first",
        "trained twice",
        "corrected last",
        "rounded twice",
    ],
)
def test_an_order_that_cannot_work_is_refused_with_the_one_that_does(
    done: tuple[Pass, ...], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        made(*done)


@pytest.mark.parametrize("done", [[AdaRound()], AdaRound(), (AdaRound,), ("adaround",)], ids=str)
def test_passes_are_a_tuple_of_passes(done: object) -> None:
    with pytest.raises(SpecError, match="passes must be"):
        replace(made(), passes=done)  # type: ignore[arg-type]


# -- what others ask of passes -------------------------------------------------------------------------------


def test_a_fold_chooses_sites_and_skips_some() -> None:
    fold = Fold(sites=("layers.*.ffn_*",), roles=("query",), skip_sites=("layers.0.*",), skip_roles=("key",))
    assert fold.applies("layers.1.ffn_input", "ffn_input") and fold.applies("layers.1.query", "query")
    assert not fold.applies("layers.0.ffn_input", "ffn_input")
    assert not fold.applies("layers.1.ffn_x", "key") and not fold.applies("layers.1.value", "value")


def test_a_recipe_needs_the_sites_of_its_passes_unless_they_are_optional() -> None:
    fold = Fold(sites=("a.*",), roles=("query",))
    assert made(fold).patterns() == ("a.*",) and made(fold).roles() == ("query",)
    assert made(replace(fold, optional=True)).patterns() == () == made(replace(fold, optional=True)).roles()


def test_ranges_are_learned_in_training_unless_a_pass_says_otherwise() -> None:
    assert made().training == LearnedRanges()
    assert made(AdaRound(), FixedRanges()).training == FixedRanges()


def test_budgets_leave_the_layers_what_they_say() -> None:
    counts = {"layers.0": 100, "layers.1": 300}
    assert AverageBits(bits=4).of(counts, fixed=999) == 1600
    assert Megabytes(size=1).of(counts, fixed=1000) == 8e6 - 1000
