"""Activation distributions across tasks (appendix D): FFN input and output of the second-to-last layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.diagnosis.watch import Batch, Places, Watcher, layer_of
from octavo.errors import ModelError
from octavo.graph import Encoder, Site, Text

Progress = Callable[[int, int], None]
PANEL_TEXTS = 10
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


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


class _Quantiles:
    def __init__(self, sites: tuple[str, str]) -> None:
        self._sites = sites
        self.found: dict[str, list[tuple[float, ...]]] = {name: [] for name in sites}

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Note the quantiles of one text; x has a batch of one."""
        if site.name in self._sites:
            values = x.reshape(-1).sort().values
            picks = [round(q * (len(values) - 1)) for q in _QUANTILES]
            self.found[site.name].append(tuple(values[torch.tensor(picks, device=values.device)].tolist()))


def distributions(
    encoder: Encoder,
    tasks: Mapping[str, Sequence[Text]],
    *,
    max_length: int | None = None,
    progress: Progress | None = None,
) -> Distributions:
    """Run the first ten texts of every task one by one."""
    names = _second_to_last(encoder)
    watcher = Watcher(encoder)
    panels = []
    for done, (task, texts) in enumerate(tasks.items(), start=1):
        quantiles = _Quantiles(names)
        for place, text in enumerate(texts[:PANEL_TEXTS]):
            for _, batch in encoder.batches([text], 1, max_length):
                watcher.show(batch, [place], [quantiles])
        inputs, outputs = (tuple(quantiles.found[name]) for name in names)
        panels.append(Panel(task=task, inputs=inputs, outputs=outputs))
        if progress is not None:
            progress(done, len(tasks))
    return Distributions(input_site=names[0], output_site=names[1], panels=tuple(panels))


def _second_to_last(encoder: Encoder) -> tuple[str, str]:
    """FFN input and output of the second-to-last layer; of its last FFN where it has several."""
    layers = [layer_of(site.name) for site in encoder.activation_sites if site.role == "ffn_output"]
    numbers = sorted({layer for layer in layers if layer is not None})
    if not numbers:
        raise ModelError(
            f"{encoder.name} has no feed-forward layers that Octavo recognises; leave --data out"
        )
    chosen = numbers[-2] if len(numbers) > 1 else numbers[0]
    found = {site.role: site.name for site in encoder.activation_sites if layer_of(site.name) == chosen}
    return found.get("ffn_input", found["ffn_output"]), found["ffn_output"]
