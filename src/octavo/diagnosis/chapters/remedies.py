"""Chapter: remedies. Recipes on the same texts, which of them to use, and what breaks the best of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.diagnosis.breakage import Breakage, find_breakage
from octavo.diagnosis.chapter import Chapter, Finding, Level
from octavo.diagnosis.chapters.dimensions import Dimensions
from octavo.diagnosis.chapters.ranking import Ranking
from octavo.diagnosis.markup import heading, section, table
from octavo.diagnosis.repairs import Repair, mixed_precision, try_repairs
from octavo.diagnosis.trials import PLAIN, RECIPES, Trial, choose, recipes, try_recipes
from octavo.diagnosis.verdict import Verdict, judge, least
from octavo.diagnosis.wording import MEASURES, cells_of, columns, kept, number, short, told
from octavo.drawing import Drawing
from octavo.fidelity import Quality
from octavo.progress import Progress
from octavo.spec.presets import PRESETS

_GIVEN = "the recipe given"
_REST = " What remains is for finer granularity elsewhere or for quantization-aware training."
_NONE_KEEPS = "None of the recipes tried keeps this model"
_TRAIN = "Quantization-aware training, where there are labels: `octavo qat` (docs/methods/qat.md)."


@dataclass(frozen=True, kw_only=True)
class Remedies:
    """The recipes that were tried, plain 8 bits first.

    breakage: of the recipe at hand, the one that was given or else the best; None where that one is kept.
    repairs: changes to it, where no recipe is good.
    """

    trials: tuple[Trial, ...]
    breakage: Breakage | None = None
    repairs: tuple[Repair, ...] = ()

    @property
    def first(self) -> Quality | None:
        """The quality of the first recipe that the model could take."""
        return next((trial.quality for trial in self.trials if trial.quality is not None), None)


# -- say -----------------------------------------------------------------------------------------------------


def advice(
    trials: Sequence[Trial],
    outliers: bool,
    model: str,
    source: str,
    float_score: float | None = None,
    *,
    texts: int | None = None,
    breakage: Breakage | None = None,
    repairs: Sequence[Repair] = (),
) -> list[Finding]:
    """Return one finding with the recipe to use, or with what to do where none is good.

    Arguments:
        outliers: whether dimensions of the residual stream stand out.
        texts: how many the trials were measured on.
        breakage, repairs: what breaks the best recipe and what was tried about it, where none is good.
    """
    tried = {trial.recipe: trial.quality for trial in trials if trial.quality is not None}
    makes = {trial.recipe: trial.make for trial in trials if trial.make is not None}
    chosen = choose(trials, float_score, texts)
    if chosen is None:
        return []
    verdicts = {name: judge(quality, float_score, texts) for name, quality in tried.items()}
    if verdicts[chosen] == "broken":
        made = None if breakage is None else makes.get(breakage.recipe)
        return [_none_keeps(tried, chosen, model, source, float_score, texts, breakage, repairs, made)]
    if verdicts[chosen] == "kept" and chosen == PLAIN:
        kept = f"Recipe {PLAIN} ({RECIPES[PLAIN]}) keeps {told(tried[PLAIN])} on these texts"
        return [_use([PLAIN], f"{kept}; nothing needs repair.", model, source, makes)]
    if chosen == PLAIN:
        return [_no_remedy(tried, outliers)]
    base = tried[PLAIN].value if PLAIN in tried else float("-inf")
    order = [chosen, *(name for name in tried if name != chosen and tried[name].value > base)]
    said = [PLAIN, *order] if PLAIN in tried else order
    kept = "; ".join(_keeps(name, tried[name]) for name in said)
    rest = "" if "kept" in verdicts.values() else _REST
    good = [name for name in order if verdicts[name] != "broken"]
    return [_use(good, f"On these texts {kept}.{rest}", model, source, makes)]


def breaks(breakage: Breakage, verdict: Verdict, ranking: Ranking | None = None) -> list[Finding]:
    """Return one finding with the role that a recipe loses most at; nothing where no role matters."""
    worst = breakage.worst
    if worst is None:
        return []
    recipe, everything, others = breakage.recipe, breakage.everything, breakage.roles[1:]
    unit = MEASURES[everything.measure]
    text = (
        f"{recipe} keeps {told(everything)} on these texts. With the {worst.sites} sites of {worst.role} "
        f"left in float it keeps {told(worst.left_out)}, the largest gain of all {len(breakage.roles)} roles"
    )
    second = f"; next is {others[0].role} with {others[0].left_out.value:.3f} ({unit})" if others else ""
    level: Level = "problem" if verdict == "broken" else "note"
    if verdict != "broken":
        title = f"{worst.role} costs {recipe} most"
    elif breakage.is_alone:
        title = f"{worst.role} breaks {recipe}"
    else:
        title = f"{recipe} breaks at more than one role, most at {worst.role}"
    evidence = () if ranking is None else _worst_site(worst.role, ranking)
    return [Finding(level=level, title=title, text=f"{text}{second}.", evidence=evidence)]


def _worst_site(role: str, ranking: Ranking) -> tuple[str, ...]:
    sites = [site for site in ranking.sites if site.role == role]
    if not sites:
        return ()  # a role of weights
    site = max(sites, key=lambda each: each.kurtosis)
    return (
        f"The heaviest tails among them: {site.name}, which spans {number(site.minimum)} to "
        f"{number(site.maximum)} at a standard deviation of {number(site.std)} "
        f"(kurtosis {number(site.kurtosis)}).",
    )


def _none_keeps(
    tried: Mapping[str, Quality],
    best: str,
    model: str,
    source: str,
    float_score: float | None,
    texts: int | None,
    breakage: Breakage | None,
    repairs: Sequence[Repair],
    made: str | None,
) -> Finding:
    """Say plainly that nothing tried is good, and what to do instead, from what was measured."""
    quality = tried[best]
    rest = "; ".join(_keeps(name, tried[name]) for name in tried if name != best)
    text = (
        f"The best of them, {_keeps(best, quality)}, and the least that can be called kept is "
        f"{least(quality, float_score)}: do not use it as it is. {rest}{'.' if rest else ''}"
    )
    good = [repair for repair in repairs if judge(repair.quality, float_score, texts) != "broken"]
    evidence = [f"Measured: {repair.what} keeps {told(repair.quality)}." for repair in repairs]
    if breakage is not None and breakage.worst is not None:
        evidence.append(
            f"Mixed precision: add `{mixed_precision(breakage.blamed)}` to the overrides of "
            f"{breakage.recipe}; with {breakage.worst.role} in float it keeps "
            f"{told(breakage.worst.left_out)}."
        )
    # repairs change a recipe that may have to be written first
    commands = [made] if made is not None and any(repair.make for repair in good or repairs) else []
    for repair in good or repairs:
        calibration = source if repair.needs_texts else None
        commands += [repair.make] if repair.make else []
        commands.append(_command(model, repair.recipe, calibration, repair.name))
    return Finding(
        level="advice",
        title=f"{_NONE_KEEPS}; {good[0].what} does" if good else _NONE_KEEPS,
        text=text.strip(),
        evidence=(*evidence, _TRAIN),
        commands=tuple(commands),
    )


def _keeps(name: str, quality: Quality) -> str:
    return f"{name} ({RECIPES.get(name, _GIVEN)}) keeps {told(quality)}{kept(quality)}"


def _use(names: Sequence[str], text: str, model: str, source: str, makes: Mapping[str, str]) -> Finding:
    commands = []
    for name in names:
        commands += [makes[name]] if name in makes else []
        commands.append(_command(model, _argument(name), source, name))
    return Finding(level="advice", title=f"Use {names[0]}", text=text, commands=tuple(commands))


def _no_remedy(tried: Mapping[str, Quality], outliers: bool) -> Finding:
    why = " There are no outlier dimensions that groups or 16-bit FFN tensors could isolate."
    others = ", ".join(name for name in tried if name != PLAIN)
    others = f"none of {others} keeps more" if others else "no other recipe could be tried"
    return Finding(
        level="advice",
        title="No recipe tried here helps",
        text=f"{PLAIN} keeps {told(tried[PLAIN])} and {others}."
        f"{'' if outliers else why} "
        "Look at the sensitivity of single sites (--sensitivity sites) and keep the worst in 16 bits, or "
        "train with quantization.",
    )


def _argument(name: str) -> str:
    """Return what `--recipe` takes: a preset's name, or the user's own file."""
    return name if name in PRESETS else f"{name}.yaml"


def _command(model: str, recipe: str, source: str | None, name: str) -> str:
    folder = f"{model.rstrip('/').rpartition('/')[2].rpartition(':')[2]}-{name}"
    calibration = [] if source is None else ["--calibration", source]
    words = ["octavo", "quantize", model, "--recipe", recipe, *calibration, "-o", folder]
    return " ".join(shlex.quote(word) for word in words)


class RemediesChapter(Chapter[Remedies]):
    """The recipes that were tried and what they keep."""

    name, title, record = "remedies", "Remedies", Remedies
    # before the sensitivity, which can take long: a run that is cut there has its advice already
    stage, turn = "Trying recipes", 1

    def key(self) -> None:
        """Every trial is kept by itself."""

    def conclude(self, progress: Progress) -> Remedies:
        """Try every recipe; where the one at hand loses something, find out where, and what helps."""
        study, wanted = self.study, recipes(self.study)
        trials = try_recipes(study, wanted, progress)
        chosen = choose(trials, study.float_score, len(study.measured))
        at_hand = chosen if study.recipe is None else next(n for n, r in wanted.items() if r == study.recipe)
        if chosen is None or at_hand is None:
            return Remedies(trials=trials)
        breakage: Breakage | None = None
        repairs: tuple[Repair, ...] = ()
        if self._verdict(trials, at_hand) in ("fair", "broken"):
            breakage = find_breakage(study, at_hand, wanted[at_hand], progress)
        if study.recipe is None:
            study.calibrated = None  # the sensitivity quantizes by another recipe
        if breakage is not None and self._verdict(trials, chosen) == "broken":
            repairs = try_repairs(study, at_hand, wanted[at_hand], breakage)
        return Remedies(trials=trials, breakage=breakage, repairs=repairs)

    def _verdict(self, trials: Sequence[Trial], name: str) -> Verdict | None:
        quality = next(trial.quality for trial in trials if trial.recipe == name)
        return None if quality is None else judge(quality, self.study.float_score, len(self.study.measured))

    def headline(self) -> list[Finding]:
        """Name the role that breaks the recipe at hand."""
        return [finding for finding in self._breaks() if finding.level == "problem"]

    def findings(self) -> list[Finding]:
        """Say what costs the recipe at hand most if it is not broken, and which recipe to use."""
        study, dimensions = self.study, self.study.results["dimensions"]
        assert isinstance(dimensions, Dimensions)
        notes = [finding for finding in self._breaks() if finding.level != "problem"]
        return notes + advice(
            self.result.trials,
            bool(dimensions.stream),
            study.encoder.name,
            study.source,
            study.float_score,
            texts=len(study.measured),
            breakage=self.result.breakage,
            repairs=self.result.repairs,
        )

    def _breaks(self) -> list[Finding]:
        breakage = self.result.breakage
        if breakage is None:
            return []
        verdict = self._verdict(self.result.trials, breakage.recipe)
        return [] if verdict is None else breaks(breakage, verdict, self.study.results["ranking"])

    def to_dict(self) -> dict[str, Any]:
        """Return `trials`, `breakage` (None where the recipe at hand is kept) and `repairs`."""
        result = self.result
        return {
            "trials": [trial.to_dict() for trial in result.trials],
            "breakage": None if result.breakage is None else result.breakage.to_dict(),
            "repairs": [repair.to_dict() for repair in result.repairs],
        }

    def tile(self) -> tuple[str, str]:
        """Return what plain 8 bits keep."""
        first = self.result.first
        measure = "" if first is None else first.measure.replace("sqnr", "SQNR")
        return f"{measure} kept by {PLAIN}, plain 8 bits per tensor", short(first)

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show a table of the recipes."""
        first = self.result.first
        names = tuple(columns(first)) if first is not None else ("",)
        rows = [
            (
                trial.recipe,
                RECIPES.get(trial.recipe, _GIVEN),
                *(cells_of(trial.quality, names) if trial.quality is not None else (trial.reason,)),
            )
            for trial in self.result.trials
        ]
        repairs = self.result.repairs
        rows += [(repair.name, repair.what, *cells_of(repair.quality, names)) for repair in repairs]
        headers = ("recipe", "what it is", *names)
        lead = "Recipes calibrated and measured on these texts; measure on held-out data before you ship."
        return section("remedies", "Remedies tried", lead, table(headers, rows), self._roles())

    def _roles(self) -> str:
        """Return a table of what each role costs the recipe at hand."""
        breakage = self.result.breakage
        if breakage is None:
            return ""
        names = tuple(columns(breakage.everything))
        headers = ("role left in float", "sites", *names, "gain")
        rows = [
            (cost.role, str(cost.sites), *cells_of(cost.left_out, names), f"{cost.gain:+.4f}")
            for cost in breakage.roles
        ]
        return heading(f"What breaks {breakage.recipe}") + table(headers, rows, sortable=True)
