"""Equalization: passes that make the channels of an activation alike, at the expense of weights.

| pass            | x becomes (x - z) / s with                                                |
|-----------------|---------------------------------------------------------------------------|
| `Fold`          | s = range ** power                                                        |
| `SmoothQuant`   | s = max|x| ** alpha / max|w| ** (1 - alpha)                               |
| `MigrateGamma`  | s = the weight of the norm that makes x                                   |
| `ShiftAndScale` | z = (max + min) / 2, s = max(1, max|x - z| / t), the threshold t searched |
| `Equalize`      | the best of these for each site                                           |

`Spill` makes a range small without touching weights: what exceeds it goes on in extra channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_number, check_positive, check_texts, shown
from octavo.spec.passes import Pass, Stage


@dataclass(frozen=True, kw_only=True)
class AtSites(Pass, abstract=True):
    """A pass that is done to some activations.

    Arguments:
        sites, roles: which activations, as in `Override`.
        skip_sites, skip_roles: which of these not.
        optional: the model may lack these sites; otherwise that is an error.
    """

    stage: ClassVar[Stage] = Stage.FLOAT

    sites: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    skip_sites: tuple[str, ...] = ()
    skip_roles: tuple[str, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        for name in ("sites", "roles", "skip_sites", "skip_roles"):
            check_texts(name, getattr(self, name))
        if not self.sites and not self.roles:
            raise SpecError(
                f"{self.variant_name} names neither sites nor roles; say which activations it is for"
            )
        check_flag("optional", self.optional)

    def applies(self, site: str, role: str) -> bool:
        """Say whether the pass is done to the site with this name and role."""
        skipped = role in self.skip_roles or any(fnmatchcase(site, pattern) for pattern in self.skip_sites)
        return not skipped and (role in self.roles or any(fnmatchcase(site, p) for p in self.sites))

    def patterns(self) -> tuple[str, ...]:
        """Return the site patterns that a model must have."""
        return () if self.optional else self.sites

    def roles_needed(self) -> tuple[str, ...]:
        """Return the roles that a model must have."""
        return () if self.optional else self.roles


@dataclass(frozen=True, kw_only=True)
class Equalization(AtSites, abstract=True):
    """Channels of activations are divided, and the weights that read them multiplied; variants say by what.

    The factors go into the norm or the linear layer before a site and into the linear layers after it, so
    that integer kernels see one range where there is a scale per embedding dimension: for free. Behind
    another function (GELU) they cost a multiplication. Value and context take one set of factors, and so do
    query and key. A site that something other than linear layers reads stays as it is, with a warning.

    Arguments:
        sites, roles, skip_sites, skip_roles, optional: which activations, as in `AtSites`.
    """


@dataclass(frozen=True, kw_only=True)
class Fold(Equalization, name="fold"):
    """Channels of activations are divided by `range ** power`, and the weights that read them multiplied.

    Arguments:
        sites, roles, skip_sites, skip_roles, optional: which activations, as in `Equalization`.
        power: 0 leaves channels as they are, 1 makes their ranges equal; between, activations and weights
            share the burden (SmoothQuant's alpha, of activations alone).
    """

    power: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("power", self.power)
        if not 0 < self.power <= 1:
            raise SpecError(f"power must be a number above 0 and at most 1, got {self.power}")


@dataclass(frozen=True, kw_only=True)
class SmoothQuant(Equalization, name="smooth-quant"):
    """Channels are divided by `max|x| ** alpha / max|w| ** (1 - alpha)`: weights count as well (SmoothQuant).

    Arguments:
        sites, roles, skip_sites, skip_roles, optional: which activations, as in `Equalization`.
        alpha: how much of the burden the weights take over.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha)
        if not 0 <= self.alpha <= 1:
            raise SpecError(f"alpha must be a number from 0 to 1, got {self.alpha}")


@dataclass(frozen=True, kw_only=True)
class MigrateGamma(Equalization, name="migrate-gamma"):
    """Norms give up their weight, which goes into the linear layers that read them (Outlier Suppression).

    Sites that no norm makes stay as they are, with a warning.

    Arguments:
        sites, roles, skip_sites, skip_roles, optional: which activations, as in `Equalization`.
    """


@dataclass(frozen=True, kw_only=True)
class ShiftAndScale(Equalization, name="shift-and-scale"):
    """Channels are centred, and those that reach past a threshold scaled down to it (Outlier Suppression+).

    The threshold is searched: the one with the least error of what reads the site. A shift goes into the bias
    of a norm or of a linear layer; where there is none to take it, that is an error.

    Arguments:
        sites, roles, skip_sites, skip_roles, optional: which activations, as in `Equalization`.
        shift: centre channels; without, they are scaled only.
        thresholds: how many are tried, from the largest value down.
        tokens: how many tokens of the calibration data the error is measured on.
    """

    shift: bool = True
    thresholds: int = 20
    tokens: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("shift", self.shift)
        check_integer("thresholds", self.thresholds, 1)
        check_integer("tokens", self.tokens, 2)


@dataclass(frozen=True, kw_only=True)
class Equalize(Equalization, name="equalize"):
    """The best of the other ways for each site: the one with the least error of what reads it.

    Tried are nothing, `range ** power`, SmoothQuant, a norm without its weight, and thresholds as in
    `ShiftAndScale`, each with a shift and without where one costs nothing and weights that read the site
    have 6 bits or more. Activations and weights are rounded as the recipe has them; ranges are those of one
    half of the texts, errors those of the other.

    Arguments:
        sites, roles, skip_sites, skip_roles, optional: which activations, as in `Equalization`.
        powers: of `Fold`.
        alphas: of `SmoothQuant`.
        thresholds: how many, as in `ShiftAndScale`.
        tokens: how many tokens of the calibration data the error is measured on.
        worth: a multiplication is added only where the error falls to less than this share.
    """

    powers: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    alphas: tuple[float, ...] = (0.5, 0.75)
    thresholds: int = 8
    tokens: int = 256
    worth: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("powers", "alphas"):
            values = getattr(self, name)
            if not isinstance(values, tuple):
                raise SpecError(f"{name} must be a list of numbers, got {shown(values)}")
            for value in values:
                check_number(name, value)
                if not 0 <= value <= 1:
                    raise SpecError(f"{name} must be numbers from 0 to 1, got {value}")
            object.__setattr__(self, name, tuple(float(value) for value in values))
        check_integer("thresholds", self.thresholds, 0)
        check_integer("tokens", self.tokens, 2)
        object.__setattr__(self, "worth", check_positive("worth", self.worth))
        if self.worth > 1:
            raise SpecError(f"worth must be a number above 0 and at most 1, got {self.worth:g}")


@dataclass(frozen=True, kw_only=True)
class Spill(AtSites, name="spill"):
    """What goes beyond a small range spills over into extra channels, so that no weight has to grow.

    A channel that reaches further than the range continues in a copy of itself that begins where it ends:
    v = clip(v) + clip(v - R) + ..., R being the range's width. Copies are rows of the linear layer before the
    site and columns of those after it. The range is the smallest that so many extra channels allow. A site
    that no linear layer makes, or that something other than linear layers reads, stays, with a warning.

    Arguments:
        sites, roles: which activations, as in `Override`.
        skip_sites, skip_roles: which of these not.
        optional: the model may lack these sites; otherwise that is an error.
        share: at most this share of the site's channels is added.
        margin: a channel has room for so many times the range that calibration saw, since texts to come reach
            further; a channel without a copy is cut off at the end of the range.
    """

    share: float = 1 / 64
    margin: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("share", self.share)
        if not 0 < self.share <= 1:
            raise SpecError(f"share must be a number above 0 and at most 1, got {self.share}")
        check_number("margin", self.margin)
        if self.margin < 1:
            raise SpecError(f"margin must be a number of at least 1, got {self.margin}")
