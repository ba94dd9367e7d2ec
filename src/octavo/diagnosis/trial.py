"""Trial of the remedies: the paper's recipes on the same texts, to recommend one with a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.diagnosis.ledger import Ledger
from octavo.diagnosis.quality import Quality, Reference
from octavo.errors import SiteError, SpecError
from octavo.graph import Encoder, Text
from octavo.methods import quantize
from octavo.spec.presets import recipe

PLAIN, GROUPS, MIXED = "w8a8", "w8a8-peg6", "w8a8-mp"
RECIPES = (PLAIN, GROUPS, MIXED)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A recipe and the quality it keeps; None where this model cannot take the recipe, with the reason."""

    recipe: str
    quality: Quality | None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def try_recipes(
    encoder: Encoder,
    reference: Reference,
    texts: Sequence[Text],
    *,
    ledger: Ledger,
    seed: int = 0,
    max_length: int | None = None,
    progress: Progress | None = None,
) -> list[Trial]:
    """Quantize by each recipe, calibrated on `texts`, and measure what the ledger does not hold yet."""
    trials = []
    for done, name in enumerate(RECIPES, start=1):
        key = f"trial/{name}"
        if key not in ledger:
            try:
                model = quantize(encoder, recipe(name), texts, seed=seed, max_length=max_length)
                ledger.put(key, {"quality": reference.measure(model).to_dict(), "reason": ""})
            except (
                SiteError,
                SpecError,
            ) as error:  # a model without such sites, or too narrow for six groups
                ledger.put(key, {"quality": None, "reason": str(error)})
        held = ledger[key]
        quality = None if held["quality"] is None else Quality(**held["quality"])
        trials.append(Trial(recipe=name, quality=quality, reason=held["reason"]))
        if progress is not None:
            progress(done, len(RECIPES))
    return trials
