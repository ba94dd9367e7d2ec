"""Recipes side by side: what each costs in quality and gains in size, on one model and the same texts."""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import DataError, SpecError
from octavo.fidelity import Reference, read_measure
from octavo.fidelity.measures import MEASURES as FIDELITY
from octavo.fidelity.measures import is_measure
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.saved.write import MANIFEST, WEIGHTS
from octavo.graph.sites.site import in_placement
from octavo.graph.sizes import float_bytes, sites_by_bits
from octavo.ledger import Ledger
from octavo.methods.calibration.permutation import extra_parameters
from octavo.methods.pipeline import quantize_together
from octavo.progress import Progress, silent
from octavo.spec import Recipe, recipe_to_dict
from octavo.tasks.evaluation import score_task
from octavo.tasks.kinds import Task
from octavo.tasks.task_data import describe
from octavo.tasks.texts import Text

MEASURES = ("score", *FIDELITY)
"""What is measured for every seed, under the names of `octavo.fidelity`; rows hold medians."""
FLOAT = "fp32"
_ABOUT = "compare.json"
_TOGETHER = 64
"""Texts of one length that fidelity runs at once."""
_STEPS = 1000


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """What recipes are compared on.

    Arguments:
        calibration: texts to find ranges with; texts: those that fidelity is measured on.
        task, data: a task of `octavo evaluate` and GLUE's files; None leaves the score out.
        seeds: orders of the calibration texts; measures are medians over them.
        batch_size: calibration texts per batch.
    """

    calibration: tuple[Text, ...]
    texts: tuple[Text, ...]
    task: str | Task | None = None
    data: str | None = None
    seeds: tuple[int, ...] = (0,)
    batch_size: int = 1

    def __post_init__(self) -> None:
        if not self.seeds:
            raise SpecError("no seed was given; give at least one, such as 0")
        if not self.calibration or not self.texts:
            raise DataError("a comparison needs texts for calibration and for fidelity; one list is empty")

    def to_dict(self) -> dict[str, Any]:
        """Return what identifies the comparison: texts as fingerprints, no seeds; more can be added later."""
        texts = {name: _fingerprint(getattr(self, name)) for name in ("calibration", "texts")}
        return {**texts, "task": _described(self.task), "batch_size": self.batch_size}


def compare_recipes(
    encoder: Encoder,
    recipes: Sequence[Recipe],
    settings: ComparisonSettings,
    *,
    folder: Path | None = None,
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """Quantize by each recipe and measure what comes out, one row each; the first is the float model.

    Recipes with the same weights share their calibration passes, and the float model runs once over the texts
    of fidelity. With `folder`, what is there is not measured again, and what is finished is written.
    """
    _check_names(recipes)
    about = {"model": encoder.name, **settings.to_dict()}
    bench = _Bench(encoder, settings, Ledger(folder, about, name=_ABOUT, noun="a comparison"))
    seeds = {r.name: settings.seeds if _reads_order(encoder, r) else settings.seeds[:1] for r in recipes}
    total = sum(map(len, seeds.values()))
    meter = _Meter(total + 1, progress)
    rows = [bench.float_row(meter)]
    for seed in settings.seeds:
        bench.run([recipe for recipe in recipes if seed in seeds[recipe.name]], seed, meter)
    for recipe in recipes:
        rows.append(_row(recipe, [bench.measured[recipe.name, seed] for seed in seeds[recipe.name]]))
    return rows


class _Meter:
    """Tells how far a comparison is while one model runs, so that the time left is known from the first on.

    A model counts as `_STEPS` steps: half of them for its fidelity, half for its score.
    """

    def __init__(self, models: int, progress: Progress) -> None:
        self._total, self._progress = models * _STEPS, progress
        self._before = 0

    def part(self, first: float, last: float) -> Progress:
        """Return the progress of a part of one model, from one share of its steps to another."""

        def tell(done: int, total: int) -> None:
            share = first + (last - first) * done / max(total, 1)
            self._progress(self._before + round(share * _STEPS), self._total)

        return tell

    def finish(self) -> None:
        """Count a model as done."""
        self._before += _STEPS
        self._progress(self._before, self._total)


class _Bench:
    """Measures recipes, one seed at a time."""

    def __init__(self, encoder: Encoder, settings: ComparisonSettings, ledger: Ledger) -> None:
        self.encoder, self.settings, self.ledger = encoder, settings, ledger
        # without padding: what stands there is computed for nothing, by every model
        batches = encoder.batches(settings.texts, _TOGETHER, pad=False)
        self.reference = Reference(encoder, batches, len(settings.texts))
        self.measured: dict[tuple[str, int], dict[str, Any]] = {}

    def run(self, recipes: Sequence[Recipe], seed: int, meter: _Meter) -> None:
        """Take from the ledger, or else measure, all recipes with one seed."""
        missing = []
        for recipe in recipes:
            kept = self._kept(recipe.name, seed, recipe_to_dict(recipe))
            if kept is None:
                missing.append(recipe)
            else:
                self.measured[recipe.name, seed] = kept
                meter.finish()
        models = quantize_together(
            self.encoder, missing, self.settings.calibration, batch_size=self.settings.batch_size, seed=seed
        )
        while models:
            model = models.pop(0)  # and let go of it: a model holds a copy of its weights
            measured = self._measure(model, meter)
            self.measured[model.recipe.name, seed] = measured
            self._keep(model.recipe.name, seed, recipe_to_dict(model.recipe), measured)
            meter.finish()

    def float_row(self, meter: _Meter) -> dict[str, Any]:
        """The float model, whose only measure is its score."""
        row = self._kept(FLOAT, 0, {})
        if row is None:
            row = {
                "recipe": FLOAT,
                "bytes": float_bytes(self.encoder),
                **self._score(self.encoder, meter.part(0, 1)),
            }
            self._keep(FLOAT, 0, {}, row)
        meter.finish()
        return row

    def _measure(self, model: QuantizedEncoder, meter: _Meter) -> dict[str, Any]:
        half = 1.0 if self.settings.task is None else 0.5
        measured = self.reference.compare(model, meter.part(0, half)).quality().to_dict()
        del measured["score"]  # a task's, which not every comparison has
        return {**measured, **self._score(model, meter.part(half, 1)), **_sizes(model)}

    def _kept(self, name: str, seed: int, recipe: dict[str, Any]) -> dict[str, Any] | None:
        """Return what was measured before; of another recipe with the same name it counts as missing."""
        entry = self.ledger.get(_key(name, seed))
        if entry is None or entry.get("recipe") != json.loads(json.dumps(recipe)):
            return None
        measured: dict[str, Any] | None = entry.get("measured")
        return measured

    def _keep(self, name: str, seed: int, recipe: dict[str, Any], measured: dict[str, Any]) -> None:
        self.ledger.put(_key(name, seed), {"recipe": recipe, "seed": seed, "measured": measured})

    def _score(self, model: Encoder, progress: Progress) -> dict[str, Any]:
        if self.settings.task is None:
            return {}
        scored = score_task(model, self.settings.task, data=self.settings.data, progress=progress)
        return {"score": scored.score}


def _described(task: str | Task | None) -> Any:
    """Return what identifies a task: its name, or of a user's own the kind and the data."""
    if not isinstance(task, Task):
        return task
    return {"kind": task.variant_name, "name": task.title, **describe(task.read())}


def _reads_order(encoder: Encoder, recipe: Recipe) -> bool:
    """Whether the ranges of a recipe depend on the order of the calibration texts."""
    sites = in_placement(encoder.activation_sites, recipe.placement)
    specs = [recipe.spec(site.name, site.kind, site.role) for site in sites]
    return any(spec.estimator.reads_order for spec in specs if spec is not None and not spec.dynamic)


def _row(recipe: Recipe, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row: medians of what was measured, sizes of the first seed, and the seeds' own values."""
    medians: dict[str, Any] = {}
    for name in MEASURES:
        values = [value for entry in found if (value := read_measure(entry, name)) is not None]
        if values:
            outer, _, inner = name.partition(".")
            median = statistics.median(values)
            medians[outer] = {**medians.get(outer, {}), inner: median} if inner else median
    rest = {name: value for name, value in found[0].items() if name != "score" and not is_measure(name)}
    return {"recipe": recipe.name, **medians, **rest, "seeds": [dict(entry) for entry in found]}


def _sizes(model: QuantizedEncoder) -> dict[str, Any]:
    """Bytes on disk, extra parameters of groups, and how many sites have how many bits."""
    with tempfile.TemporaryDirectory() as place:
        saved = model.save(Path(place) / "model")
        size = sum((saved / name).stat().st_size for name in (WEIGHTS, MANIFEST))
    counts = {
        f"{kind}_bits": {str(bits or "float"): count for bits, count in sites_by_bits(model, kind).items()}
        for kind in ("activation", "weight")
    }
    return {"bytes": size, "extra_parameters": extra_parameters(model), **counts}


def _check_names(recipes: Sequence[Recipe]) -> None:
    names = [recipe.name for recipe in recipes]
    if not names:
        raise SpecError("no recipe was given; give some, such as w8a8,w8a8-peg6")
    twice = next((name for name in names if names.count(name) > 1 or name == FLOAT), None)
    if twice is not None:
        raise SpecError(f"{twice!r} names more than one row; give every recipe a name of its own")


def _key(name: str, seed: int) -> str:
    return f"{name.replace('/', '_')}-seed-{seed}"


def _fingerprint(texts: Sequence[Text]) -> dict[str, Any]:
    return {"texts": len(texts), "sha256": hashlib.sha256(repr(list(texts)).encode()).hexdigest()}
