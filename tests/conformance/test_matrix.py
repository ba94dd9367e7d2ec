"""A slice of the conformance matrix, and its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import octavo
from octavo.errors import SpecError
from octavo.methods.passes import PASSES
from tests.conformance import checks, matrix
from tests.conformance.captured import Captured
from tests.conformance.outcome import COLUMNS, Outcome, Wrong, attempt
from tests.conformance.page import render
from tests.conformance.simulated import equals_hugging_face
from tests.conformance.subjects import ALL_OF_INT8, AT_16_BITS, CORE, NO_IDENTITY, RECIPES, THOROUGH, presets
from tests.graph import families

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
# What the default run tries; all of it is `make conformance`.
FAMILIES = ("modernbert", "albert", "roberta-prelayernorm")
PRESETS = ("w8a8-peg6", "int8")
HEADS = ["token-classification"]


@pytest.fixture
def slice_of_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {name: AT_16_BITS[name] for name in ("plain quantizers", ALL_OF_INT8)}
    monkeypatch.setattr(checks, "presets", lambda *_: PRESETS)
    monkeypatch.setattr(checks, "recipes_at_16_bits", lambda *_: wide)
    monkeypatch.setattr(checks, "heads_of", lambda family: HEADS if family == FAMILIES[0] else [])


@pytest.mark.usefixtures("slice_of_presets")
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_wrong_with_a_family(family: str) -> None:
    outcomes = checks.check_family(family)
    tried = {outcome.column for outcome in outcomes}
    assert tried == set(COLUMNS if family == FAMILIES[0] else COLUMNS[:7])
    assert [outcome for outcome in outcomes if outcome.state == "wrong"] == []


# -- outcomes ------------------------------------------------------------------------------------------------


def refuse() -> None:
    raise SpecError("recipe 'x': no\n such thing")


def differ() -> None:
    raise Wrong("3 tokens: logits differ by 1")


def crash() -> None:
    raise ValueError("a message\nof /some/file.py")


@pytest.mark.parametrize(
    ("check", "state", "told"),
    [
        (lambda: None, "pass", ""),
        (refuse, "refused", "recipe 'x': no such thing"),
        (differ, "wrong", "3 tokens: logits differ by 1"),
        (crash, "wrong", "ValueError: a message"),
    ],
    ids=["pass", "refused", "differs", "crashes"],
)
def test_only_errors_of_octavo_are_refusals(check: object, state: str, told: str) -> None:
    assert callable(check)
    expected = Outcome(family="bert", column="presets", item="w8a8", state=state, told=told)
    assert attempt("bert", "presets", "w8a8", check) == expected


def test_a_graph_of_other_weights_is_wrong() -> None:
    """The checks themselves: they see a difference where there is one."""
    subject, other = Captured("bert"), Captured("bert")
    factor = next(iter(other.encoder().graph.parameters()))
    factor.data.mul_(1.01)
    subject.made["encoder"] = subject.pair()[0], other.encoder()
    with pytest.raises(Wrong, match=r"^300 tokens, padded: last_hidden_state differs by .*, more than "):
        equals_hugging_face(subject, "encoder")


# -- the page ------------------------------------------------------------------------------------------------


def outcome(family: str, column: str, state: str, item: str = "one", told: str = "") -> Outcome:
    return Outcome(family=family, column=column, item=item, state=state, told=told)


def test_every_pass_is_tried_at_16_bits_or_said_why_not() -> None:
    tried = {type(done) for wide in AT_16_BITS.values() for done in wide.passes}
    assert tried | set(NO_IDENTITY) == set(PASSES)
    assert not tried & set(NO_IDENTITY)


def test_the_page_counts_what_passes_and_says_the_rest() -> None:
    page = render(
        [
            outcome("bert", "capture", "pass"),
            outcome("bert", "presets", "pass", "w8a8"),
            outcome("bert", "presets", "refused", "ibert", "no form"),
            outcome("bert", "presets", "wrong", "int8", "3 tokens: not finite"),
            outcome("bros", "capture", "refused", "encoder", "no bbox"),
        ]
    )
    assert "2 families, 1 captured; 5 checks: 2 pass, 2 refused with a sentence, 1 wrong." in page
    assert re.search(r"^\| bert \| ✓ \|  \|  \| 1, 1 refused, \*\*1 wrong\*\* \|", page, re.MULTILINE)
    assert re.search(r"^\| bros \| refused \|", page, re.MULTILINE)
    assert "- bert, presets, int8: 3 tokens: not finite" in page
    assert "- presets, `ibert` (bert): no form" in page


def test_the_committed_page_has_every_family_and_nothing_is_wrong() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \|(?: ✓| refused) \|", page, re.MULTILINE)
    assert tuple(rows) == matrix.FAMILIES, "families were added or removed; run make conformance"
    assert " 0 wrong.**" in page and "## Wrong" not in page


def test_what_is_finished_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def check(family: str, every: bool) -> list[Outcome]:
        asked.append(family)
        return [outcome(family, "capture", "pass")]

    monkeypatch.setattr(matrix, "check_family", check)
    first = list(matrix.run_matrix(["bert", "xlm"], records=tmp_path))
    assert list(matrix.run_matrix(["bert", "xlm"], records=tmp_path)) == first
    assert asked == ["bert", "xlm"]


def test_the_command_fails_if_anything_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = "pass"
    monkeypatch.setattr(matrix, "check_family", lambda family, every: [outcome(family, "capture", state)])
    page = tmp_path / "page.md"
    assert matrix.main(["bert", "-o", str(page)]) == 0 and "1 pass" in page.read_text(encoding="utf-8")
    state = "wrong"
    assert matrix.main(["bert", "-o", str(page)]) == 1 and "1 wrong" in page.read_text(encoding="utf-8")


def test_every_family_and_every_preset_is_tried() -> None:
    assert set(matrix.FAMILIES) == {*families.EVERY, *families.FURTHER, *families.OTHERS}
    assert set(THOROUGH) < set(matrix.FAMILIES)
    assert presets(THOROUGH[0]).keys() == presets("ernie", every=True).keys() == RECIPES.keys()
    assert set(CORE) == presets("ernie").keys() < RECIPES.keys()
    different = {octavo.recipe(name).overrides for name in RECIPES}
    assert {octavo.recipe(name).overrides for name in octavo.spec.presets.PRESETS} == different
