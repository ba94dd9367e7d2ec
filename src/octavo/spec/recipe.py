"""A recipe: specs for weights and activations, and overrides that change them for some sites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, get_args

from octavo.errors import SpecError, did_you_mean
from octavo.spec.checks import check_flag, check_integer, check_text, check_texts, shown
from octavo.spec.estimator import Estimator
from octavo.spec.format import Format
from octavo.spec.granularity import Granularity
from octavo.spec.passes import LearnedRanges, Pass, RangeTraining, check_passes
from octavo.spec.tensor import TensorSpec
from octavo.spec.variant import check_variant

Placement = Literal["full", "linear-inputs"]
Kind = Literal["weight", "activation"]

DEFAULTS: dict[Kind, TensorSpec] = {"weight": TensorSpec(symmetric=True), "activation": TensorSpec()}
"""What an override starts from where the recipe leaves a kind of tensor in float."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """A change to the specs of some sites: those whose name matches a pattern or whose role is named.

    Arguments:
        sites: shell patterns of site names; `*` crosses dots, and a weight's name ends in `.weight`.
        roles: exact roles, such as `ffn_residual` or `norm_weight`.
        off: leave these sites in float; excludes the fields of `TensorSpec`.
        optional: the model may lack these sites, as a bare encoder lacks `logits`; otherwise that is an
            error.
        bits, symmetric, granularity, estimator, dynamic, format: as in `TensorSpec`; None leaves them
            unchanged.
    """

    sites: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    off: bool = False
    optional: bool = False
    bits: int | None = None
    symmetric: bool | None = None
    granularity: Granularity | None = None
    estimator: Estimator | None = None
    dynamic: bool | None = None
    format: Format | None = None

    def __post_init__(self) -> None:
        check_texts("sites", self.sites)
        check_texts("roles", self.roles)
        check_flag("off", self.off)
        check_flag("optional", self.optional)
        self._check_changes()
        if not self.sites and not self.roles:
            raise SpecError("an override names neither sites nor roles; say where it applies")
        if self.off and self.changes():
            changed = ", ".join(self.changes())
            raise SpecError(f"an override cannot turn sites off and set {changed}; keep one of the two")
        if not self.off and not self.changes():
            raise SpecError(
                "an override changes nothing; set off, bits, symmetric, granularity, estimator, dynamic or "
                "format"
            )

    def _check_changes(self) -> None:
        """Refuse values that `TensorSpec` would refuse on their own."""
        if self.bits is not None:
            check_integer("bits", self.bits, 2, 16)
        if self.symmetric is not None:
            check_flag("symmetric", self.symmetric)
        if self.granularity is not None:
            check_variant("granularity", self.granularity, Granularity)
        if self.estimator is not None:
            check_variant("estimator", self.estimator, Estimator)
        if self.dynamic is not None:
            check_flag("dynamic", self.dynamic)
        if self.format is not None:
            check_variant("format", self.format, Format)

    def changes(self) -> dict[str, int | bool | Granularity | Estimator | Format]:
        """Return the fields of `TensorSpec` that this override sets, in their order there."""
        values = {
            "bits": self.bits,
            "symmetric": self.symmetric,
            "granularity": self.granularity,
            "estimator": self.estimator,
            "dynamic": self.dynamic,
            "format": self.format,
        }
        return {field: value for field, value in values.items() if value is not None}

    def applies(self, site: str, role: str = "") -> bool:
        """Say whether this override speaks of the site with this name and role."""
        return role in self.roles or any(fnmatchcase(site, pattern) for pattern in self.sites)

    def apply(self, spec: TensorSpec | None, kind: Kind) -> TensorSpec | None:
        """Return `spec` with the changes made; None (float) starts from the default of its kind."""
        if self.off:
            return None
        return replace(spec or DEFAULTS[kind], **self.changes())  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is quantized, and how.

    Arguments:
        name: short name, used in reports.
        description: one line for people.
        placement: which activation sites are covered: `full`, the paper's, or `linear-inputs`.
        weights: spec of every weight; None leaves weights in float.
        activations: spec of every activation; None leaves activations in float.
        overrides: changes for some sites, applied in order.
        passes: what else is done to the model, in order (see `octavo.spec.passes`).
    """

    name: str
    description: str = ""
    placement: Placement = "full"
    weights: TensorSpec | None
    activations: TensorSpec | None
    overrides: tuple[Override, ...] = ()
    passes: tuple[Pass, ...] = ()

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_text("description", self.description)
        if not self.name:
            raise SpecError("name is empty; give the recipe a name")
        _check_placement(self.placement)
        _check_base("weights", self.weights)
        _check_base("activations", self.activations)
        _check_overrides(self.overrides)
        check_passes(self.passes)
        if self.weights is not None and self.weights.dynamic:
            raise SpecError(
                "weights: dynamic ranges are for activations, weights do not change; drop dynamic"
            )
        if not self.weights and not self.activations and not any(o.changes() for o in self.overrides):
            raise SpecError(
                f"recipe '{self.name}' quantizes nothing; give weights, activations or an override a spec"
            )

    def spec(self, site: str, kind: Kind, role: str = "") -> TensorSpec | None:
        """Return the spec of one site, or None if it stays in float.

        Arguments:
            site: name of the site, such as `layers.10.ffn_residual` or `layers.10.ffn_output.weight`.
            kind: whether the site is a weight or an activation.
            role: role of the site, for overrides by role.
        """
        result = self.weights if kind == "weight" else self.activations
        for position, override in enumerate(self.overrides):
            if override.applies(site, role):
                try:
                    result = override.apply(result, kind)
                except SpecError as error:
                    raise SpecError(f"overrides[{position}] at {site}: {error}") from error
        if kind == "weight" and result is not None and result.dynamic:
            raise SpecError(
                f"{site}: dynamic ranges are for activations; narrow the override that sets dynamic"
            )
        if kind == "weight" and result is not None and result.estimator.activations_only:
            raise SpecError(
                f"{site}: {result.estimator} finds ranges of activations only; "
                "use MinMax() or Mse() for weights"
            )
        return result

    @property
    def training(self) -> RangeTraining:
        """What happens to ranges in quantization-aware training; they are learned unless a pass says more."""
        return next((entry for entry in self.passes if isinstance(entry, RangeTraining)), LearnedRanges())

    def patterns(self) -> tuple[str, ...]:
        """Return every site pattern that a model must have, in order and without repetition."""
        overrides = [override.sites for override in self.overrides if not override.optional]
        passes = [entry.patterns() for entry in self.passes]
        return tuple(dict.fromkeys(pattern for patterns in (*overrides, *passes) for pattern in patterns))

    def roles(self) -> tuple[str, ...]:
        """Return every role that a model must have, in order and without repetition."""
        overrides = [override.roles for override in self.overrides if not override.optional]
        passes = [entry.roles_needed() for entry in self.passes]
        return tuple(dict.fromkeys(role for roles in (*overrides, *passes) for role in roles))


def _check_placement(placement: object) -> None:
    known: tuple[str, ...] = get_args(Placement)
    if placement not in known:
        hint = did_you_mean(placement, known) if isinstance(placement, str) else ""
        raise SpecError(f"placement must be {' or '.join(map(repr, known))}, got {shown(placement)}{hint}")


def _check_base(field: str, spec: object) -> None:
    if spec is not None and not isinstance(spec, TensorSpec):
        raise SpecError(f"{field} must be a TensorSpec, or None for float, got {shown(spec)}")


def _check_overrides(overrides: object) -> None:
    if not isinstance(overrides, tuple) or not all(isinstance(entry, Override) for entry in overrides):
        raise SpecError(f"overrides must be a tuple of Override, got {shown(overrides)}")
