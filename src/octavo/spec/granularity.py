"""Granularity: which entries of a tensor share one scale and zero-point (section 4, figure 4 of the paper).

For an activation of shape (batch, tokens, d) and a weight of shape (out, in):

| type            | activation               | weight                       |
|-----------------|--------------------------|------------------------------|
| `PerTensor`     | 1 range                  | 1 range                      |
| `PerChannel(0)` | one per entry of axis 0  | `out` ranges, one per row    |
| `PerToken`      | batch x tokens (dynamic) | senseless                    |
| `PerEmbedding`  | d ranges                 | `in` ranges, one per column  |
| `PerGroup(K)`   | K ranges along d         | K ranges, each for some rows |

What others need to know of a granularity it says itself; nobody keeps a list of granularities elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, shown
from octavo.spec.variant import Variant

Sizes = Literal["even", "optimal"]
"""How large groups are: all alike, or as the ranges of their channels ask for."""


class Tensor(Protocol):
    """What a granularity asks of the tensor it is for; a site answers."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def shape(self) -> tuple[int | str, ...]: ...
    @property
    def channel_axis(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Granularity(Variant, family="granularity"):
    """Which entries of a tensor share a range.

    Properties of the variant:
        has_one_scale: a tensor has a single scale, which any kernel can take.
        is_per_token: ranges belong to tokens, which differ in every batch, so that only dynamic ranges do.
        has_groups: channels are in groups, which the pass `split-groups` turns into tensors of their own.
    """

    has_one_scale: ClassVar[bool] = False
    is_per_token: ClassVar[bool] = False
    has_groups: ClassVar[bool] = False

    @property
    def permutes(self) -> bool:
        """Whether channels are grouped by ranges that calibration finds."""
        return False

    @property
    def shares_order(self) -> bool:
        """Whether the permuted sites of a layer take one order of channels."""
        return False

    @property
    def has_optimal_sizes(self) -> bool:
        """Whether calibration also finds how large each group is."""
        return False

    @property
    def takes_fewer(self) -> bool:
        """Whether a tensor may have fewer groups than were asked for."""
        return False

    def layout(self, tensor: Tensor) -> tuple[int | None, int]:
        """Return the axis along which ranges differ (None: nowhere) and how many ranges there are.

        A tensor that this granularity does not fit (an axis that varies, too many groups) is an error.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PerTensor(Granularity, name="per-tensor"):
    """One range for the whole tensor."""

    has_one_scale: ClassVar[bool] = True

    def layout(self, tensor: Tensor) -> tuple[int | None, int]:
        """Return one range, along no axis."""
        return None, 1


@dataclass(frozen=True, kw_only=True)
class PerChannel(Granularity, name="per-channel"):
    """One range for every index along `axis`; axis 0 of a weight counts its output channels."""

    axis: int = 0

    def __post_init__(self) -> None:
        # The last axis has a name of its own, PerEmbedding, so that there is one way to say it.
        check_integer("axis", self.axis, 0)

    def layout(self, tensor: Tensor) -> tuple[int | None, int]:
        """Return the axis and its size."""
        return self.axis, axis_size(tensor, self.axis, self.variant_name)


@dataclass(frozen=True, kw_only=True)
class PerToken(Granularity, name="per-token"):
    """One range for every token, computed from the tensor itself; needs `dynamic`."""

    is_per_token: ClassVar[bool] = True

    def layout(self, tensor: Tensor) -> tuple[int | None, int]:
        """Return no static range."""
        if tensor.kind == "weight":
            raise SpecError(f"per-token: {tensor.name} is a weight and has no tokens; use per-channel")
        return None, 0


@dataclass(frozen=True, kw_only=True)
class PerEmbedding(Granularity, name="per-embedding"):
    """One range for every index along the last axis: per-embedding, d ranges."""

    def layout(self, tensor: Tensor) -> tuple[int | None, int]:
        """Return the channel axis and its size."""
        return tensor.channel_axis, axis_size(tensor, tensor.channel_axis, self.variant_name)


@dataclass(frozen=True, kw_only=True)
class PerGroup(Granularity, name="per-group"):
    """One range for each of K groups of channels: per-embedding-group (PEG), section 4.

    Groups run along the last axis of an activation and along axis 0 (rows) of a weight, as in Q-BERT.

    Arguments:
        groups: how many groups, K.
        permute: sort channels by their range first, so that outliers share a group.
        shared: one permutation per layer for all its permuted sites; False: one per tensor.
        at_most: take as many groups as there are channels (with optimal sizes: distinct ranges) where a
            tensor has fewer than K; otherwise an error.
        sizes: `even`, the paper's, differ by at most one; `optimal` cuts the sorted channels where the
            expected noise is least, so that a few outliers may be a group and all the rest another.
    """

    has_groups: ClassVar[bool] = True

    groups: int
    permute: bool = False
    shared: bool = True
    at_most: bool = False
    sizes: Sizes = "even"

    def __post_init__(self) -> None:
        check_integer("groups", self.groups, 1)
        check_flag("permute", self.permute)
        check_flag("shared", self.shared)
        check_flag("at_most", self.at_most)
        if not self.shared and not self.permute:
            raise SpecError("shared: false does nothing without a permutation; add permute: true or drop it")
        if self.sizes not in get_args(Sizes):
            raise SpecError(f"sizes must be {' or '.join(get_args(Sizes))}, got {shown(self.sizes)}")
        if self.has_optimal_sizes and not self.permute:
            raise SpecError(
                "sizes: optimal cuts channels sorted by their range; add permute: true or drop it"
            )

    @property
    def permutes(self) -> bool:
        """Whether channels are grouped by ranges that calibration finds."""
        return self.permute

    @property
    def shares_order(self) -> bool:
        """Whether the permuted sites of a layer take one order of channels."""
        return self.shared

    @property
    def has_optimal_sizes(self) -> bool:
        """Whether calibration also finds how large each group is."""
        return self.sizes == "optimal"

    @property
    def takes_fewer(self) -> bool:
        """Whether a tensor may have fewer groups than were asked for."""
        return self.at_most

    def layout(self, tensor: Tensor) -> tuple[int | None, int]:
        """Return the channel axis (the rows of a weight) and the number of groups."""
        if self.permute and tensor.kind == "weight":
            raise SpecError(
                f"per-group: {tensor.name} is a weight, only activations are permuted; drop permute"
            )
        axis = 0 if tensor.kind == "weight" else tensor.channel_axis
        width = axis_size(tensor, axis, self.variant_name)
        if self.groups > width and not self.at_most:
            raise SpecError(
                f"per-group: {self.groups} groups asked for {tensor.name}, width {width}; use at most {width}"
            )
        return axis, min(self.groups, width)


def axis_size(tensor: Tensor, axis: int, asked_by: str) -> int:
    """Return the size of an axis; one that is missing or varies is an error that says who asked."""
    if not -len(tensor.shape) <= axis < len(tensor.shape):
        raise SpecError(f"{asked_by}: {tensor.name} has {len(tensor.shape)} axes, axis {axis} asked for")
    size = tensor.shape[axis]
    if not isinstance(size, int):
        raise SpecError(
            f"{asked_by}: axis {axis} of {tensor.name} is the {size}, which varies; use per-tensor there"
        )
    return size


GRANULARITIES = Granularity.variants()
"""Every granularity by its name in recipe files."""
