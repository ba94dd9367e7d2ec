"""The verdict on a quantized model: kept, fair or broken, by what it keeps of the float model."""

from __future__ import annotations

from typing import Literal

from octavo.fidelity import Quality

Verdict = Literal["kept", "fair", "broken"]
# A cosine of 0.99 corresponds to about 17 dB; of a score half a point may be lost.
_KEPT = {"cosine": 0.99, "sqnr": 17.0}
_SCORE_KEPT = 0.5
# A cosine of 0.95 is 10 dB: outputs turned by 18 degrees, and a tenth of their energy is noise.
LEAST = {"cosine": 0.95, "sqnr": 10.0}
"""Below this nobody should ship a model, whatever is gained over another recipe."""
_SCORE_LEAST = 3.0
AGREEMENT = 0.97
"""The share of predictions of a classifier that must stay; for few texts, all but one."""


def judge(quality: Quality, float_score: float | None = None, texts: int | None = None) -> Verdict:
    """Return the verdict by the score if there is one, else by predictions and the cosine or the SQNR."""
    if quality.measure == "score":
        lost = float("inf") if float_score is None else float_score - quality.value
        return "kept" if lost <= _SCORE_KEPT else "fair" if lost <= _SCORE_LEAST else "broken"
    if is_flipping(quality, texts):
        return "broken"
    if quality.value >= _KEPT[quality.measure]:
        return "kept"
    # Logits may turn far while every prediction stays: then predictions decide.
    steady = quality.agreement is not None
    return "fair" if steady or quality.value >= LEAST[quality.measure] else "broken"


def is_flipping(quality: Quality, texts: int | None = None) -> bool:
    """Say whether more predictions change than a classifier can afford; one text may always."""
    spare = 1 / texts if texts else 0.0
    allowed = max(1 - AGREEMENT, spare)
    return quality.agreement is not None and 1 - quality.agreement > allowed + 1e-9


def least(quality: Quality, float_score: float | None = None) -> str:
    """Return the bound that a broken model missed, as part of a sentence."""
    if quality.measure == "score":
        whose = "" if float_score is None else f" of {float_score:.2f}"
        return f"at most {_SCORE_LEAST:g} points below the float model's score{whose}"
    if quality.agreement is not None:
        return f"{100 * AGREEMENT:.0f} % of the predictions"
    bound = LEAST[quality.measure]
    return f"cosine {bound:g}" if quality.measure == "cosine" else f"an SQNR of {bound:g} dB"
