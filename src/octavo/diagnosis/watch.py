"""Watching a float model: every site's tensor is shown to observers as it is computed, and then let go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, fx

from octavo.graph import Encoder, Site

Batch = Mapping[str, Tensor]
Places = Sequence[int]
_LAYER = re.compile(r"layers\.(\d+)\.")


class Observer(Protocol):
    """Something that looks at tensors as they pass; it must copy what it keeps."""

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Look at one tensor; `places` are the positions of the batch's texts."""


class Watcher(fx.Interpreter):
    """Runs an encoder's graph node by node and shows the tensors of its activation sites to observers."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.graph)
        self.extra_traceback = False  # it would rewrite the messages of our errors
        self._encoder = encoder
        self._sites = {site.targets[0]: site for site in encoder.activation_sites}
        self._observers: tuple[Observer, ...] = ()
        self._batch: Batch = {}
        self._places: Places = ()

    def show(self, batch: Batch, places: Places, observers: Iterable[Observer]) -> None:
        """Run one unpadded batch, whose tensors have the shape (batch, length)."""
        self._batch = {name: tensor.to(self._encoder.device) for name, tensor in batch.items()}
        self._places, self._observers = places, tuple(observers)
        with torch.no_grad():
            self.run(*self._encoder.arguments(batch))

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node and show it if it is a site."""
        value = super().run_node(n)
        site = self._sites.get(n.name)
        if site is not None:
            # convolutional encoders put the channels before the tokens; observers see them last
            shown = value.transpose(-1, -2) if site.channel_axis == -2 else value
            for observer in self._observers:
                observer.see(site, shown, self._batch, self._places)
        return value


def layer_of(name: str) -> int | None:
    """The layer a site lies in, or None for embeddings and heads."""
    found = _LAYER.match(name)
    return int(found.group(1)) if found else None


def is_by_token(site: Site, x: Tensor, batch: Batch) -> bool:
    """Whether a tensor is (batch, length, width), one row a token."""
    return x.dim() == 3 and site.width is not None and x.shape[1] == batch["input_ids"].shape[-1]


def sites_with_role(sites: Iterable[Site], role: str) -> list[Site]:
    """The sites of one role, in the order of computation."""
    return [site for site in sites if site.role == role]
