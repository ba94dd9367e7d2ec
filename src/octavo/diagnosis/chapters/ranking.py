"""Chapter: where 8 bits hurt. Statistics of every activation site, ranked by what quantization leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.chapter import WIDTH, Chapter, Observers
from octavo.diagnosis.markup import details, figure, section, table
from octavo.diagnosis.running_moments import RunningMoments
from octavo.diagnosis.watch import Shown
from octavo.diagnosis.wording import SIGMA, decibels, number, percent
from octavo.drawing import Drawing, ticks
from octavo.graph import Site
from octavo.numerics import Affine, affine_from_range, fake_quantize
from octavo.progress import Progress

BITS = 8
_RANKED = 16
_CAPTION = (
    "Bars: what 8 bits per tensor leave of the median dimension. The dot is the same for the whole tensor, "
    "whose energy lies in its outliers: it can look well there while nearly every dimension of it is lost. "
    "Red: FFN outputs and residual sums."
)


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
        """Return plain data for JSON; an infinite ratio (no error at all) becomes None."""
        plain = asdict(self) | {"shape": list(self.shape)}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The statistics of every site, the worst first."""

    sites: tuple[SiteStatistics, ...]

    @cached_property
    def by_name(self) -> dict[str, SiteStatistics]:
        """The statistics of a site."""
        return {site.name: site for site in self.sites}


# -- watch ---------------------------------------------------------------------------------------------------


class ErrorTally:
    """Counts outliers, and adds up signal and noise of 8 bits over the range of all texts (second pass)."""

    def __init__(self) -> None:
        self._moments: dict[str, RunningMoments] = {}
        self._grids: dict[str, Affine] = {}
        self._beyond: dict[str, int] = {}
        self._power: dict[str, tuple[Tensor, Tensor]] = {}  # (signal, noise), (width,) each or (1,)

    def see(self, shown: Shown) -> None:
        """Add a tensor."""
        name, x = shown.site.name, shown.x
        if name not in self._grids:
            assert shown.moments is not None
            self._moments[name], self._grids[name] = shown.moments, _grid(shown.moments)
        self._beyond[name] = self._beyond.get(name, 0) + int(shown.outliers.sum())
        grid = self._grids[name]
        noise = x - fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)
        power = (_power(x, shown.site.width), _power(noise, shown.site.width))
        before = self._power.get(name)
        self._power[name] = power if before is None else (before[0] + power[0], before[1] + power[1])

    def statistics(self, site: Site) -> SiteStatistics:
        """Return everything known about a site."""
        moments = self._moments[site.name]
        signal, noise = self._power[site.name]
        each = [_ratio(s, n) for s, n in zip(signal.tolist(), noise.tolist(), strict=True)]
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
            sqnr_db=_ratio(float(signal.sum()), float(noise.sum())),
            typical_sqnr_db=sorted(each)[len(each) // 2],
        )


def rank(statistics: list[SiteStatistics]) -> list[SiteStatistics]:
    """Return sites from worst to best by the error of their median dimension."""
    return sorted(statistics, key=lambda s: (s.typical_sqnr_db, s.sqnr_db))


def _grid(moments: RunningMoments) -> Affine:
    low, high = torch.tensor(moments.minimum), torch.tensor(moments.maximum)
    return affine_from_range(low, high, BITS, symmetric=False)


def _power(x: Tensor, width: int | None) -> Tensor:
    if width is None:
        return x.square().sum(dtype=torch.float64).reshape(1)
    return x.square().reshape(-1, width).sum(0, dtype=torch.float64)


def _ratio(signal: float, noise: float) -> float:
    return math.inf if noise <= 0.0 else 10 * math.log10(max(signal, 1e-300) / noise)


# -- draw ----------------------------------------------------------------------------------------------------


def draw_ranking(sites: tuple[SiteStatistics, ...]) -> Drawing:
    """Draw the worst sites and the error that 8 bits per tensor leave in their median dimension."""
    shown = sites[:_RANKED]
    best = max(10.0, *(min(site.sqnr_db, 60.0) for site in shown))
    drawing = Drawing(WIDTH, 22.0 * len(shown) + 46, "Sites that 8 bits hurt most")
    left, scale = 160.0, (WIDTH - 160.0 - 130.0) / best
    bottom = 22.0 * len(shown) + 14
    for tick in ticks(0, best, 8):
        drawing.line(left + tick * scale, 8, left + tick * scale, bottom, "rule")
        drawing.text(left + tick * scale, bottom + 14, f"{tick:g}", "small", "middle")
    what = "signal to quantization noise (dB) of the median dimension; dot: of the whole tensor"
    drawing.text(left, bottom + 28, what, "small")
    for row, site in enumerate(shown):
        y = 12 + 22.0 * row
        kind = "hot" if site.role in ("ffn_output", "ffn_residual") else "bar"
        low, high = (max(0.0, min(v, best)) for v in (site.typical_sqnr_db, site.sqnr_db))
        drawing.text(left - 8, y + 12, site.name, "label", "end")
        drawing.rect(left, y + 2, low * scale, 13, kind, f"{site.name}: {site.typical_sqnr_db:.1f} dB")
        drawing.circle(left + high * scale, y + 8.5, 3.2, "mark", f"whole tensor: {site.sqnr_db:.1f} dB")
        drawing.text(WIDTH - 4, y + 12, f"{site.minimum:.3g} … {site.maximum:.3g}", "small", "end")
    return drawing


class RankingChapter(Chapter[Ranking]):
    """Where 8 bits hurt; what it finds is told by the chapters after it."""

    name, title, record = "ranking", "Ranking", Ranking

    def observers(self) -> Observers:
        """Watch the error of 8 bits in the second pass."""
        self._tally = ErrorTally()
        return Observers(second=self._tally.see)

    def conclude(self, progress: Progress) -> Ranking:
        """Rank all sites."""
        statistics = [self._tally.statistics(site) for site in self.study.encoder.activation_sites]
        return Ranking(sites=tuple(rank(statistics)))

    def to_dict(self) -> dict[str, Any]:
        """Return `sites`."""
        return {"sites": [site.to_dict() for site in self.result.sites]}

    def figures(self) -> dict[str, Drawing]:
        """Draw the worst sites."""
        return {"ranking": draw_ranking(self.result.sites)}

    def tile(self) -> tuple[str, str]:
        """Return what is left at the worst site."""
        worst, count = self.result.sites[0], len(self.result.sites)
        text = f"left in the median dimension of {worst.name}, the worst of {count} sites"
        return text, f"{decibels(worst.typical_sqnr_db)} dB"

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show the figure and a table of all sites."""
        rows = [
            (
                site.name,
                *(number(value) for value in (site.minimum, site.maximum, site.std, site.kurtosis)),
                percent(site.beyond),
                decibels(site.sqnr_db),
                decibels(site.typical_sqnr_db),
            )
            for site in self.result.sites
        ]
        headers = ("site", "min", "max", SIGMA, "kurtosis", f"beyond 6 {SIGMA}", "SQNR dB")
        return section(
            "ranking",
            "Where 8 bits hurt",
            f"All {len(rows)} activation sites by the quantization error of their median dimension.",
            figure(figures["ranking"], _CAPTION),
            details("All sites, sortable", table((*headers, "SQNR dB, median dim."), rows, sortable=True)),
        )
