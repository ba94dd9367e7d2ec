"""Breakage: which role breaks a recipe, found by leaving one role after the other in float.

Unlike the chapter on sensitivity, this looks at the recipe at hand, weights included. The model is calibrated
once; a role only switches quantizers, so it costs one run over the texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from octavo.diagnosis.chapter import Study
from octavo.fidelity import Quality
from octavo.graph import QuantizedEncoder
from octavo.graph.quantizers.switch import switched_off
from octavo.progress import Progress
from octavo.spec import Recipe

# A role is to blame for its part where leaving it in float gives back this share of what is lost.
_BLAMED = 0.1
_MOST_BLAMED = 3
# ... and it alone breaks the recipe where it gives back this share.
_ALONE = 0.5


@dataclass(frozen=True, kw_only=True)
class RoleCost:
    """What a recipe keeps when the sites of one role are left in float, and how much more that is."""

    role: str
    kind: str
    sites: int
    left_out: Quality
    gain: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"left_out": self.left_out.to_dict()}


@dataclass(frozen=True, kw_only=True)
class Breakage:
    """The roles of a recipe, largest gain first, beside what the whole recipe keeps; by fidelity alone."""

    recipe: str
    everything: Quality
    roles: tuple[RoleCost, ...]

    @property
    def worst(self) -> RoleCost | None:
        """The role that gives back most, None where none gives back anything."""
        return self.roles[0] if self.roles and self.roles[0].gain > 0 else None

    @property
    def is_alone(self) -> bool:
        """Whether the worst role by itself is what breaks the recipe."""
        return self.worst is not None and self.worst.gain >= _ALONE * self._lost

    @property
    def blamed(self) -> tuple[RoleCost, ...]:
        """The worst role, and at most two others that give back a tenth of what is lost."""
        enough = [cost for cost in self.roles if cost.gain > 0 and cost.gain >= _BLAMED * self._lost]
        return tuple(enough or ([self.worst] if self.worst is not None else []))[:_MOST_BLAMED]

    @property
    def _lost(self) -> float:
        """What is lost in all; an SQNR has no best value, so the best role stands for it."""
        best = 1.0 if self.everything.measure == "cosine" else max(c.left_out.value for c in self.roles)
        return best - self.everything.value

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        roles = [cost.to_dict() for cost in self.roles]
        return {"recipe": self.recipe, "everything": self.everything.to_dict(), "roles": roles}


def find_breakage(study: Study, name: str, recipe: Recipe, progress: Progress) -> Breakage:
    """Measure what every role costs a recipe, except what the ledger holds."""
    switched = _Switched(study, name, recipe)
    everything, roles = switched.keep("all", ()), switched.roles()
    costs = []
    for done, (role, (kind, sites)) in enumerate(roles.items(), start=1):
        left_out = switched.keep(f"except/{role}", sites)
        gain = left_out.value - everything.value
        costs.append(RoleCost(role=role, kind=kind, sites=len(sites), left_out=left_out, gain=gain))
        progress(done, len(roles))
    costs.sort(key=lambda cost: -cost.gain)
    return Breakage(recipe=name, everything=everything, roles=tuple(costs))


class _Switched:
    """One calibrated model; it is made only if something is missing in the ledger."""

    def __init__(self, study: Study, name: str, recipe: Recipe) -> None:
        self._study, self._name, self._recipe = study, name, recipe

    @cached_property
    def _model(self) -> QuantizedEncoder:
        return self._study.quantize(self._recipe)

    def roles(self) -> dict[str, tuple[str, list[str]]]:
        """Return the kind and the quantized sites of every role."""
        key = f"breakage/{self._name}/roles"
        kept = self._study.ledger.get(key)
        if kept is None:
            kept = {}
            for name, quantizer in self._model.quantizers.items():
                kept.setdefault(quantizer.site.role, [quantizer.site.kind, []])[1].append(name)
            self._study.ledger.put(key, kept)
        return {role: (kind, sites) for role, (kind, sites) in kept.items()}

    def keep(self, variant: str, off: Iterable[str]) -> Quality:
        """Return what the model keeps with some sites in float."""
        key = f"breakage/{self._name}/{variant}"
        kept = self._study.ledger.get(key)
        if kept is None:
            with switched_off(self._model.quantizers[name] for name in off):
                kept = self._study.fidelity(self._model).to_dict()
            self._study.ledger.put(key, kept)
        return Quality.from_dict(kept)
