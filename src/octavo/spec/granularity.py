"""Granularity: which entries of a tensor share one scale and zero-point (section 4, figure 4 of the paper).

For an activation of shape (batch, tokens, d) and a weight of shape (out, in):

| type            | activation               | weight                       |
|-----------------|--------------------------|------------------------------|
| `PerTensor`     | 1 range                  | 1 range                      |
| `PerChannel(0)` | one per entry of axis 0  | `out` ranges, one per row    |
| `PerToken`      | batch x tokens (dynamic) | senseless                    |
| `PerEmbedding`  | d ranges                 | `in` ranges, one per column  |
| `PerGroup(K)`   | K ranges along d         | K ranges, each for some rows |
| `Folded`        | 1 range, d factors       | senseless                    |
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_number


@dataclass(frozen=True, kw_only=True)
class PerTensor:
    """One range for the whole tensor."""


@dataclass(frozen=True, kw_only=True)
class PerChannel:
    """One range for every index along `axis`; axis 0 of a weight counts its output channels."""

    axis: int = 0

    def __post_init__(self) -> None:
        # The last axis has a name of its own, PerEmbedding, so that there is one way to say it.
        check_integer("axis", self.axis, 0)


@dataclass(frozen=True, kw_only=True)
class PerToken:
    """One range for every token, computed from the tensor itself; needs `dynamic`."""


@dataclass(frozen=True, kw_only=True)
class PerEmbedding:
    """One range for every index along the last axis: per-embedding, d ranges."""


@dataclass(frozen=True, kw_only=True)
class PerGroup:
    """One range for each of K groups of channels: per-embedding-group (PEG), section 4.

    Groups run along the last axis of an activation and along axis 0 (rows) of a weight, as in Q-BERT;
    their sizes differ by at most one.

    Arguments:
        groups: how many groups, K.
        permute: sort channels by their range first, so that outliers share a group.
        shared: one permutation per layer for all its permuted sites; False: one per tensor.
        at_most: take as many groups as there are channels where a tensor has fewer than K; otherwise an
            error.
    """

    groups: int
    permute: bool = False
    shared: bool = True
    at_most: bool = False

    def __post_init__(self) -> None:
        check_integer("groups", self.groups, 1)
        check_flag("permute", self.permute)
        check_flag("shared", self.shared)
        check_flag("at_most", self.at_most)
        if not self.shared and not self.permute:
            raise SpecError("shared: false does nothing without a permutation; add permute: true or drop it")


@dataclass(frozen=True, kw_only=True)
class Folded:
    """One range for a tensor whose channels were divided by `range ** power` each.

    The factors are folded into the norm before it and the weights that read it, so that integer kernels see
    one range: scales per embedding dimension for free. Only linear layers may read such a site.

    Arguments:
        power: 0 leaves channels as they are, 1 makes their ranges equal; between, activations and weights
            share the burden (SmoothQuant's alpha, of activations alone).
    """

    power: float = 0.5

    def __post_init__(self) -> None:
        check_number("power", self.power)
        if not 0 < self.power <= 1:
            raise SpecError(f"power must be a number above 0 and at most 1, got {self.power}")


Granularity = PerTensor | PerChannel | PerToken | PerEmbedding | PerGroup | Folded

GRANULARITIES: dict[str, type[Granularity]] = {
    "per-tensor": PerTensor,
    "per-channel": PerChannel,
    "per-token": PerToken,
    "per-embedding": PerEmbedding,
    "per-group": PerGroup,
    "folded": Folded,
}
"""Every granularity by its name in recipe files."""
