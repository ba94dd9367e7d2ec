"""Repairs: changes to a recipe that breaks a model, tried on the same texts, with the commands for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.diagnosis.breakage import Breakage, RoleCost
from octavo.diagnosis.chapter import Study
from octavo.diagnosis.verdict import judge
from octavo.errors import SiteError, SpecError
from octavo.fidelity import Quality
from octavo.graph import Site
from octavo.spec import Equalization, Fold, Recipe, Spill, Stage
from octavo.spec.presets import recipe as preset

WEIGHTS_ONLY = "int8-weights"
_POWERS = (0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A changed recipe and what it keeps.

    what: the change as part of a sentence. recipe: a preset, or the file that `make`, a shell command, writes
    """

    name: str
    what: str
    recipe: str
    make: str | None
    needs_texts: bool
    quality: Quality

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"name": self.name, "what": self.what, "make": self.make, "quality": self.quality.to_dict()}


def try_repairs(study: Study, name: str, recipe: Recipe, breakage: Breakage) -> tuple[Repair, ...]:
    """Fold the roles to blame, and leave activations in float; keep what is better than the recipe."""
    tried = [_folded(study, name, recipe, breakage), _weights_only(study)]
    base = breakage.everything.value
    return tuple(repair for repair in tried if repair is not None and _fidelity(repair.quality) > base)


def mixed_precision(roles: Sequence[RoleCost]) -> str:
    """Return the override that gives the roles finer grids, as a line of YAML."""
    activations = [cost.role for cost in roles if cost.kind == "activation"]
    if activations:
        return f"- {{roles: [{', '.join(activations)}], bits: 16}}"
    return f"- {{roles: [{', '.join(cost.role for cost in roles)}], granularity: per-channel}}"


def foldable_roles(recipe: Recipe, roles: Sequence[RoleCost], sites: Iterable[Site]) -> tuple[str, ...]:
    """Return the roles of activations that the recipe does not fold already, and that have one range."""
    entries = [entry for entry in recipe.passes if isinstance(entry, Equalization | Spill)]
    folded = {role for entry in entries for role in entry.roles}
    specs = [(site.role, recipe.spec(site.name, site.kind, site.role)) for site in sites]
    grouped = {role for role, spec in specs if spec is not None and not spec.granularity.has_one_scale}
    names = [cost.role for cost in roles if cost.kind == "activation"]
    return tuple(name for name in names if name not in folded | grouped)


def _folded(study: Study, name: str, recipe: Recipe, breakage: Breakage) -> Repair | None:
    """Fold by half, which weights and activations share; where that is not enough, all the way."""
    roles = foldable_roles(recipe, breakage.blamed, study.encoder.activation_sites)
    if not roles or any(entry.stage < Stage.FLOAT for entry in recipe.passes):
        return None
    best: tuple[float, Quality] | None = None
    for power in _POWERS:
        changed = replace(
            recipe, name=f"{name}-fold", passes=(Fold(roles=roles, power=power), *recipe.passes)
        )
        quality = _try(study, changed, f"{changed.name}-{power:g}")
        if quality is not None and (best is None or quality.value > best[1].value):
            best = power, quality
        if best is None or judge(best[1], study.float_score, len(study.measured)) != "broken":
            break
    if best is None:
        return None
    line = f"  - fold: {{roles: [{', '.join(roles)}], power: {best[0]:g}}}"
    # The first pass, since those of later stages cannot come before it.
    awk = (
        f'1; /^passes:/ {{print "{line}"}}'
        if recipe.passes
        else f'1; END {{print "passes:"; print "{line}"}}'
    )
    file = f"{name}-fold.yaml"
    return Repair(
        name=f"{name}-fold",
        what=f"{name} with {' and '.join(roles)} folded into the weights",
        recipe=file,
        make=f"{_renamed(name, 'fold')} | awk {shlex.quote(awk)} > {shlex.quote(file)}",
        needs_texts=True,
        quality=best[1],
    )


def _weights_only(study: Study) -> Repair | None:
    quality = _try(study, preset(WEIGHTS_ONLY), WEIGHTS_ONLY)
    if quality is None:
        return None
    return Repair(
        name=WEIGHTS_ONLY,
        what=f"{WEIGHTS_ONLY} (activations in float)",
        recipe=WEIGHTS_ONLY,
        make=None,
        needs_texts=False,
        quality=quality,
    )


def _renamed(name: str, addition: str) -> str:
    """Return the command that prints a recipe under another name: a preset's, or that of the user's file."""
    try:
        preset(name)
    except SpecError:
        return f"octavo recipes {shlex.quote(f'{name}.yaml')}"
    assert re.fullmatch(r"[\w-]+", name)  # as it stands in YAML
    return f"octavo recipes {name} | sed 's/^name: .*/&-{addition}/'"


def _try(study: Study, recipe: Recipe, key: str) -> Quality | None:
    """Return what a changed recipe keeps, None where the model cannot take it."""
    key = f"repair/{key}"
    kept = study.ledger.get(key)
    if kept is None:
        study.calibrated = None  # models of millions of weights: one at a time
        try:
            kept = {"quality": study.measure(study.quantize(recipe)).to_dict()}
        except (SiteError, SpecError):
            kept = {"quality": None}
        study.calibrated = None
        study.ledger.put(key, kept)
    return None if kept["quality"] is None else Quality.from_dict(kept["quality"])


def _fidelity(quality: Quality) -> float:
    """Return the value without a task's score, as a breakage has it."""
    return replace(quality, score=None).value
