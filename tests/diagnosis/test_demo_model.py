"""The real all-MiniLM-L6-v2: what the paper found in BERT must be found here."""

from __future__ import annotations

from importlib import resources

import pytest

from octavo.diagnosis import Diagnosis, diagnose
from octavo.graph import Encoder


@pytest.fixture(scope="module")
def found(demo_encoder: Encoder) -> Diagnosis:
    lines = (resources.files("octavo") / "demo_texts.txt").read_text(encoding="utf-8").splitlines()
    return diagnose(demo_encoder, lines[:20], sensitivity=("roles",))


def test_dimension_99_of_the_first_ffn_outputs(found: Diagnosis) -> None:
    outliers = {(o.site, o.dimension): o for o in found.outliers}
    for layer in (0, 1, 2):
        outlier = outliers[f"layers.{layer}.ffn_output", 99]
        assert outlier.span > 40 * outlier.median_span
        assert outlier.texts == 20


def test_ffn_outputs_and_residual_sums_rank_worst(found: Diagnosis) -> None:
    assert {site.role for site in found.sites[:5]} <= {"ffn_output", "ffn_residual"}


def test_the_residual_after_the_ffn_gains_most(found: Diagnosis) -> None:
    assert found.sensitivity is not None
    best, second = found.sensitivity.of("roles")[:2]
    assert best.label.startswith("residual connections after FFN")
    assert best.gain > 1.2 * second.gain > 0


def test_class_tokens_carry_the_outliers(found: Diagnosis) -> None:
    coincidence = found.token_sites["layers.0.ffn_output"]
    assert coincidence.structural == 1.0
    assert coincidence.outliers["class"] == 20


def test_no_op_heads_are_driven_by_the_outlier_dimension(found: Diagnosis) -> None:
    idle = [head for head in found.heads if head.no_op]
    assert 20 < len(idle) < 50
    driven = [head for head in idle if head.input_dimensions and head.input_dimensions[0].dimension == 99]
    assert len(driven) > 0.8 * len(idle)
    assert all(head.input_dimensions[0].outlier for head in driven)


def test_int8_is_recommended_and_groups_after_it_with_the_commands(found: Diagnosis) -> None:
    last = found.findings[-1]
    assert last.title == "Use int8"
    for command, recipe in zip(last.commands, ("int8", "w8a8-peg6"), strict=False):
        assert command.startswith(f"octavo quantize demo:minilm --recipe {recipe} --calibration texts.txt")
    assert found.breakage is None
