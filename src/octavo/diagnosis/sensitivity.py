"""Sensitivity (the paper's table 2): what one group of sites gives back when left in float, and costs alone.

The model is calibrated once. A variant only switches quantizers, so it costs one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.diagnosis.ledger import Ledger
from octavo.diagnosis.quality import Quality, Reference
from octavo.diagnosis.variants import Group, Mode, Scope, groups
from octavo.graph import Encoder, QuantizedEncoder, Quantizer, Text
from octavo.graph.quantizers.switch import switched_off
from octavo.methods import quantize
from octavo.spec import MinMax, Recipe, TensorSpec

Progress = Callable[[int, int], None]
TABLE_2_RECIPE = Recipe(
    name="table2",
    description="Activations in 8 bits with current min-max ranges, weights in float: the paper's table 2",
    weights=None,
    activations=TensorSpec(bits=8, estimator=MinMax()),
)
_MODES: tuple[Mode, ...] = ("leave-one-out", "enable-one")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One measured variant: all quantized except a group, or only that group quantized.

    gain: what leaving it out adds to the measure of everything quantized.
    loss: what quantizing only it takes from the float model (minus the SQNR, where that is the measure).
    """

    scope: Scope
    name: str
    label: str
    sites: int
    left_out: Quality
    alone: Quality
    gain: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """All variants, by scope from the largest gain to the smallest, beside the model quantized everywhere."""

    recipe: str
    texts: int
    measure: str
    float_score: float | None
    everything: Quality
    variants: tuple[Variant, ...]

    def of(self, scope: Scope) -> list[Variant]:
        """The variants of one scope, largest gain first."""
        return [variant for variant in self.variants if variant.scope == scope]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def analyse(
    encoder: Encoder,
    reference: Reference,
    texts: Sequence[Text],
    scopes: Sequence[Scope],
    *,
    recipe: Recipe | None,
    ledger: Ledger,
    float_score: float | None,
    worst: Iterable[str] = (),
    seed: int = 0,
    max_length: int | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Measure every variant of the scopes that the ledger does not hold yet; `texts` calibrate."""
    chosen = recipe or TABLE_2_RECIPE
    model = quantize(encoder, chosen, texts, seed=seed, max_length=max_length)
    sites = [site for site in encoder.activation_sites if site.name in model.quantizers]
    order = list(worst)
    wanted = [group for scope in scopes for group in groups(sites, scope, order)]
    switchboard = _Switchboard(model, reference, ledger)
    everything = switchboard.measure("all", None, None)
    measured = []
    for done, group in enumerate(wanted, start=1):
        left_out, alone = (
            switchboard.measure(f"{mode}/{group.scope}/{group.name}", mode, group) for mode in _MODES
        )
        measured.append(_variant(group, left_out, alone, everything, float_score))
        if progress is not None:
            progress(done, len(wanted))
    measured.sort(key=lambda v: (scopes.index(v.scope), -v.gain))
    return Sensitivity(
        recipe=chosen.name,
        texts=len(texts),
        measure=everything.measure,
        float_score=float_score,
        everything=everything,
        variants=tuple(measured),
    )


def _variant(
    group: Group, left_out: Quality, alone: Quality, everything: Quality, float_score: float | None
) -> Variant:
    best = {"score": float_score or 0.0, "cosine": 1.0, "sqnr_db": 0.0}[alone.measure]
    return Variant(
        scope=group.scope,
        name=group.name,
        label=group.label,
        sites=len(group.sites),
        left_out=left_out,
        alone=alone,
        gain=left_out.value - everything.value,
        loss=best - alone.value,
    )


class _Switchboard:
    """Switches quantizers off and on again around each measurement."""

    def __init__(self, model: QuantizedEncoder, reference: Reference, ledger: Ledger) -> None:
        self._model = model
        self._reference = reference
        self._ledger = ledger

    def measure(self, key: str, mode: Mode | None, group: Group | None) -> Quality:
        """The quality of a variant, from the ledger if it is there."""
        key = f"sensitivity/{key}"
        if key not in self._ledger:
            with switched_off(self._left_out(mode, set(group.sites) if group is not None else set())):
                self._ledger.put(key, self._reference.measure(self._model).to_dict())
        return Quality(**self._ledger[key])

    def _left_out(self, mode: Mode | None, names: set[str]) -> list[Quantizer]:
        """The quantizers that a variant leaves out."""
        if mode is None:
            return []
        quantizers = self._model.quantizers.items()
        return [q for name, q in quantizers if (name in names) != (mode == "enable-one")]
