from __future__ import annotations

from pathlib import Path

import pytest

from octavo.diagnosis import quality
from octavo.diagnosis.ledger import Ledger
from octavo.diagnosis.quality import Quality, Reference
from octavo.diagnosis.sensitivity import TABLE_2_RECIPE, Sensitivity, analyse
from octavo.graph import Encoder, State
from octavo.methods import quantize
from octavo.spec import Override, Recipe


def run(encoder: Encoder, texts: list[str], ledger: Ledger, **options: object) -> Sensitivity:
    reference = Reference(encoder, texts, batch_size=4, max_length=None, score=None)
    settings = {"recipe": None, "float_score": None} | options
    return analyse(encoder, reference, texts, ("roles",), ledger=ledger, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(planted: Encoder, texts: list[str]) -> Sensitivity:
    return run(planted, texts, Ledger(None, ""))


def test_the_planted_outlier_costs_most(found: Sensitivity) -> None:
    assert found.variants[0].name in ("ffn_output", "ffn_residual")
    assert found.variants[0].gain > 3 * found.variants[2].gain
    assert max(found.variants, key=lambda v: v.loss).name in ("ffn_output", "ffn_residual")


def test_a_variant_equals_a_recipe_that_leaves_the_role_out(
    found: Sensitivity, planted: Encoder, texts: list[str]
) -> None:
    off = Override(roles=("ffn_residual",), off=True)
    recipe = Recipe(name="off", weights=None, activations=TABLE_2_RECIPE.activations, overrides=(off,))
    alone = Reference(planted, texts, batch_size=4, max_length=None, score=None).measure(
        quantize(planted, recipe, texts)
    )
    variant = next(v for v in found.variants if v.name == "ffn_residual")
    assert variant.left_out.cosine == pytest.approx(alone.cosine, abs=1e-9)


def test_an_interrupted_run_continues(
    planted: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Sensitivity
) -> None:
    calls = 0
    measure = quality.Reference.measure

    def interrupted(self: Reference, model: Encoder) -> Quality:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return measure(self, model)

    monkeypatch.setattr(quality.Reference, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(planted, texts, Ledger(tmp_path, "f"))
    again = run(planted, texts, Ledger(tmp_path, "f"))
    assert again == found
    assert calls == 1 + 1 + 2 * len(found.variants)  # one was interrupted, none was measured twice


def test_progress_reaches_the_end(planted: Encoder, texts: list[str]) -> None:
    seen: list[tuple[int, int]] = []
    found = run(planted, texts, Ledger(None, ""), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n + 1, len(found.variants)) for n in range(len(found.variants))]


def test_weights_of_a_recipe_are_off_when_one_role_is_alone(
    planted: Encoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[set[State]] = []
    measure = quality.Reference.measure

    def noted(self: Reference, model: Encoder) -> Quality:
        states.append({q.state for n, q in model.quantizers.items() if n.endswith(".weight")})  # type: ignore[attr-defined]
        return measure(self, model)

    monkeypatch.setattr(quality.Reference, "measure", noted)
    from octavo.spec.presets import recipe

    run(planted, texts, Ledger(None, ""), recipe=recipe("w8a8"))
    assert states[:3] == [{State.FIX}, {State.FIX}, {State.OFF}]  # all, without one role, one role alone
