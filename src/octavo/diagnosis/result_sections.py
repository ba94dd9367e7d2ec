"""The sections of the report about measured variants: sensitivity and the recipes that were tried."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.diagnosis.advice import WHAT
from octavo.diagnosis.findings import percent
from octavo.diagnosis.markup import NONE, details, figure, heading, section, table
from octavo.diagnosis.quality import Quality
from octavo.diagnosis.sensitivity import Sensitivity
from octavo.diagnosis.trial import Trial
from octavo.diagnosis.variants import LAST_LAYERS, SCOPES
from octavo.drawing import Drawing

_TITLES = {
    "roles": "By role",
    "last": f"By role, last {LAST_LAYERS} layers only",
    "layers": "By layer",
    "sites": "By site",
}
_CAPTION = "Dashed: everything quantized. Right: only this group quantized; longer is worse."


def sensitivity(found: Sensitivity, drawings: dict[str, Drawing]) -> str:
    """A chart and a table for every scope."""
    names = tuple(_columns(found.everything))
    headers = (
        "group",
        "sites",
        *(f"except: {n}" for n in names),
        "gain",
        *(f"only: {n}" for n in names),
        "loss",
    )
    parts = []
    for scope in SCOPES:
        rows = [
            (v.label, str(v.sites), *_cells(v.left_out), f"{v.gain:+.4f}", *_cells(v.alone), f"{v.loss:.4f}")
            for v in found.of(scope)
        ]
        if rows:
            parts.append(heading(_TITLES[scope]) + figure(drawings[f"sensitivity-{scope}"], _CAPTION))
            parts.append(details("Table", table(headers, rows, sortable=True)))
    score = "" if found.float_score is None else f" The float model scores {found.float_score:.2f}."
    lead = f"All activations in 8 bits except one group, and only that group. Calibrated once.{score}"
    return section("sensitivity", "Sensitivity", lead, *parts)


def remedies(trials: Sequence[Trial]) -> str:
    """The recipes that were tried and what they keep."""
    first = next((trial.quality for trial in trials if trial.quality is not None), None)
    rows = [
        (
            trial.recipe,
            WHAT[trial.recipe],
            *(_cells(trial.quality) if trial.quality is not None else (trial.reason,)),
        )
        for trial in trials
    ]
    headers = ("recipe", "what it is", *(_columns(first) if first is not None else ("",)))
    lead = "Recipes calibrated and measured on these texts; measure on held-out data before you ship."
    return section("remedies", "Remedies tried", lead, table(headers, rows))


def short(quality: Quality | None) -> str:
    """The one number of a quality that counts."""
    if quality is None:
        return NONE
    if quality.score is not None:
        return f"{quality.score:.1f}"
    return f"{quality.cosine:.3f}" if quality.cosine is not None else f"{quality.sqnr_db:.1f} dB"


def _cells(quality: Quality) -> tuple[str, ...]:
    return tuple(_columns(quality).values())


def _columns(quality: Quality) -> dict[str, str]:
    columns = {} if quality.cosine is None else {"cosine": f"{quality.cosine:.4f}"}
    columns["SQNR dB"] = f"{quality.sqnr_db:.1f}"
    if quality.agreement is not None:
        columns["agreement"] = percent(quality.agreement)
    if quality.score is not None:
        columns["score"] = f"{quality.score:.2f}"
    return columns
