"""Chapter: remedies. The paper's recipes on the same texts, and which of them to use."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.diagnosis.chapter import Chapter, Finding, Study
from octavo.diagnosis.chapters.dimensions import Dimensions
from octavo.diagnosis.markup import section, table
from octavo.diagnosis.wording import columns, short, told
from octavo.drawing import Drawing
from octavo.errors import SiteError, SpecError
from octavo.fidelity import Quality
from octavo.progress import Progress
from octavo.spec.presets import recipe

PLAIN, GROUPS, MIXED = "w8a8", "w8a8-peg6", "w8a8-mp"
RECIPES = {
    PLAIN: "8 bits per tensor",
    GROUPS: "six permuted groups of dimensions",
    MIXED: "16-bit FFN tensors",
}
# What counts as kept: a cosine of 0.99 corresponds to about 17 dB; of a score half a point may be lost.
_KEPT = {"cosine": 0.99, "sqnr": 17.0}
_SCORE_LOSS = 0.5
_BEST = {"cosine": 1.0, "sqnr": 60.0}
# Groups that recover this share of what plain 8 bits lose are preferred to 16-bit tensors.
_ENOUGH = 0.5
_REST = " What remains is for finer granularity elsewhere or for quantization-aware training."


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe and the quality it keeps; None where this model cannot take the recipe, with the reason."""

    recipe: str
    quality: Quality | None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        quality = None if self.quality is None else self.quality.to_dict()
        return {"recipe": self.recipe, "quality": quality, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class Remedies:
    """The recipes that were tried, plain 8 bits first."""

    trials: tuple[Trial, ...]

    @property
    def first(self) -> Quality | None:
        """The quality of the first recipe that the model could take."""
        return next((trial.quality for trial in self.trials if trial.quality is not None), None)


# -- try -----------------------------------------------------------------------------------------------------


def try_recipe(study: Study, name: str) -> Trial:
    """Quantize by a recipe, calibrated on the measured texts, and measure it unless the ledger holds it."""
    key = f"trial/{name}"
    kept = study.ledger.get(key)
    if kept is None:
        try:
            kept = {"quality": study.measure(study.quantize(recipe(name))).to_dict(), "reason": ""}
        except (SiteError, SpecError) as error:
            # a model without such sites, or too narrow for six groups
            kept = {"quality": None, "reason": str(error)}
        study.ledger.put(key, kept)
    quality = None if kept["quality"] is None else Quality.from_dict(kept["quality"])
    return Trial(recipe=name, quality=quality, reason=kept["reason"])


# -- say -----------------------------------------------------------------------------------------------------


def advice(
    trials: Sequence[Trial], outliers: bool, model: str, source: str, float_score: float | None = None
) -> list[Finding]:
    """Return one finding with the recipe to use; nothing where no recipe could be tried."""
    tried = {trial.recipe: trial.quality for trial in trials if trial.quality is not None}
    if PLAIN not in tried:
        return []
    plain = tried[PLAIN]
    better = {name: quality for name, quality in tried.items() if quality.value > plain.value}
    if _is_kept(plain, float_score):
        kept = f"Recipe {PLAIN} ({RECIPES[PLAIN]}) keeps {told(plain)} on these texts; nothing needs repair."
        return [_use([PLAIN], kept, model, source)]
    if not better:
        return [_no_remedy(plain, outliers)]
    chosen = _choose(plain, better, float_score)
    order = [chosen, *(name for name in better if name != chosen)]
    kept = "; ".join(f"{name} ({RECIPES[name]}) keeps {told(tried[name])}" for name in (PLAIN, *order))
    rest = "" if any(_is_kept(quality, float_score) for quality in better.values()) else _REST
    return [_use(order, f"On these texts {kept}.{rest}", model, source)]


def _use(names: Sequence[str], text: str, model: str, source: str) -> Finding:
    commands = tuple(_command(model, name, source) for name in names)
    return Finding(level="advice", title=f"Use {names[0]}", text=text, commands=commands)


def _is_kept(quality: Quality, float_score: float | None) -> bool:
    if quality.measure == "score":
        return float_score is not None and quality.value >= float_score - _SCORE_LOSS
    return quality.value >= _KEPT[quality.measure]


def _choose(plain: Quality, better: dict[str, Quality], float_score: float | None) -> str:
    most = max(better, key=lambda name: better[name].value)
    groups = better.get(GROUPS)
    best = float_score if plain.measure == "score" else _BEST[plain.measure]
    lost = max(best or 0.0, better[most].value) - plain.value
    if groups is not None and groups.value - plain.value >= _ENOUGH * lost:
        return GROUPS
    return most


def _no_remedy(plain: Quality, outliers: bool) -> Finding:
    why = " There are no outlier dimensions that groups or 16-bit FFN tensors could isolate."
    return Finding(
        level="advice",
        title="No recipe tried here helps",
        text=f"{PLAIN} keeps {told(plain)} and neither {GROUPS} nor {MIXED} keeps more."
        f"{'' if outliers else why} "
        "Look at the sensitivity of single sites (--sensitivity sites) and keep the worst in 16 bits, or "
        "train with quantization.",
    )


def _command(model: str, recipe: str, source: str) -> str:
    folder = f"{model.rstrip('/').rpartition('/')[2].rpartition(':')[2]}-{recipe}"
    words = ["octavo", "quantize", model, "--recipe", recipe, "--calibration", source, "-o", folder]
    return " ".join(shlex.quote(word) for word in words)


class RemediesChapter(Chapter[Remedies]):
    """The recipes that were tried and what they keep."""

    name, title, record = "remedies", "Remedies", Remedies
    # before the sensitivity, which can take long: a run that is cut there has its advice already
    stage, turn = "Trying recipes", 1

    def key(self) -> None:
        """Every trial is kept by itself."""

    def conclude(self, progress: Progress) -> Remedies:
        """Try every recipe."""
        trials = []
        for done, name in enumerate(RECIPES, start=1):
            trials.append(try_recipe(self.study, name))
            progress(done, len(RECIPES))
        return Remedies(trials=tuple(trials))

    def findings(self) -> list[Finding]:
        """Say which recipe to use."""
        study, dimensions = self.study, self.study.results["dimensions"]
        assert isinstance(dimensions, Dimensions)
        outliers = bool(dimensions.stream)
        return advice(self.result.trials, outliers, study.encoder.name, study.source, study.float_score)

    def to_dict(self) -> dict[str, Any]:
        """Return `trials`."""
        return {"trials": [trial.to_dict() for trial in self.result.trials]}

    def tile(self) -> tuple[str, str]:
        """Return what plain 8 bits keep."""
        first = self.result.first
        measure = "" if first is None else first.measure.replace("sqnr", "SQNR")
        return f"{measure} kept by {PLAIN}, plain 8 bits per tensor", short(first)

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show a table of the recipes."""
        first = self.result.first
        rows = [
            (
                trial.recipe,
                RECIPES[trial.recipe],
                *(columns(trial.quality).values() if trial.quality is not None else (trial.reason,)),
            )
            for trial in self.result.trials
        ]
        headers = ("recipe", "what it is", *(columns(first) if first is not None else ("",)))
        lead = "Recipes calibrated and measured on these texts; measure on held-out data before you ship."
        return section("remedies", "Remedies tried", lead, table(headers, rows))
