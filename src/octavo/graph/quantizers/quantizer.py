"""Quantizers: modules that stand at the sites of a graph, one state machine for weights and activations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor, nn

from octavo.errors import CalibrationError, SpecError
from octavo.graph.quantizers.ranges import FLOATS, Layout, make_estimator
from octavo.graph.sites.site import Site
from octavo.numerics import (
    Affine,
    RangeEstimator,
    affine_from_range,
    broadcast,
    by_channel,
    dequantize,
    fake_quantize,
    min_max,
    quantize,
)
from octavo.numerics.affine import SMALLEST_SCALE
from octavo.numerics.blocks import fake_quantize_in_blocks
from octavo.numerics.float8 import (
    fake_float8,
    float8_codes,
    float8_from_range,
    float8_values,
    learned_float8,
    straight_through_float8,
)
from octavo.numerics.learned import learned_fake_quantize, zero_point_of
from octavo.numerics.min_max import NotFiniteError
from octavo.numerics.straight_through import straight_through
from octavo.spec import TensorSpec


class State(Enum):
    """What a quantizer does with the tensor that passes."""

    OFF = "off"
    OBSERVE = "observe"
    FIX = "fix"
    LEARN = "learn"


class Quantizer(nn.Module):
    """Quantizes one site by one spec.

    OBSERVE watches ranges and passes the float tensor on; FIX quantizes with the ranges found (or, if the
    spec is dynamic, with those of the tensor itself); LEARN does so with ranges that take gradients; OFF
    passes everything.

    Attributes:
        scale: (groups,) float32; zero_point: (groups,) int32; index: (channels,) the group of every channel.
    """

    scale: Tensor
    zero_point: Tensor
    index: Tensor
    constant: Tensor | None
    limits: Tensor | None

    def __init__(self, site: Site, spec: TensorSpec) -> None:
        super().__init__()
        self.site = site
        self.spec = spec
        self._state = State.OBSERVE
        self.inplace = False  # set where the graph proves that nothing else reads the input's memory
        self.float8 = FLOATS.get(type(spec.format))  # None for grids of integers
        self.low, self.high = 0, 0
        self._offset: int | None = (
            None  # a single zero-point as a number, which the forward pass reads faster
        )
        self._estimator: RangeEstimator | None = None
        self._importance: Tensor | None = None
        self.register_buffer("scale", torch.empty(0))
        self.register_buffer("zero_point", torch.empty(0, dtype=torch.int32))
        self.register_buffer("constant", None, persistent=False)
        self.log_scale: nn.Parameter | None = None
        self.shift: nn.Parameter | None = None
        self.register_buffer("limits", None)
        self.momentum: float | None = None
        self.gradient_scaling = False
        self.set_layout(Layout.of(site, spec))

    def set_layout(self, layout: Layout) -> None:
        """Group the channels anew (a permutation was found) and forget what was observed."""
        self.axis = layout.axis
        self.register_buffer("index", layout.index.to(self.scale.device))
        self._estimator = None

    @property
    def state(self) -> State:
        """What the quantizer does with the tensor that passes; only its own methods change it."""
        return self._state

    @property
    def has_range(self) -> bool:
        """Whether a static range was found or loaded."""
        return self.scale.numel() > 0

    # -- forward ---------------------------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        if self._state is State.OFF:
            return x
        if self._state is State.OBSERVE:
            self.observe(x)
            return x
        if self.constant is not None and not (
            self.training and x.requires_grad
        ):  # a weight that learns moves
            return self.constant
        if self._state is State.LEARN:
            return self._learned(x)
        affine = self._dynamic_affine(x) if self.spec.dynamic else self.affine()
        scale, zero_point = self._spread(affine, x.dim())
        if self.float8 is not None:
            differentiable = torch.is_grad_enabled() and x.requires_grad
            return (straight_through_float8 if differentiable else fake_float8)(x, scale, self.float8)
        if (
            torch.is_grad_enabled() and x.requires_grad
        ):  # the gradient of rounding is zero; pass it straight through
            return straight_through(x, scale, zero_point, affine.low, affine.high)
        offset = zero_point if self._offset is None or self.spec.dynamic else self._offset
        return fake_quantize_in_blocks(x, scale, offset, affine.low, affine.high, inplace=self.inplace)

    def affine(self) -> Affine:
        """The static grid, one entry per group."""
        if not self.has_range:
            raise CalibrationError(f"{self.site.name} has no range; calibrate the model first")
        return Affine(scale=self.scale, zero_point=self.zero_point, low=self.low, high=self.high)

    def per_channel(self, ndim: int) -> tuple[Tensor, Tensor]:
        """Static scale and zero-point, shaped to broadcast against a tensor of `ndim` dimensions."""
        return self._spread(self.affine(), ndim)

    def _spread(self, affine: Affine, ndim: int) -> tuple[Tensor, Tensor]:
        if self.spec.dynamic and affine.scale.dim() == ndim:  # per token: shaped already
            return affine.scale, affine.zero_point
        if self.axis is None:
            return affine.scale.reshape(()), affine.zero_point.reshape(())
        return (
            broadcast(affine.scale[self.index], ndim, self.axis),
            broadcast(affine.zero_point[self.index], ndim, self.axis),
        )

    def integers(self, x: Tensor) -> Tensor:
        """The integers of eq. 1 for a tensor at this site, int32; a floating-point format has none."""
        require_integers((self,), "this")
        scale, zero_point = self.per_channel(x.dim())
        return quantize(x, scale, zero_point, self.low, self.high).to(torch.int32)

    def codes(self, x: Tensor) -> Tensor:
        """What is stored of a tensor at this site, int32: its integers, or the bytes of its format."""
        if self.float8 is None:
            return self.integers(x)
        return float8_codes(x, self.per_channel(x.dim())[0], self.float8)

    def decode(self, codes: Tensor) -> Tensor:
        """The real numbers that stored codes stand for."""
        scale, zero_point = self.per_channel(codes.dim())
        if self.float8 is None:
            return dequantize(codes, scale, zero_point)
        return float8_values(codes, scale, self.float8)

    def quantized(self, x: Tensor, affine: Affine) -> Tensor:
        """What another grid of this site's format would make of a tensor."""
        scale, zero_point = self._spread(affine, x.dim())
        if self.float8 is not None:
            return fake_float8(x, scale, self.float8)
        return fake_quantize(x, scale, zero_point, affine.low, affine.high)

    def grid_over(self, minimum: Tensor, maximum: Tensor, signed: bool | None = None) -> Affine:
        """The grid of this site's spec over a range, an entry per group.

        `signed` says whether a symmetric grid has negative integers; None looks at the range.
        """
        if self.float8 is not None:
            return float8_from_range(minimum, maximum, self.float8)
        return affine_from_range(minimum, maximum, self.spec.bits, self.spec.symmetric, signed=signed)

    # -- ranges ----------------------------------------------------------------------------------------------

    def rows(self, x: Tensor) -> Tensor:
        """A tensor at this site as (rows, channels): a row is a token, or a query of one head."""
        axis = self.site.channel_axis if self.axis is None else self.axis
        return x.movedim(axis, -1).reshape(-1, x.shape[axis])

    def observe(self, x: Tensor) -> None:
        """Take a piece of a batch into the range estimate.

        NaN and infinity go into it as well, and are refused when it is asked for: to look at every tensor
        would make a GPU wait at every site.
        """
        if self.spec.dynamic:
            return
        if self._estimator is None:
            self._estimator = make_estimator(self.spec, self._observed_index(), self._importance)
        try:
            self._estimator.observe(self._as_observed(x, self._estimator))
        except NotFiniteError as error:
            raise error.at(self.site.name) from error

    def _as_observed(self, x: Tensor, estimator: RangeEstimator) -> Tensor:
        if estimator.reads_rows:
            return self.rows(x)
        by_dimension = self.axis is None and self._importance is not None
        return by_channel(x, self.site.channel_axis if by_dimension else self.axis)

    def weigh(self, importance: Tensor | None) -> None:
        """Let errors of each channel, (width,), count by its importance where the spec asks for it."""
        self._importance, self._estimator = importance, None

    def _observed_index(self) -> Tensor:
        """The group of every channel that is observed apart: all of them where their errors are weighed."""
        if self.axis is None and self._importance is not None:
            return self.index.new_zeros(len(self._importance))
        return self.index

    def commit(self) -> None:
        """Close a batch."""
        if self._estimator is not None:
            self._estimator.commit()

    def fix(self, affine: Affine | None = None) -> None:
        """Quantize from now on: with a grid found elsewhere, or else with the range that was observed."""
        if affine is not None:
            self.set_affine(affine)
            self._estimator = None
        elif self._estimator is not None:
            self.set_affine(self._estimated())
            self._estimator = None
        elif not self.spec.dynamic and not self.has_range:
            raise CalibrationError(f"{self.site.name} saw no data; give at least one calibration text")
        self.end_learning()
        self._state = State.FIX

    def _estimated(self) -> Affine:
        assert self._estimator is not None
        try:
            minimum, maximum = self._estimator.range()
        except NotFiniteError as error:
            raise error.at(self.site.name) from error
        return self.grid_over(minimum, maximum)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Pass everything, unobserved, inside the block (see `switched_off` for several at once)."""
        before, self._state = self._state, State.OFF
        try:
            yield
        finally:
            self._state = before

    def turn_off(self) -> None:
        """Pass everything from now on; what was learned is kept as the range."""
        self.end_learning()
        self._state = State.OFF

    def take_state(self, other: Quantizer) -> None:
        """Do what another quantizer does, of which this one was cut."""
        self._state = other.state

    def keep(self, value: Tensor | None) -> None:
        """Answer with this tensor, a weight that is on the grid already; None quantizes at every call."""
        self.constant = None if value is None else value.detach()

    def set_affine(self, affine: Affine) -> None:
        """Use a grid found elsewhere: loaded, searched or learned."""
        self.scale, self.zero_point = affine.scale, affine.zero_point
        self.low, self.high = affine.low, affine.high
        self._offset = int(affine.zero_point) if affine.zero_point.numel() == 1 else None

    def _dynamic_affine(self, x: Tensor) -> Affine:
        """The grid of this very tensor; per token it has one entry per position, (..., 1)."""
        per_token = self.spec.granularity.is_per_token
        rows = x.detach().reshape(-1, x.shape[-1]) if per_token else by_channel(x.detach(), self.axis)
        index = torch.arange(len(rows), device=x.device) if per_token else self.index
        estimator = make_estimator(self.spec, index)
        estimator.observe(rows)
        try:
            ends = estimator.range()
        except CalibrationError as error:
            raise CalibrationError(f"{self.site.name}: {error}") from error
        minimum, maximum = (end.reshape(*x.shape[:-1], 1) for end in ends) if per_token else ends
        return self.grid_over(minimum, maximum, signed=self.spec.symmetric)

    # -- learning --------------------------------------------------------------------------------------------

    def learn(
        self, *, trainable: bool = True, momentum: float | None = None, gradient_scaling: bool = False
    ) -> None:
        """Round straight-through; scale and (if the spec is asymmetric) zero-point take gradients.

        Arguments:
            trainable: False keeps the range as it is while gradients pass.
            momentum: follow the minimum and maximum of the tensors in training instead of learning; 0 takes
                the range of the last tensor.
            gradient_scaling: divide the range's gradients by sqrt(members * high), as LSQ does.
        """
        if self.spec.dynamic:
            raise SpecError(f"{self.site.name}: dynamic ranges cannot be learned; use a static spec")
        self.end_learning()  # go on from what was learned before
        affine = self.affine()
        learns = trainable and momentum is None
        self.log_scale = nn.Parameter(affine.scale.log(), requires_grad=learns)
        if not self.spec.symmetric:
            share = affine.zero_point.to(affine.scale.dtype) / (self.high - self.low)
            self.shift = nn.Parameter(share, requires_grad=learns)
        self.gradient_scaling, self.momentum = gradient_scaling, momentum
        self.limits = None if momentum is None else self._ends(affine)
        self.constant = None
        self._state = State.LEARN

    def end_learning(self) -> None:
        """Take what was learned as the fixed range."""
        if self.log_scale is None:
            return
        with torch.no_grad():
            zero = self.zero_point
            if self.shift is not None:
                zero = torch.as_tensor(zero_point_of(self.shift, self.low, self.high)).int()
            scale = self.log_scale.detach().exp().clamp(min=SMALLEST_SCALE)
            self.set_affine(Affine(scale=scale, zero_point=zero, low=self.low, high=self.high))
        self.log_scale = self.shift = self.limits = None

    def _learned(self, x: Tensor) -> Tensor:
        assert self.log_scale is not None
        if self.limits is not None and self.training:
            self._follow(x.detach())
        log_scale: Tensor = self.log_scale
        shift: Tensor | None = self.shift
        if self.axis is not None:
            log_scale = broadcast(log_scale[self.index], x.dim(), self.axis)
            shift = None if shift is None else broadcast(shift[self.index], x.dim(), self.axis)
        factor = (x.numel() / self.log_scale.numel() * self.high) ** -0.5 if self.gradient_scaling else 1.0
        if self.float8 is not None:
            return learned_float8(x, log_scale, self.float8, factor)
        return learned_fake_quantize(x, log_scale, shift, self.low, self.high, factor)

    def _ends(self, affine: Affine) -> Tensor:
        """Minimum and maximum of a grid, (2, groups)."""
        low, high = affine.low - affine.zero_point, affine.high - affine.zero_point
        return torch.stack((low * affine.scale, high * affine.scale))

    def _follow(self, x: Tensor) -> None:
        """Move the range towards that of a tensor; nothing here waits for the device."""
        assert self.limits is not None and self.momentum is not None and self.log_scale is not None
        with torch.no_grad():
            seen = torch.stack(min_max(by_channel(x, self.axis), self.index, self.log_scale.numel()))
            self.limits.lerp_(seen, 1 - self.momentum)
            signed = self.low < 0
            minimum, maximum = self.limits
            affine = self.grid_over(minimum, maximum, signed=signed)
            self.log_scale.copy_(affine.scale.log())
            if self.shift is not None:
                self.shift.copy_(affine.zero_point / (self.high - self.low))

    def extra_repr(self) -> str:
        return f"{self.site.name}, {self.spec.bits} bits, {self.state.value}"


def require_integers(quantizers: Iterable[Quantizer], doer: str) -> None:
    """Refuse sites whose format is not integers, naming who needs them."""
    for quantizer in quantizers:
        if quantizer.float8 is not None:
            raise SpecError(
                f"{quantizer.site.name} has the format {quantizer.spec.format.variant_name}, and {doer} "
                "works on integers; use format integer there, or leave it out"
            )
