from __future__ import annotations

from pathlib import Path

import pytest

from octavo.diagnosis.chapter import Study
from octavo.diagnosis.chapters.sensitivity import (
    TABLE_2,
    TABLE_2_RECIPE,
    Sensitivity,
    analyse,
    check_scopes,
    groups,
)
from octavo.errors import OctavoError
from octavo.fidelity import Quality
from octavo.graph import Encoder, State
from octavo.ledger import Ledger
from octavo.methods import quantize
from octavo.progress import Progress, silent
from octavo.spec import Override, Recipe
from tests.diagnosis.conftest import study_of


def run(
    encoder: Encoder,
    texts: list[str],
    ledger: Ledger | None = None,
    progress: Progress = silent,
    recipe: Recipe | None = None,
) -> Sensitivity:
    study = study_of(encoder, texts, ledger, batch_size=4, recipe=recipe)
    return analyse(study, ("roles",), (), progress)


@pytest.fixture(scope="module")
def found(planted: Encoder, texts: list[str]) -> Sensitivity:
    return run(planted, texts)


def test_the_planted_outlier_costs_most(found: Sensitivity) -> None:
    assert found.variants[0].name in ("ffn_output", "ffn_residual")
    assert found.variants[0].gain > 3 * found.variants[2].gain
    assert max(found.variants, key=lambda v: v.loss).name in ("ffn_output", "ffn_residual")


def test_a_variant_equals_a_recipe_that_leaves_the_role_out(
    found: Sensitivity, planted: Encoder, texts: list[str]
) -> None:
    off = Override(roles=("ffn_residual",), off=True)
    recipe = Recipe(name="off", weights=None, activations=TABLE_2_RECIPE.activations, overrides=(off,))
    alone = study_of(planted, texts, batch_size=4).measure(quantize(planted, recipe, texts))
    variant = next(v for v in found.variants if v.name == "ffn_residual")
    assert variant.left_out.cosine is not None and alone.cosine is not None
    assert variant.left_out.cosine.mean == pytest.approx(alone.cosine.mean, abs=1e-9)


def test_an_interrupted_run_continues(
    planted: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Sensitivity
) -> None:
    calls = 0
    measure = Study.measure

    def interrupted(self: Study, model: Encoder) -> Quality:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return measure(self, model)

    monkeypatch.setattr(Study, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(planted, texts, Ledger(tmp_path, {}))
    again = run(planted, texts, Ledger(tmp_path, {}))
    assert again == found
    assert calls == 1 + 1 + 2 * len(found.variants)  # one was interrupted, none was measured twice


def test_progress_reaches_the_end(planted: Encoder, texts: list[str]) -> None:
    seen: list[tuple[int, int]] = []
    found = run(planted, texts, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n + 1, len(found.variants)) for n in range(len(found.variants))]


def test_weights_of_a_recipe_are_off_when_one_role_is_alone(
    planted: Encoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[set[State]] = []
    measure = Study.measure

    def noted(self: Study, model: Encoder) -> Quality:
        states.append({q.state for n, q in model.quantizers.items() if n.endswith(".weight")})  # type: ignore[attr-defined]
        return measure(self, model)

    monkeypatch.setattr(Study, "measure", noted)
    from octavo.spec.presets import recipe

    run(planted, texts, recipe=recipe("w8a8"))
    assert states[:3] == [{State.FIX}, {State.FIX}, {State.OFF}]  # all, without one role, one role alone


def test_roles_cover_every_site_once(plain: Encoder) -> None:
    found = groups(plain.activation_sites, "roles")
    assert sorted(name for group in found for name in group.sites) == sorted(
        s.name for s in plain.activation_sites
    )
    assert set(TABLE_2) <= {group.name for group in found}
    assert (
        next(g for g in found if g.name == "ffn_residual").label
        == "residual connections after FFN (ffn_residual)"
    )


def test_last_layers_leave_the_embeddings_out(plain: Encoder) -> None:
    found = groups(plain.activation_sites, "last")
    assert {name.split(".")[1] for group in found for name in group.sites} == {
        "0",
        "1",
    }  # both are the last two


def test_layers(plain: Encoder) -> None:
    assert [group.name for group in groups(plain.activation_sites, "layers")] == [
        "embeddings",
        "layers.0",
        "layers.1",
    ]


def test_the_worst_sites_come_first(plain: Encoder) -> None:
    found = groups(plain.activation_sites, "sites", ["layers.1.ffn_output", "layers.0.query"])
    assert [group.name for group in found[:2]] == ["layers.1.ffn_output", "layers.0.query"]
    assert len(found) == len(plain.activation_sites)


def test_an_unknown_scope_names_the_nearest() -> None:
    assert check_scopes(["sites", "roles"]) == ("roles", "sites")
    with pytest.raises(OctavoError, match=r"unknown sensitivity scope 'role'.*did you mean 'roles'"):
        check_scopes(["role"])
