"""What a change of channels costs: the error of what reads them, with tensors and weights on their grids.

Measured on a sample of tokens and of each layer's outputs: the outputs of a linear layer are alike, so that a
hundred of them tell what all would. No candidate needs a pass through the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.rewrites.channels import Channels, Reader
from octavo.graph.rewrites.fold import Change
from octavo.methods.equalization.observing import Observed
from octavo.numerics import affine_from_range, fake_quantize
from octavo.numerics.equalization import relative_errors

OUTPUTS = 96
"""Outputs of each linear layer that errors are measured on."""

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Of a weight's range, tried where its estimator clips."""

SPREAD = 0.25
"""Σp² of a token's attention: the share of the values' noise that is left in their average."""


class Costs:
    """The error that changes of some channels make, in one half of the texts, ranges being the other's."""

    def __init__(
        self, model: QuantizedEncoder, channels: Channels, seen: Mapping[str, Observed], half: int
    ) -> None:
        self.channels = channels
        self.samples = {name: seen[name].sample(half).float() for name in channels.sites}
        self.extremes = {name: seen[name].extremes(1 - half) for name in channels.sites}
        self.quantizers = {name: model.quantizers[name] for name in channels.sites}
        self.layers = [_Layer(model, reader) for reader in channels.readers]
        read = channels.read
        self.expected = [] if read is None else [layer(self.samples[read]) for layer in self.layers]
        self.met = {name: self._met(name) for name in channels.sites} if channels.is_pair else {}

    def of(self, change: Change) -> float:
        """Return the error of what reads the channels after a change, relative to what it is."""
        if self.channels.is_pair:
            return self._of_scores(change)
        return self._of_values(change) + self._of_readers(change)

    def _of_readers(self, change: Change) -> float:
        """The error of linear layers: of their input, of their weights, and of the two together."""
        read = self.channels.read
        if read is None:
            return 0.0
        found = self._rounded(read, change)
        total = 0.0
        for layer, expected in zip(self.layers, self.expected, strict=True):
            target = expected if change.shift is None else expected - layer.offset(change.shift)
            total += float(relative_errors(layer.rounded(found, change.factor), target, expected))
        return total

    def _of_values(self, change: Change) -> float:
        """The error that rounded values leave in the layers behind their average."""
        values = [name for name in self.channels.sites if name != self.channels.read]
        total = 0.0
        for name in values:
            noise = _by_channel(self.channels, name, self._noise(name, change)) * change.factor.square()
            for layer, expected in zip(self.layers, self.expected, strict=True):
                total += SPREAD * float(
                    (noise @ layer.gains(self.channels.width)) / expected.square().sum(1).mean()
                )
        return total

    def _of_scores(self, change: Change) -> float:
        """The error of query · key, whose scores softmax reads as they are, great or small."""
        total = 0.0
        for name in self.samples:
            is_key = name in self.channels.keys
            own = Change(1 / change.factor, change.shift) if is_key else change  # of keys: (k - z) s
            noise = _by_channel(self.channels, name, self._noise(name, own))
            total += float((noise * self.met[name] * own.factor.square()).sum())
        return total

    def _met(self, site: str) -> Tensor:
        """The mean square of what each channel of a site is multiplied with, (width,).

        An error of a query meets keys, of which softmax does not see what all have in common.
        """
        is_key = site in self.channels.keys
        met = torch.zeros(self.channels.width)
        for other, rows in self.samples.items():
            if (other in self.channels.keys) is not is_key:
                met += _by_channel(self.channels, other, rows.square().mean(0) if is_key else rows.var(0))
        return met

    def _noise(self, site: str, change: Change) -> Tensor:
        """Return the mean square of what rounding adds to every element of a site, (elements,)."""
        return (
            (self._rounded(site, change) - self._changed(site, change, self.samples[site])).square().mean(0)
        )

    def _changed(self, site: str, change: Change, x: Tensor) -> Tensor:
        index = self.channels.sites[site]
        shifts = change.shift is not None and not (self.channels.is_pair and site not in self.channels.keys)
        centred = x - change.shift[index] if shifts and change.shift is not None else x
        return centred / change.factor[index]

    def _rounded(self, site: str, change: Change) -> Tensor:
        low, high = (self._changed(site, change, end) for end in self.extremes[site])
        ends = torch.minimum(low, high).min(), torch.maximum(low, high).max()
        return on_grid(self._changed(site, change, self.samples[site]), self.quantizers[site], *ends)


class _Layer:
    """A linear layer, some of whose outputs stand for all."""

    def __init__(self, model: QuantizedEncoder, reader: Reader) -> None:
        self.reader = reader
        weight = model.graph.get_parameter(reader.weight).detach().float().cpu()
        self.quantizer = quantizer_of(model, reader.weight)
        rows = torch.linspace(0, len(weight) - 1, min(OUTPUTS, len(weight))).long()
        self.weight = weight[rows]
        self.low, self.high = self._ends(weight, rows)

    def _ends(self, weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The least and largest weight of every column among the rows that share a grid, for each output."""
        if self.quantizer is None or (
            self.quantizer.axis == 0 and self.quantizer.index.unique().numel() == len(weight)
        ):
            return self.weight, self.weight
        if self.quantizer.axis != 0:
            return weight.amin(0, keepdim=True), weight.amax(0, keepdim=True)
        groups = self.quantizer.index.cpu()
        members = [weight[groups == groups[row]] for row in rows]
        return torch.stack([m.amin(0) for m in members]), torch.stack([m.amax(0) for m in members])

    def __call__(self, x: Tensor) -> Tensor:
        return self._elements(x) @ self.weight.T

    def _elements(self, x: Tensor) -> Tensor:
        elements = self.reader.elements
        in_order = torch.equal(elements, torch.arange(x.shape[1]))
        return x if in_order else x[:, elements]

    def offset(self, shift: Tensor) -> Tensor:
        """What the layer makes of a shift, which its bias takes."""
        return self.weight @ shift[self.reader.columns]

    def rounded(self, x: Tensor, factor: Tensor) -> Tensor:
        """What the layer makes of x, its weight multiplied by the factors and rounded."""
        factor = factor[self.reader.columns]
        weight = self.weight * factor
        if self.quantizer is not None:
            low, high = self.low * factor, self.high * factor
            least, largest = torch.minimum(low, high).amin(1), torch.maximum(low, high).amax(1)
            weight = _weight_on_grid(weight, self.quantizer, least[:, None], largest[:, None])
        return self._elements(x) @ weight.T

    def gains(self, width: int) -> Tensor:
        """The sum of squares of the column that each channel meets, (width,)."""
        return torch.zeros(width).index_add_(0, self.reader.columns, self.weight.square().sum(0))


def on_grid(x: Tensor, quantizer: Quantizer, low: Tensor, high: Tensor) -> Tensor:
    """Return values rounded as a quantizer would with the range from low to high."""
    spec = quantizer.spec
    if spec.dynamic and spec.granularity.is_per_token:
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    grid = affine_from_range(low, high, spec.bits, spec.symmetric)
    return fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)


def _weight_on_grid(weight: Tensor, quantizer: Quantizer, low: Tensor, high: Tensor) -> Tensor:
    """Return the rows of a weight rounded as its quantizer would, ranges being theirs.

    An estimator that clips cuts off columns that factors make large. Of shares of the range each row takes
    the one with its least squared error, which is near to what such an estimator finds, and quick.
    """
    if not quantizer.spec.estimator.clips:
        return on_grid(weight, quantizer, low, high)
    best, least = weight, torch.full((len(weight), 1), torch.inf)
    for share in SHARES:
        rounded = on_grid(weight, quantizer, low * share, high * share)
        error = (rounded - weight).square().sum(1, keepdim=True)
        best = torch.where(error < least, rounded, best)
        least = torch.minimum(error, least)
    return best


def _by_channel(channels: Channels, site: str, values: Tensor) -> Tensor:
    """Return the sum over the elements of every channel, (width,)."""
    return torch.zeros(channels.width).index_add_(0, channels.sites[site], values)


def quantizer_of(model: QuantizedEncoder, path: str) -> Quantizer | None:
    """Return the quantizer of the weight with this path; None where it is float."""
    site = next((site for site in model.weight_sites if path in site.targets), None)
    return None if site is None else model.quantizers.get(site.name)


def cost(costs: Sequence[Costs], change: Change) -> float:
    """Return the error of a change over all channels that take it."""
    return sum(each.of(change) for each in costs)
