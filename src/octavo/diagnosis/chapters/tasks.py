"""Chapter: activation distributions across tasks (appendix D), FFN input and output of one late layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from octavo.diagnosis.chapter import WIDTH, Chapter
from octavo.diagnosis.markup import figure, section
from octavo.diagnosis.watch import Shown, Watch
from octavo.drawing import Drawing, ticks
from octavo.errors import ModelError
from octavo.graph import Encoder, Text
from octavo.ledger import fingerprint
from octavo.progress import Progress, silent

PANEL_TEXTS = 10
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
_PER_ROW, _HIGH, _TITLE = 3, 130.0, 26.0


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One task: for every text the minimum, quartiles and maximum of FFN input and output."""

    task: str
    inputs: tuple[tuple[float, ...], ...]
    outputs: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """The sites that were looked at and a panel for every task."""

    input_site: str
    output_site: str
    panels: tuple[Panel, ...]


# -- watch ---------------------------------------------------------------------------------------------------


class QuantileKeeper:
    """Notes the quantiles of two sites, text by text."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.quantiles: dict[str, list[tuple[float, ...]]] = {name: [] for name in sites}

    def see(self, shown: Shown) -> None:
        """Note the quantiles of one text; a batch of one."""
        if shown.site.name in self.quantiles:
            values = shown.x.reshape(-1).sort().values
            picks = torch.tensor([round(q * (len(values) - 1)) for q in _QUANTILES], device=values.device)
            self.quantiles[shown.site.name].append(tuple(values[picks].tolist()))


def distributions(
    encoder: Encoder,
    watch: Watch,
    tasks: Mapping[str, Sequence[Text]],
    *,
    max_length: int | None = None,
    progress: Progress = silent,
) -> Distributions:
    """Run the first ten texts of every task one by one."""
    names = _second_to_last(encoder)
    panels = []
    for done, (task, texts) in enumerate(tasks.items(), start=1):
        keeper = QuantileKeeper(names)
        for index, text in enumerate(texts[:PANEL_TEXTS]):
            for _, batch in encoder.batches([text], 1, max_length):
                watch.run(batch, [index], [keeper.see])
        inputs, outputs = (tuple(keeper.quantiles[name]) for name in names)
        panels.append(Panel(task=task, inputs=inputs, outputs=outputs))
        progress(done, len(tasks))
    return Distributions(input_site=names[0], output_site=names[1], panels=tuple(panels))


def _second_to_last(encoder: Encoder) -> tuple[str, str]:
    """Return FFN input and output of the second-to-last layer; of its last FFN where it has several."""
    sites = encoder.activation_sites
    layers = sorted({s.layer for s in sites if s.role == "ffn_output" and s.layer is not None})
    if not layers:
        raise ModelError(
            f"{encoder.name} has no feed-forward layers that Octavo recognises; leave --data out"
        )
    chosen = layers[-2] if len(layers) > 1 else layers[0]
    names = {site.role: site.name for site in sites if site.layer == chosen}
    return names.get("ffn_input", names["ffn_output"]), names["ffn_output"]


# -- draw ----------------------------------------------------------------------------------------------------


def draw_tasks(distributions: Distributions, which: str) -> Drawing:
    """Draw `inputs` or `outputs`: on one scale the range of each text, and its quartiles as a box."""
    site = distributions.input_site if which == "inputs" else distributions.output_site
    panels = {panel.task: getattr(panel, which) for panel in distributions.panels}
    rows = -(-len(panels) // _PER_ROW)
    drawing = Drawing(WIDTH, 30 + rows * (_HIGH + _TITLE + 20), f"FFN {which} by task")
    boxes = [box for each in panels.values() for box in each]
    scale = min(box[0] for box in boxes), max(box[-1] for box in boxes)
    drawing.text(0, 14, f"{site}: range of each text, and its quartiles", "head")
    across = (WIDTH - 2 * 24) / _PER_ROW
    for number, (task, each) in enumerate(panels.items()):
        x, y = (number % _PER_ROW) * (across + 24), 28 + (number // _PER_ROW) * (_HIGH + _TITLE + 20)
        drawing.text(x + 38, y + 16, task, "head")
        _draw_panel(drawing, each, (x, y + _TITLE, across), scale)
    return drawing


def _draw_panel(
    drawing: Drawing,
    boxes: Sequence[Sequence[float]],
    corner: tuple[float, float, float],
    scale: tuple[float, float],
) -> None:
    (x, top, across), (low, high) = corner, scale
    left = x + 38
    unit = _HIGH / max(high - low, 1e-12)
    step = (across - 38) / PANEL_TEXTS
    for tick in ticks(low, high, 5):
        drawing.line(left, top + (high - tick) * unit, x + across, top + (high - tick) * unit, "rule")
        drawing.text(left - 5, top + (high - tick) * unit + 3.5, f"{tick:g}", "small", "end")
    for number, box in enumerate(boxes):
        middle = left + step * (number + 0.5)
        ends = [top + (high - value) * unit for value in box]
        drawing.line(middle, ends[4], middle, ends[0], "whisker")
        drawing.line(middle - 4, ends[4], middle + 4, ends[4], "whisker")
        drawing.line(middle - 4, ends[0], middle + 4, ends[0], "whisker")
        tip = f"text {number + 1}: {box[0]:.3g} … {box[4]:.3g}"
        drawing.rect(middle - 0.3 * step, ends[3] - 0.75, 0.6 * step, ends[1] - ends[3] + 1.5, "bar", tip)


class TasksChapter(Chapter[Distributions | None]):
    """The same two tensors on the texts of other tasks, if the user gave some."""

    name, title, record = "tasks", "Tasks", Distributions
    stage, turn = "Tasks", 3

    def is_wanted(self) -> bool:
        """Without texts of tasks there is nothing to show."""
        return bool(self.study.panels)

    def key(self) -> str | None:
        """Keep results by the texts of the tasks."""
        panels = {task: list(texts[:PANEL_TEXTS]) for task, texts in (self.study.panels or {}).items()}
        return f"tasks/{fingerprint(panels)[:16]}" if panels else None

    def conclude(self, progress: Progress) -> Distributions:
        """Watch the texts of every task."""
        study = self.study
        return distributions(
            study.encoder, study.watch, study.panels or {}, max_length=study.max_length, progress=progress
        )

    def to_dict(self) -> dict[str, Any]:
        """Return `distributions`, None unless texts of tasks were given."""
        return {"distributions": None if self.result is None else asdict(self.result)}

    def figures(self) -> dict[str, Drawing]:
        """Draw FFN inputs and outputs."""
        if self.result is None:
            return {}
        return {f"tasks-{which}": draw_tasks(self.result, which) for which in ("inputs", "outputs")}

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show both figures."""
        if self.result is None:
            return ""
        lead = "The second-to-last layer on other data: is the structure in the model or in the texts?"
        pictures = [
            figure(figures[f"tasks-{which}s"], f"FFN {which}, first ten texts of each task.")
            for which in ("input", "output")
        ]
        return section("tasks", "Across tasks", lead, *pictures)
