"""Advice: which recipe to use, by what the trials kept, and the command to run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from octavo.diagnosis.diagnosis import Finding
from octavo.diagnosis.quality import Quality
from octavo.diagnosis.trial import GROUPS, MIXED, PLAIN, Trial

# What counts as kept: a cosine of 0.99 corresponds to about 17 dB; of a score half a point may be lost.
_KEPT = {"cosine": 0.99, "sqnr_db": 17.0}
_SCORE_LOSS = 0.5
_BEST = {"cosine": 1.0, "sqnr_db": 60.0}
# Groups that recover this share of what plain 8 bits lose are preferred to 16-bit tensors.
_ENOUGH = 0.5
WHAT = {PLAIN: "8 bits per tensor", GROUPS: "six permuted groups of dimensions", MIXED: "16-bit FFN tensors"}
_REST = " What remains is for finer granularity elsewhere or for quantization-aware training."


def advice(
    trials: Sequence[Trial], outliers: bool, model: str, source: str, float_score: float | None = None
) -> list[Finding]:
    """One finding with the recipe to use; nothing where no recipe could be tried."""
    tried = {trial.recipe: trial.quality for trial in trials if trial.quality is not None}
    if PLAIN not in tried:
        return []
    plain = tried[PLAIN]
    better = {name: quality for name, quality in tried.items() if quality.value > plain.value}
    if _is_kept(plain, float_score):
        kept = f"Recipe {PLAIN} ({WHAT[PLAIN]}) keeps {_told(plain)} on these texts; nothing needs repair."
        return [_use([PLAIN], kept, model, source)]
    if not better:
        return [_no_remedy(plain, outliers)]
    chosen = _choose(plain, better, float_score)
    order = [chosen, *(name for name in better if name != chosen)]
    kept = "; ".join(f"{name} ({WHAT[name]}) keeps {_told(tried[name])}" for name in (PLAIN, *order))
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
    why = (
        ""
        if outliers
        else " There are no outlier dimensions that groups or 16-bit FFN tensors could isolate."
    )
    return Finding(
        level="advice",
        title="No recipe tried here helps",
        text=f"{PLAIN} keeps {_told(plain)} and neither {GROUPS} nor {MIXED} keeps more.{why} "
        "Look at the sensitivity of single sites (--sensitivity sites) and keep the worst in 16 bits, or "
        "train with quantization.",
    )


def _told(quality: Quality) -> str:
    if quality.score is not None:
        return f"a score of {quality.score:.2f}"
    return (
        f"cosine {quality.cosine:.3f}"
        if quality.cosine is not None
        else f"an SQNR of {quality.sqnr_db:.1f} dB"
    )


def _command(model: str, recipe: str, source: str) -> str:
    folder = f"{model.rstrip('/').rpartition('/')[2].rpartition(':')[2]}-{recipe}"
    words = ["octavo", "quantize", model, "--recipe", recipe, "--calibration", source, "-o", folder]
    return " ".join(shlex.quote(word) for word in words)
