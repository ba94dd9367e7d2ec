"""Chapter: sensitivity (the paper's table 2). What one group of sites gives back in float, and costs alone.

The model is calibrated once. A variant only switches quantizers, so it costs one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from octavo.diagnosis.chapter import WIDTH, Chapter, Finding, Study
from octavo.diagnosis.chapters.ranking import Ranking
from octavo.diagnosis.markup import details, figure, heading, section, table
from octavo.diagnosis.wording import MEASURES, cells_of, columns
from octavo.drawing import Drawing
from octavo.errors import OctavoError, did_you_mean
from octavo.fidelity import Quality
from octavo.graph import QuantizedEncoder, Quantizer, Site, in_placement
from octavo.graph.quantizers.switch import switched_off
from octavo.progress import Progress
from octavo.spec import MinMax, Recipe, TensorSpec

Scope = Literal["roles", "last", "layers", "sites"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
LAST_LAYERS = 2
Mode = Literal["leave-one-out", "enable-one"]
_MODES: tuple[Mode, ...] = get_args(Mode)
TABLE_2_RECIPE = Recipe(
    name="table2",
    description="Activations in 8 bits with current min-max ranges, weights in float: the paper's table 2",
    weights=None,
    activations=TensorSpec(bits=8, estimator=MinMax()),
)
# How the paper's table 2 calls the roles it leaves out; the table `leave-one-out` of experiments follows it.
# The output of self-attention is the product with the values: BERT's module of that name ends there.
TABLE_2 = {
    "attention_scores": "softmax input",
    "embedding_sum": "sum of embeddings",
    "attention_context": "self-attention output",
    "attention_probs": "softmax output",
    "ffn_residual": "residual connections after FFN",
}
_TITLES = {
    "roles": "By role",
    "last": f"By role, last {LAST_LAYERS} layers only",
    "layers": "By layer",
    "sites": "By site",
}
_CAPTION = "Dashed: everything quantized. Right: only this group quantized; longer is worse."
_MOST_DRAWN = 24


@dataclass(frozen=True, kw_only=True)
class Group:
    """Sites that are switched together."""

    scope: Scope
    name: str
    label: str
    sites: tuple[str, ...]


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"left_out": self.left_out.to_dict(), "alone": self.alone.to_dict()}


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
        """Return the variants of one scope, largest gain first."""
        return [variant for variant in self.variants if variant.scope == scope]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        variants = [variant.to_dict() for variant in self.variants]
        return asdict(self) | {"everything": self.everything.to_dict(), "variants": variants}


# -- what is switched ----------------------------------------------------------------------------------------


def check_scopes(scopes: Sequence[str]) -> tuple[Scope, ...]:
    """Return the scopes in their order; an unknown one is an error."""
    for scope in scopes:
        if scope not in SCOPES:
            hint = did_you_mean(scope, SCOPES)
            raise OctavoError(f"unknown sensitivity scope {scope!r}; choose among {', '.join(SCOPES)}{hint}")
    return tuple(scope for scope in SCOPES if scope in scopes)


def groups(sites: Sequence[Site], scope: Scope, worst: Iterable[str] = ()) -> list[Group]:
    """Return the groups of a scope; single sites come in the order of `worst`, which are measured first."""
    if scope == "roles":
        return _by_role(sites, "roles")
    if scope == "last":
        return _by_role(_last(sites), "last")
    if scope == "layers":
        return _by_layer(sites)
    names = [site.name for site in sites]
    order = [name for name in worst if name in names]
    order += [name for name in names if name not in order]
    return [Group(scope="sites", name=name, label=name, sites=(name,)) for name in order]


def _by_role(sites: Iterable[Site], scope: Scope) -> list[Group]:
    members: dict[str, list[str]] = {}
    for site in sites:
        members.setdefault(site.role, []).append(site.name)
    return [
        Group(scope=scope, name=role, label=_label(role), sites=tuple(names))
        for role, names in members.items()
    ]


def _label(role: str) -> str:
    return f"{TABLE_2[role]} ({role})" if role in TABLE_2 else role


def _last(sites: Iterable[Site]) -> list[Site]:
    inside = [(site, site.layer) for site in sites if site.layer is not None]
    count = 1 + max((layer for _, layer in inside), default=-1)
    return [site for site, layer in inside if layer >= count - LAST_LAYERS]


def _by_layer(sites: Iterable[Site]) -> list[Group]:
    members: dict[str, list[str]] = {}
    for site in sites:
        outside = "embeddings" if site.name.startswith("embeddings.") else "head"
        name = outside if site.layer is None else f"layers.{site.layer}"
        members.setdefault(name, []).append(site.name)
    return [
        Group(scope="layers", name=name, label=name, sites=tuple(names)) for name, names in members.items()
    ]


# -- try -----------------------------------------------------------------------------------------------------


def analyse(study: Study, scopes: Sequence[Scope], worst: Iterable[str], progress: Progress) -> Sensitivity:
    """Measure every variant of the scopes that the ledger does not hold yet."""
    recipe = study.recipe or TABLE_2_RECIPE
    sites = [
        site
        for site in in_placement(study.encoder.activation_sites, recipe.placement)
        if recipe.spec(site.name, site.kind, site.role) is not None
    ]
    order = list(worst)
    wanted = [group for scope in scopes for group in groups(sites, scope, order)]
    variants = _Variants(study, recipe)
    everything = variants.measure("all", None, None)
    measured = []
    for done, group in enumerate(wanted, start=1):
        left_out, alone = (
            variants.measure(f"{mode}/{group.scope}/{group.name}", mode, group) for mode in _MODES
        )
        measured.append(_variant(group, left_out, alone, everything, study.float_score))
        progress(done, len(wanted))
    measured.sort(key=lambda v: (scopes.index(v.scope), -v.gain))
    return Sensitivity(
        recipe=recipe.name,
        texts=len(study.measured),
        measure=everything.measure,
        float_score=study.float_score,
        everything=everything,
        variants=tuple(measured),
    )


def _variant(
    group: Group, left_out: Quality, alone: Quality, everything: Quality, float_score: float | None
) -> Variant:
    best = {"score": float_score or 0.0, "cosine": 1.0, "sqnr": 0.0}[alone.measure]
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


class _Variants:
    """One calibrated model, whose quantizers are switched off and on again around each measurement."""

    def __init__(self, study: Study, recipe: Recipe) -> None:
        self._study = study
        self._recipe = recipe

    @cached_property
    def _model(self) -> QuantizedEncoder:
        return self._study.quantize(self._recipe)  # only if something is missing in the ledger

    def measure(self, key: str, mode: Mode | None, group: Group | None) -> Quality:
        """Return the quality of a variant, from the ledger if it is there."""
        key = f"sensitivity/{key}"
        kept = self._study.ledger.get(key)
        if kept is None:
            with switched_off(self._left_out(mode, set(group.sites) if group is not None else set())):
                kept = self._study.measure(self._model).to_dict()
            self._study.ledger.put(key, kept)
        return Quality.from_dict(kept)

    def _left_out(self, mode: Mode | None, names: set[str]) -> list[Quantizer]:
        """Return the quantizers that a variant leaves out."""
        if mode is None:
            return []
        quantizers = self._model.quantizers.items()
        return [q for name, q in quantizers if (name in names) != (mode == "enable-one")]


# -- draw ----------------------------------------------------------------------------------------------------


def draw_sensitivity(sensitivity: Sensitivity, scope: Scope) -> Drawing:
    """Draw what each group gives back when left in float (bars), and costs when quantized alone (right)."""
    shown = sensitivity.of(scope)[:_MOST_DRAWN]
    drawing = Drawing(WIDTH, 24.0 * len(shown) + 62, f"Sensitivity by {scope}")
    base = sensitivity.everything.value
    # One scale for all scopes: a small effect must look small.
    values = [v.left_out.value for v in sensitivity.variants] + [base]
    top, bottom = max(values), min(values)
    left, wide, right = 270.0, 400.0, WIDTH - 162
    unit = wide / max(top - bottom, 1e-9)
    zero = left + (base - bottom) * unit
    end = 30 + 24.0 * len(shown)
    drawing.text(left, 14, "all in 8 bits, except …", "head")
    drawing.text(right, 14, "only …", "head")
    most_loss = max([v.loss for v in sensitivity.variants] + [1e-9])
    for row, variant in enumerate(shown):
        y = 26 + 24.0 * row
        value = left + (variant.left_out.value - bottom) * unit
        drawing.text(left - 10, y + 13, variant.label[:48], "label", "end")
        kind = "hot" if row == 0 and variant.gain > 0 else "bar"
        tip = f"left in float: {variant.left_out.value:.4f} ({variant.gain:+.4f})"
        drawing.rect(min(zero, value), y + 2, max(abs(value - zero), 1), 15, kind, tip)
        drawing.text(max(zero, value) + 5, y + 13, f"{variant.left_out.value:.3f}", "small")
        cost = 110 * max(variant.loss, 0) / most_loss
        drawing.rect(right, y + 2, cost, 15, "mark", f"only this in 8 bits: {variant.alone.value:.4f}")
        drawing.text(WIDTH - 2, y + 13, f"{variant.alone.value:.3f}", "small", "end")
    drawing.line(zero, 22, zero, end, "base")
    drawing.text(zero, end + 14, f"all: {base:.3f}", "small", "middle")
    name = MEASURES[sensitivity.measure]
    what = f"{name} to the float model; recipe {sensitivity.recipe}, {sensitivity.texts} texts"
    drawing.text(left, end + 28, what, "small")
    return drawing


class SensitivityChapter(Chapter[Sensitivity | None]):
    """What each group of sites costs, for the scopes that the user asked for."""

    name, title, record = "sensitivity", "Sensitivity", Sensitivity
    stage, turn = "Sensitivity", 2

    def is_wanted(self) -> bool:
        """Without scopes there is nothing to measure."""
        return bool(self.study.scopes)

    def key(self) -> None:
        """Every variant is kept by itself: a run that was cut goes on from the last one."""

    def conclude(self, progress: Progress) -> Sensitivity:
        """Measure all variants, single sites from the worst on."""
        ranking: Ranking = self.study.results["ranking"]
        worst = [site.name for site in ranking.sites]
        return analyse(self.study, check_scopes(self.study.scopes), worst, progress)

    def findings(self) -> list[Finding]:
        """Name the role that most is lost at."""
        result = self.result
        variants = result.of("roles") if result is not None else []
        if result is None or not variants or variants[0].gain <= 0:
            return []
        best, unit = variants[0], MEASURES[result.measure]
        text = (
            f"With every activation in 8 bits the {unit} is {result.everything.value:.3f}. Leaving "
            f"the {best.sites} sites of this role in float gives {best.left_out.value:.3f}, the largest gain "
            f"of all {len(variants)} roles"
        )
        second = (
            f"; next is {variants[1].label} with {variants[1].left_out.value:.3f}" if variants[1:] else ""
        )
        return [Finding(level="problem", title=f"Most is lost at: {best.label}", text=f"{text}{second}.")]

    def to_dict(self) -> dict[str, Any]:
        """Return `sensitivity`, None unless it was asked for."""
        return {"sensitivity": None if self.result is None else self.result.to_dict()}

    def figures(self) -> dict[str, Drawing]:
        """Draw a chart for every scope."""
        if self.result is None:
            return {}
        scopes = dict.fromkeys(variant.scope for variant in self.result.variants)
        return {f"sensitivity-{scope}": draw_sensitivity(self.result, scope) for scope in scopes}

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show a chart and a table for every scope."""
        result = self.result
        if result is None:
            return ""
        names = tuple(columns(result.everything))
        except_it, only_it = (tuple(f"{mode}: {name}" for name in names) for mode in ("except", "only"))
        headers = ("group", "sites", *except_it, "gain", *only_it, "loss")
        parts = []
        for scope in SCOPES:
            rows = [_cells(variant, names) for variant in result.of(scope)]
            if rows:
                drawing = figures[f"sensitivity-{scope}"]
                parts.append(heading(_TITLES[scope]) + figure(drawing, _CAPTION))
                parts.append(details("Table", table(headers, rows, sortable=True)))
        score = "" if result.float_score is None else f" The float model scores {result.float_score:.2f}."
        lead = f"All activations in 8 bits except one group, and only that group. Calibrated once.{score}"
        return section("sensitivity", "Sensitivity", lead, *parts)


def _cells(variant: Variant, names: Sequence[str]) -> tuple[str, ...]:
    left_out, alone = (cells_of(quality, names) for quality in (variant.left_out, variant.alone))
    gain, loss = f"{variant.gain:+.4f}", f"{variant.loss:.4f}"
    return (variant.label, str(variant.sites), *left_out, gain, *alone, loss)
