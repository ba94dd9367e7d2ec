"""Chapter: writers. Which weights write the outliers, and what cutting them wins or loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.diagnosis.chapter import WIDTH, Chapter, Finding, Observers
from octavo.diagnosis.chapters.dimensions import STREAM_ROLES, Dimensions
from octavo.diagnosis.markup import details, figure, section, table
from octavo.diagnosis.trials import CUT, PLAIN
from octavo.diagnosis.wording import TIMES, number, percent, told
from octavo.diagnosis.writers import FEW, Cause, PeakTally, Writer, find_writers
from octavo.drawing import Drawing
from octavo.progress import Progress

if TYPE_CHECKING:
    from octavo.diagnosis.chapters.remedies import Remedies

_TOLD = 4
_DRAWN = 12
# What is taken back is told from this share of the number on.
_MUCH = 0.1
_TITLES: dict[Cause, str] = {
    "weights": "A few large weights write the worst outlier",
    "inputs": "A few large inputs write the worst outlier, not large weights",
    "bias": "A bias writes the worst outlier",
    "spread": "No few weights write the worst outlier",
}
_COUNTED: dict[Cause, str] = {
    "weights": f"from at most {FEW} large weights each",
    "inputs": "from a few large inputs at ordinary weights",
    "bias": "from the bias",
    "spread": "from many products together",
}
_CAPTION = (
    "Each bar is one number: all that drives an outlier where it is largest. Red: the largest product of a "
    f"weight and its input; blue: the next {FEW - 1}; dark: the bias; light: all others. Right: the weight of"
    " the largest product, also beside the median of its matrix."
)


@dataclass(frozen=True, kw_only=True)
class Writers:
    """What writes the outliers of the residual stream, in the order of computation."""

    writers: tuple[Writer, ...]

    @property
    def weights(self) -> tuple[str, ...]:
        """The weight sites whose large weights write an outlier, and can be cut, each once."""
        return tuple(dict.fromkeys(each.weight for each in self.writers if each.is_cut))

    @property
    def rows(self) -> list[Writer]:
        """Every row of a weight once, the worst first: at the layer's own output if that is a site."""
        worst = sorted(self.writers, key=lambda each: (-each.times, each.value != each.written))
        rows: dict[tuple[str, int], Writer] = {}
        for each in worst:
            key = each.weight, each.dimension
            known = rows.setdefault(key, each)
            if known.value != known.written and each.value == each.written:
                rows[key] = each  # in the place of the first
        return list(rows.values())


# -- say -----------------------------------------------------------------------------------------------------


def sentence(writer: Writer) -> str:
    """Return what writes an outlier, as one sentence."""
    reached = (
        f"Dimension {writer.dimension} of {writer.site} reaches {number(writer.value)} at '{writer.token}'"
    )
    if writer.value != writer.written:
        reached += f", where {writer.weight} writes {number(writer.written)}"
    back = f"; others take {percent(writer.back)} back" if writer.back > _MUCH else ""
    return f"{reached}, {_written(writer)}{back}."


def _written(writer: Writer) -> str:
    if writer.cause == "bias":
        return f"{percent(writer.bias)} of it the bias"
    beside = f"beside a median of {number(writer.median)} in its matrix"
    if writer.cause == "spread":
        return (
            f"the sum of many products: the {len(writer.products)} largest are {percent(writer.few)} of it, "
            f"and the largest weight of that row is {number(writer.row_largest)} {beside}"
        )
    first = writer.products[0]
    where = f"[{writer.dimension}, {first.column}]"
    if writer.value == writer.written:
        where += f" of {writer.weight}"
    what = "weight" if writer.cause == "weights" else "input"
    if writer.is_one:
        count = f"{percent(writer.one)} of it written by one {what}"
    else:
        parts = f"{len(writer.products)} {what}s, {percent(writer.one)} by the first of them"
        count = f"{percent(writer.few)} of it written by {parts}"
    if writer.cause == "weights":
        cut = f", cut to {number(writer.limit)} by least squared error" if writer.is_cut else ""
        return f"{count}: {where} is {number(first.weight)} {beside}{cut}"
    return (
        f"{count}: {where} is only {number(first.weight)} {beside}, but reads {number(first.input)} beside a "
        f"median of {number(writer.input_median)}"
    )


# -- draw ----------------------------------------------------------------------------------------------------


def draw_writers(rows: Sequence[Writer]) -> Drawing:
    """Draw what drives each number, as parts of a bar."""
    left, right, high = 190.0, 250.0, 22.0
    drawing = Drawing(WIDTH, high * len(rows) + 16, "What writes the outliers")
    for index, writer in enumerate(rows):
        x, y, scale = left, 8 + high * index, (WIDTH - left - right) / writer.drive
        drawing.text(left - 8, y + 12, f"{writer.site} · {writer.dimension}", "label", "end")
        drawing.rect(x, y + 2, WIDTH - left - right, 13, "ghost", f"{writer.site}: {number(writer.value)}")
        parts = ((writer.one, "hot"), (writer.few - writer.one, "bar"), (max(writer.bias, 0.0), "mark"))
        for share, kind in parts:
            drawing.rect(x, y + 2, share * scale, 13, kind, percent(share) if share > 0 else "")
            x += share * scale
        if writer.products:
            first = writer.products[0]
            where = f"[{writer.dimension}, {first.column}] = {number(first.weight)}"
            drawing.text(
                WIDTH - right + 10, y + 12, f"{where}, {number(writer.ratio)} {TIMES} median", "small"
            )
    return drawing


class WritersChapter(Chapter[Writers]):
    """What writes the outliers of the residual stream."""

    name, title, record = "writers", "Writers", Writers

    def observers(self) -> Observers:
        """Watch where each dimension is largest."""
        self._tally = PeakTally(STREAM_ROLES)
        return Observers(second=self._tally.see)

    def conclude(self, progress: Progress) -> Writers:
        """Run the texts in which outliers are largest once more, and follow each back to a linear layer."""
        study = self.study
        dimensions: Dimensions = study.results["dimensions"]
        found = find_writers(
            study.encoder, study.texts, dimensions.stream, self._tally.peaks, study.kinds, study.max_length
        )
        return Writers(writers=found)

    # -- say -------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Say which weights write the worst outliers, or that no few do, and what cutting them does."""
        rows = self.result.rows
        if not rows:
            return []
        counts = Counter(each.cause for each in rows)
        counted = ", ".join(f"{count} {_COUNTED[cause]}" for cause, count in counts.most_common())
        outliers = "1 outlier comes" if len(rows) == 1 else f"{len(rows)} outliers come"
        text = f"{sentence(rows[0])} {outliers} from linear layers: {counted}."
        evidence = tuple(sentence(each) for each in rows[1:_TOLD])
        title = _TITLES[rows[0].cause]
        return [Finding(level="note", title=title, text=f"{text}{self._outcome()}", evidence=evidence)]

    def _outcome(self) -> str:
        """Return what plain 8 bits keep once these weights are cut; nothing where that was not tried."""
        remedies: Remedies = self.study.results["remedies"]
        tried = {trial.recipe: trial.quality for trial in remedies.trials}
        plain, cut, count = tried.get(PLAIN), tried.get(CUT), len(self.result.weights)
        if plain is None or cut is None:
            return ""
        whose = "the matrix" if count == 1 else f"the {count} matrices"
        return (
            f" With the range of least squared error for {whose} in which it cuts such a weight, and the "
            f"outlier with it, {PLAIN} keeps {told(cut)} ({CUT}) instead of {told(plain)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return `writers`."""
        return {"writers": [writer.to_dict() for writer in self.result.writers]}

    # -- draw ------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Drawing]:
        """Draw the worst."""
        rows = self.result.rows[:_DRAWN]
        return {"writers": draw_writers(rows)} if rows else {}

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show the figure and a table of all outliers that a linear layer writes."""
        if not figures:
            return ""
        rows = [_cells(writer) for writer in self.result.writers]
        headers = (
            "site · dimension",
            "reaches",
            "at",
            "written",
            "by",
            "weight",
            f"{TIMES} median",
            "input",
            "largest product",
            f"largest {FEW}",
            "bias",
            "taken back",
        )
        lead = "Outliers where they are largest, each split into the products of the layer that writes it."
        listed = details(f"All {len(rows)} outliers that a linear layer writes", table(headers, rows))
        return section(
            "writers", "What writes the outliers", lead, figure(figures["writers"], _CAPTION), listed
        )


def _cells(writer: Writer) -> tuple[str, ...]:
    first = writer.products[0] if writer.products else None
    return (
        f"{writer.site} · {writer.dimension}",
        number(writer.value),
        f"{writer.token} of text {writer.text}",
        number(writer.written),
        writer.weight if first is None else f"{writer.weight} [{writer.dimension}, {first.column}]",
        number(0.0 if first is None else first.weight),
        number(writer.ratio),
        number(0.0 if first is None else first.input),
        *(percent(share) for share in (writer.one, writer.few, writer.bias, writer.back)),
    )
