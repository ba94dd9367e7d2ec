"""Statistics of every activation site in two passes: ranges and moments first, then what depends on them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.moments import Moments
from octavo.diagnosis.watch import Batch, Places
from octavo.errors import ModelError
from octavo.graph import Site
from octavo.numerics import Affine, affine_from_range, fake_quantize

SIGMAS = 6.0
"""Values further from the mean than this many standard deviations are outliers, as in the paper's figures."""
BITS = 8


@dataclass(frozen=True, kw_only=True)
class SiteStatistics:
    """What one activation tensor looks like over all texts.

    kurtosis is 3 for a normal distribution; beyond is the share of values beyond 6 standard deviations.
    sqnr_db is the signal to quantization noise ratio of the tensor at 8 bits per tensor with its full range;
    typical_sqnr_db that of its median dimension (along the last axis), which outliers cannot flatter.
    """

    name: str
    role: str
    shape: tuple[int | str, ...]
    minimum: float
    maximum: float
    mean: float
    std: float
    kurtosis: float
    beyond: float
    sqnr_db: float
    typical_sqnr_db: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite ratio (no error at all) becomes None."""
        plain = asdict(self) | {"shape": list(self.shape)}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


@dataclass(eq=False)
class Channels:
    """Per dimension of a site's last axis, (width,) each: range and number of texts it is an outlier in."""

    minimum: Tensor
    maximum: Tensor
    texts: Tensor

    @property
    def span(self) -> Tensor:
        """maximum - minimum."""
        return self.maximum - self.minimum


class Ranges:
    """First pass: moments of every site and the range of each of its dimensions."""

    def __init__(self) -> None:
        self.moments: dict[str, Moments] = {}
        self.channels: dict[str, Channels] = {}

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Take a tensor into the statistics; NaN and infinity are errors."""
        if not bool(torch.isfinite(x).all()):
            raise ModelError(
                f"{site.name} holds NaN or infinity for text {places[0] + 1}; the model cannot be diagnosed"
            )
        self.moments.setdefault(site.name, Moments()).add(x)
        if site.width is None:
            return
        rows = x.reshape(-1, site.width)
        low, high = rows.amin(0), rows.amax(0)
        known = self.channels.get(site.name)
        if known is None:
            zeros = torch.zeros(site.width, dtype=torch.long, device=x.device)
            # copies: the minimum of one row is a view of the row
            self.channels[site.name] = Channels(low.clone(), high.clone(), zeros)
        else:
            known.minimum, known.maximum = (
                torch.minimum(known.minimum, low),
                torch.maximum(known.maximum, high),
            )


class Errors:
    """Second pass: outliers by the sigma, and the error of 8 bits over the range, of the first."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._grids = {name: _grid(moments) for name, moments in ranges.moments.items()}
        self._beyond: dict[str, int] = {}
        self._power: dict[str, tuple[Tensor, Tensor]] = {}  # (signal, noise), (width,) each or (1,)

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Count outliers and add up signal and noise."""
        hits = outliers(x, self._ranges.moments[site.name])
        self._beyond[site.name] = self._beyond.get(site.name, 0) + int(hits.sum())
        channels = self._ranges.channels.get(site.name)
        if channels is not None:
            channels.texts += hits.reshape(len(x), -1, hits.shape[-1]).any(1).sum(0)
        grid = self._grids[site.name]
        noise = x - fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)
        power = (_power(x, site.width), _power(noise, site.width))
        before = self._power.get(site.name)
        self._power[site.name] = power if before is None else (before[0] + power[0], before[1] + power[1])

    def statistics(self, site: Site) -> SiteStatistics:
        """Everything known about a site."""
        moments = self._ranges.moments[site.name]
        signal, noise = self._power[site.name]
        each = [_decibels(s, n) for s, n in zip(signal.tolist(), noise.tolist(), strict=True)]
        return SiteStatistics(
            name=site.name,
            role=site.role,
            shape=site.shape,
            minimum=moments.minimum,
            maximum=moments.maximum,
            mean=moments.mean,
            std=moments.std,
            kurtosis=moments.kurtosis,
            beyond=self._beyond[site.name] / moments.count,
            sqnr_db=_decibels(float(signal.sum()), float(noise.sum())),
            typical_sqnr_db=sorted(each)[len(each) // 2],
        )


def outliers(x: Tensor, moments: Moments) -> Tensor:
    """Where a tensor lies beyond 6 standard deviations from the mean of its site, bool of its shape."""
    return (x - moments.mean).abs() > SIGMAS * moments.std


def ranked(statistics: dict[str, SiteStatistics]) -> list[SiteStatistics]:
    """Sites from worst to best by the error of their median dimension."""
    return sorted(statistics.values(), key=lambda s: (s.typical_sqnr_db, s.sqnr_db))


def _grid(moments: Moments) -> Affine:
    low, high = torch.tensor(moments.minimum), torch.tensor(moments.maximum)
    return affine_from_range(low, high, BITS, symmetric=False)


def _power(x: Tensor, width: int | None) -> Tensor:
    return x.square().reshape(-1, width or 1).sum(0, dtype=torch.float64) if width else _total(x)


def _total(x: Tensor) -> Tensor:
    return x.square().sum(dtype=torch.float64).reshape(1)


def _decibels(signal: float, noise: float) -> float:
    if noise <= 0.0:
        return math.inf
    return 10 * math.log10(max(signal, 1e-300) / noise)
