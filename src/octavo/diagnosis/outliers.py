"""Outlier dimensions: the few that exceed 6 sigma in text after text (section 3 of the paper, figure 2b)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.moments import Moments
from octavo.diagnosis.statistics import Channels, outliers
from octavo.diagnosis.watch import Batch, Places, is_by_token
from octavo.graph import Site

# A dimension is accused when it is an outlier in at least this share of the texts, and dwarfs the others.
CONSISTENT = 0.5
DWARFS = 5.0
FIGURE_TEXTS = 10
"""The paper's figures show ten sequences."""


@dataclass(frozen=True, kw_only=True)
class OutlierDimension:
    """A dimension that exceeds 6 sigma in at least half of the texts and spans 5 medians or more."""

    site: str
    role: str
    dimension: int
    minimum: float
    maximum: float
    median_span: float
    texts: int

    @property
    def span(self) -> float:
        """maximum - minimum."""
        return self.maximum - self.minimum

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "span": self.span}


def find_outliers(
    sites: Iterable[Site], channels: Mapping[str, Channels], texts: int
) -> list[OutlierDimension]:
    """The outlier dimensions of every site, the widest of each site first; `texts` were seen in all."""
    return [
        found for site in sites if site.name in channels for found in _of(site, channels[site.name], texts)
    ]


def _of(site: Site, channels: Channels, texts: int) -> list[OutlierDimension]:
    span = channels.span
    median = float(span.median())
    accused = (channels.texts >= CONSISTENT * texts) & (span > DWARFS * median)
    places = accused.nonzero().flatten()
    order = places[span[places].argsort(descending=True)].tolist()
    return [
        OutlierDimension(
            site=site.name,
            role=site.role,
            dimension=place,
            minimum=float(channels.minimum[place]),
            maximum=float(channels.maximum[place]),
            median_span=median,
            texts=int(channels.texts[place]),
        )
        for place in order
    ]


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """How consistently a dimension is an outlier across the layers, among the sites of one role."""

    role: str
    dimension: int
    sites: tuple[str, ...]
    of: int


def recurrences(found: Iterable[OutlierDimension], sites: Iterable[Site]) -> list[Recurrence]:
    """Dimensions by role and the sites they stand out at, the most frequent first."""
    totals: dict[str, int] = {}
    for site in sites:
        totals[site.role] = totals.get(site.role, 0) + 1
    places: dict[tuple[str, int], list[str]] = {}
    for outlier in found:
        places.setdefault((outlier.role, outlier.dimension), []).append(outlier.site)
    result = [
        Recurrence(role=role, dimension=dimension, sites=tuple(names), of=totals[role])
        for (role, dimension), names in places.items()
    ]
    return sorted(result, key=lambda r: (-len(r.sites), r.role, r.dimension))


class FirstTexts:
    """For the figures of appendix D: which dimensions are outliers in each of the first ten texts."""

    def __init__(
        self, moments: Mapping[str, Moments], roles: tuple[str, ...] = ("ffn_input", "ffn_output")
    ) -> None:
        self._moments = moments
        self._roles = roles
        self.dimensions: dict[str, dict[int, list[int]]] = {}  # site -> text -> dimensions

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Note the outlier dimensions of the first texts; x is (batch, length, width)."""
        if site.role not in self._roles or min(places) >= FIGURE_TEXTS or not is_by_token(site, x, batch):
            return
        hits = outliers(x, self._moments[site.name]).reshape(len(x), -1, x.shape[-1]).any(1)
        for place, row in zip(places, hits, strict=True):
            if place < FIGURE_TEXTS:
                found = torch.nonzero(row).flatten().tolist()
                self.dimensions.setdefault(site.name, {})[place] = found
