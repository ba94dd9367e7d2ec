"""Recipes that are tried on the same texts, and which of them keeps most for least."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from octavo.diagnosis.chapter import Study
from octavo.diagnosis.verdict import judge
from octavo.errors import SiteError, SpecError
from octavo.fidelity import Quality
from octavo.progress import Progress
from octavo.spec import Mse, Override, Recipe
from octavo.spec.presets import PRESETS
from octavo.spec.presets import recipe as preset

if TYPE_CHECKING:
    from octavo.diagnosis.chapters.writers import Writers

PLAIN, GROUPS, MIXED, CUT, INTEGER = "w8a8", "w8a8-peg6", "w8a8-mp", "w8a8-cut", "int8"
RECIPES = {
    PLAIN: "8 bits per tensor",
    GROUPS: "six permuted groups of dimensions",
    MIXED: "16-bit FFN tensors",
    CUT: "8 bits per tensor, the weights that write outliers by least squared error",
    INTEGER: "what integer kernels read, weights per channel, norms folded",
}
_BEST = {"cosine": 1.0, "sqnr": 60.0}
# 8-bit recipes that recover this share of what plain 8 bits lose are preferred to 16-bit tensors.
_ENOUGH = 0.5


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe and the quality it keeps; None where this model cannot take the recipe, with the reason.

    make: the shell command that writes the recipe's file, None where it is a preset or the user's own.
    """

    recipe: str
    quality: Quality | None
    reason: str = ""
    make: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        quality = None if self.quality is None else self.quality.to_dict()
        return {"recipe": self.recipe, "quality": quality, "reason": self.reason, "make": self.make}


def recipes(study: Study) -> dict[str, Recipe]:
    """Return what is tried by name: the presets, the one that cuts weights, and the recipe that was given."""
    writers: Writers = study.results["writers"]
    tried = {}
    for name in RECIPES:
        if name != CUT:
            tried[name] = preset(name)
        elif writers.weights:
            tried[name] = cut(writers.weights)
    if study.recipe is not None and study.recipe not in tried.values():
        tried[given_name(study.recipe)] = study.recipe
    return tried


def given_name(recipe: Recipe) -> str:
    """Return the name that a given recipe goes by here; one that is called like a preset is told apart."""
    is_taken = recipe.name == CUT or PRESETS.get(recipe.name, recipe) != recipe
    return f"{recipe.name}-given" if is_taken else recipe.name


def cut(weights: Sequence[str]) -> Recipe:
    """Return plain 8 bits with ranges of least squared error for these weights."""
    override = Override(sites=tuple(weights), estimator=Mse())
    return replace(preset(PLAIN), name=CUT, overrides=(override,))


def cut_command(recipe: Recipe) -> str:
    """Return the shell command that writes the recipe of `cut`."""
    sites = ", ".join(recipe.overrides[0].sites)
    awk = f'1; END {{print "overrides:"; print "  - {{sites: [{sites}], estimator: mse}}"}}'
    renamed = f"octavo recipes {PLAIN} | sed 's/^name: .*/name: {CUT}/'"
    return f"{renamed} | awk {shlex.quote(awk)} > {CUT}.yaml"


def try_recipe(study: Study, name: str, recipe: Recipe) -> Trial:
    """Quantize by a recipe, calibrated on the measured texts, and measure it unless the ledger holds it."""
    key = f"trial/{name}"
    kept = study.ledger.get(key)
    if kept is None:
        try:
            kept = {"quality": study.measure(study.quantize(recipe)).to_dict(), "reason": ""}
        except (SiteError, SpecError) as error:
            # a model without such sites, or too narrow for six groups
            kept = {"quality": None, "reason": str(error)}
        study.ledger.put(key, kept)
    quality = None if kept["quality"] is None else Quality.from_dict(kept["quality"])
    make = cut_command(recipe) if name == CUT else None
    return Trial(recipe=name, quality=quality, reason=kept["reason"], make=make)


def try_recipes(study: Study, wanted: Mapping[str, Recipe], progress: Progress) -> tuple[Trial, ...]:
    """Try every recipe; the model that will be looked at further stays calibrated, all others go."""
    trials: list[Trial] = []
    for done, (name, recipe) in enumerate(wanted.items(), start=1):
        held = study.calibrated
        trials.append(try_recipe(study, name, recipe))
        at_hand = recipe == study.recipe if study.recipe is not None else name == _chosen(study, trials)
        if not at_hand:
            study.calibrated = held
        progress(done, len(wanted))
    return tuple(trials)


def _chosen(study: Study, trials: Sequence[Trial]) -> str | None:
    return choose(trials, study.float_score, len(study.measured))


def choose(trials: Sequence[Trial], float_score: float | None = None, texts: int | None = None) -> str | None:
    """Return the recipe that keeps most for least, None where no recipe could be tried."""
    tried = {trial.recipe: trial.quality for trial in trials if trial.quality is not None}
    if not tried:
        return None
    most = max(tried, key=lambda name: tried[name].value)
    plain = tried.get(PLAIN)
    if plain is None:
        return most
    if most == PLAIN or judge(plain, float_score, texts) == "kept":
        return PLAIN
    best = float_score if plain.measure == "score" else _BEST[plain.measure]
    lost = max(best or 0.0, tried[most].value) - plain.value
    enough = [
        name
        for name in (GROUPS, CUT, INTEGER)
        if name in tried
        and tried[name].value - plain.value >= _ENOUGH * lost
        and judge(tried[name], float_score, texts) != "broken"
    ]
    return max(enough, key=lambda name: tried[name].value) if enough else most
