"""Chapter: outlier dimensions. The few that exceed 6 sigma in text after text (section 3, figure 2b)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from octavo.diagnosis.chapter import WIDTH, Chapter, Finding, Observers
from octavo.diagnosis.chapters.ranking import Ranking
from octavo.diagnosis.chosen_text import TOKEN_ROLES
from octavo.diagnosis.markup import asset, details, figure, packed_bytes, packed_halves, section, table
from octavo.diagnosis.watch import Shown
from octavo.diagnosis.wording import SIGMA, TIMES, number, percent
from octavo.drawing import Drawing
from octavo.graph import Site
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.diagnosis.chapters.tokens import Coincidence, Tokens

STREAM_ROLES = {
    "ffn_output": "FFN outputs",
    "ffn_residual": "residual sums after the FFN",
    "ffn_input": "FFN inputs",
    "attention_residual": "residual sums after the attention",
    "layer_output": "layer outputs",
}
"""The tensors of the residual stream, and how they are called in sentences."""
FFN_ROLES = ("ffn_input", "ffn_output", "ffn_residual")
MAP_ROLES = (
    *("ffn_output", "ffn_residual", "ffn_input", "layer_output"),
    *("attention_output", "attention_residual"),
)
"""What the map of the report shows, the first at once."""
# A dimension is accused when it is an outlier in at least this share of the texts, and dwarfs the others.
CONSISTENT = 0.5
DWARFS = 5.0
FIGURE_TEXTS = 10
"""The paper's figures show ten sequences."""
_PER_ROW = 3
_LABEL = 22.0
_SITES_TOLD = 3


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
        """Return plain data for JSON."""
        return {**asdict(self), "span": self.span}


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """How consistently a dimension is an outlier across the layers, among the sites of one role."""

    role: str
    dimension: int
    sites: tuple[str, ...]
    of: int


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Dimensions:
    """Outlier dimensions by site, and by dimension and role; channels and first_texts are by site name.

    first_texts: for the figures of appendix D, the outlier dimensions of each of the first ten texts.
    """

    outliers: tuple[OutlierDimension, ...]
    recurrences: tuple[Recurrence, ...]
    channels: dict[str, Channels]
    first_texts: dict[str, dict[int, list[int]]]

    @property
    def stream(self) -> list[OutlierDimension]:
        """The outliers of the residual stream."""
        return [outlier for outlier in self.outliers if outlier.role in STREAM_ROLES]


# -- watch ---------------------------------------------------------------------------------------------------


class ChannelTally:
    """The range of every dimension (first pass), and in how many texts it is an outlier (second pass)."""

    def __init__(self) -> None:
        self.channels: dict[str, Channels] = {}
        self.first_texts: dict[str, dict[int, list[int]]] = {}  # site -> text -> dimensions

    def see_range(self, shown: Shown) -> None:
        """Add a tensor to the ranges."""
        width = shown.site.width
        if width is None:
            return
        rows = shown.x.reshape(-1, width)
        low, high = rows.amin(0), rows.amax(0)
        known = self.channels.get(shown.site.name)
        if known is None:
            zeros = torch.zeros(width, dtype=torch.long, device=rows.device)
            # copies: the minimum of one row is a view of the row
            self.channels[shown.site.name] = Channels(low.clone(), high.clone(), zeros)
        else:
            known.minimum = torch.minimum(known.minimum, low)
            known.maximum = torch.maximum(known.maximum, high)

    def see_outliers(self, shown: Shown) -> None:
        """Count the texts of a tensor in which each dimension is an outlier."""
        channels = self.channels.get(shown.site.name)
        if channels is None:
            return
        by_text = shown.outliers.reshape(len(shown.x), -1, shown.x.shape[-1]).any(1)
        channels.texts += by_text.sum(0)
        if shown.site.role in TOKEN_ROLES and min(shown.indices) < FIGURE_TEXTS and shown.is_by_token:
            for index, row in zip(shown.indices, by_text, strict=True):
                if index < FIGURE_TEXTS:
                    dimensions = torch.nonzero(row).flatten().tolist()
                    self.first_texts.setdefault(shown.site.name, {})[index] = dimensions


def find_outliers(
    sites: Iterable[Site], channels: Mapping[str, Channels], texts: int
) -> list[OutlierDimension]:
    """Return the outlier dimensions of every site, its widest first, where `texts` were seen in all."""
    known = [site for site in sites if site.name in channels]
    return [outlier for site in known for outlier in _outliers_of(site, channels[site.name], texts)]


def _outliers_of(site: Site, channels: Channels, texts: int) -> list[OutlierDimension]:
    span = channels.span
    median = float(span.median())
    accused = ((channels.texts >= CONSISTENT * texts) & (span > DWARFS * median)).nonzero().flatten()
    widest_first = accused[span[accused].argsort(descending=True)].tolist()
    return [
        OutlierDimension(
            site=site.name,
            role=site.role,
            dimension=dimension,
            minimum=float(channels.minimum[dimension]),
            maximum=float(channels.maximum[dimension]),
            median_span=median,
            texts=int(channels.texts[dimension]),
        )
        for dimension in widest_first
    ]


def find_recurrences(outliers: Iterable[OutlierDimension], sites: Iterable[Site]) -> list[Recurrence]:
    """Return dimensions by role and the sites they stand out at, the most frequent first."""
    totals: dict[str, int] = {}
    for site in sites:
        totals[site.role] = totals.get(site.role, 0) + 1
    names: dict[tuple[str, int], list[str]] = {}
    for outlier in outliers:
        names.setdefault((outlier.role, outlier.dimension), []).append(outlier.site)
    result = [
        Recurrence(role=role, dimension=dimension, sites=tuple(where), of=totals[role])
        for (role, dimension), where in names.items()
    ]
    return sorted(result, key=lambda r: (-len(r.sites), r.role, r.dimension))


# -- draw ----------------------------------------------------------------------------------------------------


def draw_outliers(
    title: str,
    widths: Mapping[str, int],
    outliers: Mapping[str, Mapping[int, Sequence[int]]],
    texts: int,
) -> Drawing:
    """Draw a panel for every site: dimensions across, first ten texts down, dark beyond 6 sigma."""
    rows = min(texts, FIGURE_TEXTS)
    cell, across = 7.0, (WIDTH - 16.0 * (_PER_ROW - 1)) / _PER_ROW
    high = 24 + cell * rows + 24
    drawing = Drawing(WIDTH, 8 + high * -(-len(widths) // _PER_ROW), title)
    for panel, (name, width) in enumerate(widths.items()):
        x, y = (panel % _PER_ROW) * (across + 16), 4 + high * (panel // _PER_ROW)
        drawing.text(x, y + 13, name, "head")
        drawing.rect(x, y + 20, across, cell * rows, "field")
        step, hits = across / width, outliers.get(name, {})
        boxes = [
            (x + d * step, y + 20 + cell * t, max(step, 1.6), cell) for t, dims in hits.items() for d in dims
        ]
        drawing.cells(boxes, "mark")
        _label_frequent(drawing, hits, rows, x, y + 20 + cell * rows, step)
    return drawing


def _label_frequent(
    drawing: Drawing, hits: Mapping[int, Sequence[int]], rows: int, x: float, y: float, step: float
) -> None:
    """Name the dimensions that are outliers in most texts, leaving out labels that would overlap."""
    counts: dict[int, int] = {}
    for dimensions in hits.values():
        for dimension in dimensions:
            counts[dimension] = counts.get(dimension, 0) + 1
    labelled: list[float] = []
    for dimension, count in sorted(counts.items(), key=lambda item: -item[1]):
        offset = dimension * step
        if 2 * count >= rows and all(abs(offset - other) >= _LABEL for other in labelled):
            labelled.append(offset)
            drawing.text(x + offset, y + 11, str(dimension), "small", "middle")


class DimensionsChapter(Chapter[Dimensions]):
    """Outlier dimensions."""

    name, title, record = "dimensions", "Dimensions", Dimensions

    def observers(self) -> Observers:
        """Watch ranges first, then outliers."""
        self._tally = ChannelTally()
        return Observers(first=self._tally.see_range, second=self._tally.see_outliers)

    def conclude(self, progress: Progress) -> Dimensions:
        """Find the dimensions that stand out."""
        sites = self.study.encoder.activation_sites
        outliers = find_outliers(sites, self._tally.channels, len(self.study.texts))
        return Dimensions(
            outliers=tuple(outliers),
            recurrences=tuple(find_recurrences(outliers, sites)),
            channels=self._tally.channels,
            first_texts=self._tally.first_texts,
        )

    # -- say -------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Name the dimensions that dwarf the others, or say that there are none."""
        stream = self.result.stream
        return [self._outliers(stream) if stream else self._no_outliers()]

    def _outliers(self, stream: Sequence[OutlierDimension]) -> Finding:
        ordered = sorted(stream, key=lambda o: -o.span / max(o.median_span, 1e-12))
        evidence = [self._evidence(outlier) for outlier in ordered[:_SITES_TOLD]]
        dimensions = sorted({outlier.dimension for outlier in stream})
        shown = ", ".join(map(str, dimensions[:8])) + (", …" if len(dimensions) > 8 else "")
        again = [r for r in self.result.recurrences if r.role in STREAM_ROLES and len(r.sites) > 1][:2]
        evidence += [
            f"Dimension {r.dimension} stands out in {len(r.sites)} of {r.of} {STREAM_ROLES[r.role]}."
            for r in again
        ]
        plural = "dimension dwarfs" if len(dimensions) == 1 else "dimensions dwarf"
        return Finding(
            level="problem",
            title=f"{len(dimensions)} {plural} the others ({shown})",
            text="One range for the whole tensor must cover them, and leaves a handful of steps for all "
            "others.",
            evidence=tuple(evidence),
        )

    def _evidence(self, outlier: OutlierDimension) -> str:
        ranking: Ranking = self.study.results["ranking"]
        tokens: Tokens = self.study.results["tokens"]
        coincidence = tokens.sites.get(outlier.site)
        carried = coincidence is not None and coincidence.structural is not None
        where = f", at {_kinds(coincidence)}" if coincidence is not None and carried else ""
        typical = ranking.by_name[outlier.site].typical_sqnr_db
        return (
            f"{outlier.site}: dimension {outlier.dimension} spans {number(outlier.span)} while the median "
            f"dimension spans {number(outlier.median_span)}, in {outlier.texts} of {len(self.study.texts)} "
            f"texts{where}; 8 bits per tensor leave that median dimension {typical:.1f} dB."
        )

    def _no_outliers(self) -> Finding:
        ranking: Ranking = self.study.results["ranking"]
        worst = ranking.sites[0]
        return Finding(
            level="fine",
            title="No dimension dwarfs the others",
            text="No dimension of the residual stream exceeds six standard deviations in half of the texts "
            "while spanning five times the median dimension. "
            f"The site that 8 bits hurt most is {worst.name}, whose median dimension keeps "
            f"{worst.typical_sqnr_db:.1f} dB.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return `outliers` and `recurrences`."""
        return {
            "outliers": [outlier.to_dict() for outlier in self.result.outliers],
            "recurrences": [asdict(recurrence) for recurrence in self.result.recurrences],
        }

    # -- draw ------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Drawing]:
        """Draw the outliers of the first texts at FFN inputs and outputs."""
        drawings = {}
        roles = {site.name: site.role for site in self.study.encoder.activation_sites}
        for role in TOKEN_ROLES:
            names = [name for name in self.result.first_texts if roles[name] == role]
            widths = {name: len(self.result.channels[name].minimum) for name in names}
            if widths:
                title = f"Outliers in {role.replace('_', ' ')}, first texts"
                drawings[f"outliers-{role.replace('_', '-')}"] = draw_outliers(
                    title, widths, self.result.first_texts, len(self.study.texts)
                )
        return drawings

    def tile(self) -> tuple[str, str]:
        """Return the number of outlier dimensions around the FFNs."""
        dimensions = {outlier.dimension for outlier in self.result.outliers if outlier.role in FFN_ROLES}
        return "outlier dimensions at FFN inputs, outputs and residual sums", str(len(dimensions))

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show the map, the figures and a table of all outlier dimensions."""
        caption = (
            f"Marked: values beyond 6 {SIGMA} of the tensor. Down: the first ten texts. Across: dimensions."
        )
        pictures = [figure(drawing, caption) for drawing in figures.values()]
        rows = [
            (
                f"{outlier.site} · {outlier.dimension}",
                number(outlier.minimum),
                number(outlier.maximum),
                number(outlier.span / max(outlier.median_span, 1e-12)),
                f"{outlier.texts} of {len(self.study.texts)}",
            )
            for outlier in self.result.outliers
        ]
        headers = ("site · dimension", "min", "max", f"{TIMES} median span", "texts")
        listed = [details(f"All {len(rows)} outlier dimensions", table(headers, rows))] if rows else []
        lead = "Range of every dimension. One that stands out layer after layer is a structured outlier."
        return section("dimensions", "Outlier dimensions", lead, asset("dimensions.html"), *pictures, *listed)

    def data(self) -> dict[str, Any]:
        """Return the maps: range of each dimension and share of texts it is an outlier in."""
        sites = self.study.encoder.activation_sites
        texts = len(self.study.texts)
        return {"maps": maps([(site.name, site.role) for site in sites], self.result.channels, texts)}


def maps(
    sites: Iterable[tuple[str, str]], channels: Mapping[str, Channels], texts: int
) -> list[dict[str, Any]]:
    """Return a map for every role and width, (sites, width), of (name, role) in the order of computation."""
    grouped: dict[tuple[str, int], list[str]] = {}
    for name, role in sites:
        if role in MAP_ROLES and name in channels:
            grouped.setdefault((role, len(channels[name].minimum)), []).append(name)
    return [
        {
            "role": role,
            "rows": names,
            "width": width,
            "min": packed_halves(torch.stack([channels[name].minimum for name in names])),
            "max": packed_halves(torch.stack([channels[name].maximum for name in names])),
            "texts": packed_bytes(torch.stack([channels[name].texts for name in names]) / texts),
        }
        for (role, width), names in sorted(grouped.items(), key=lambda item: MAP_ROLES.index(item[0][0]))
    ]


def _kinds(coincidence: Coincidence) -> str:
    """Return `class tokens (100 %)`, the kinds that carry most of the outliers."""
    total = sum(coincidence.outliers.values())
    shares = sorted(
        ((hits / total, kind) for kind, hits in coincidence.outliers.items() if hits), reverse=True
    )
    return " and ".join(f"{kind} tokens ({percent(share)})" for share, kind in shares[:2])
