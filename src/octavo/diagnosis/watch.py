"""Watching a float model: every site's tensor is shown to observers as it is computed, and then let go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from octavo.diagnosis.running_moments import RunningMoments
from octavo.errors import ModelError
from octavo.graph import Encoder, Quantizer, Site
from octavo.graph.quantizers.watch import probe, watched

SIGMAS = 6.0
"""Values further from the mean than this many standard deviations are outliers, as in the paper's figures."""
Batch = Mapping[str, Tensor]


@dataclass(eq=False, kw_only=True)
class Shown:
    """One tensor of a site as it is computed.

    Arguments:
        x: channels last; whoever keeps something of it copies it.
        batch: the token ids, unpadded; indices: which texts they are.
        moments: of the site over all texts, in the second pass.
    """

    site: Site
    x: Tensor
    batch: Batch
    indices: Sequence[int]
    moments: RunningMoments | None = None

    @property
    def is_by_token(self) -> bool:
        """Whether the tensor is (batch, length, width), one row a token."""
        by_token = self.x.dim() == 3 and self.site.width is not None
        return by_token and self.x.shape[1] == self.batch["input_ids"].shape[-1]

    @cached_property
    def outliers(self) -> Tensor:
        """Where the tensor lies beyond 6 standard deviations from the site's mean, bool of its shape."""
        assert self.moments is not None, "outliers are known in the second pass"
        return (self.x - self.moments.mean).abs() > SIGMAS * self.moments.std


Observer = Callable[[Shown], None]


class Watch:
    """Runs a float encoder and shows the tensors of its activation sites to observers."""

    def __init__(self, encoder: Encoder) -> None:
        self._model = probe(encoder)

    def run(
        self,
        batch: Batch,
        indices: Sequence[int],
        observers: Sequence[Observer],
        moments: Mapping[str, RunningMoments] | None = None,
    ) -> None:
        """Run one unpadded batch, whose tensors have the shape (batch, length)."""
        tokens = {name: tensor.to(self._model.device) for name, tensor in batch.items()}
        known = moments or {}

        def see(quantizer: Quantizer, tensor: Tensor) -> None:
            site = quantizer.site
            # convolutional encoders put the channels before the tokens; observers see them last
            x = tensor.transpose(-1, -2) if site.channel_axis == -2 else tensor
            shown = Shown(site=site, x=x, batch=tokens, indices=indices, moments=known.get(site.name))
            for observer in observers:
                observer(shown)

        with watched(self._model.quantizers, see):
            self._model(batch)


class MomentsBySite:
    """An observer of the first pass: range, mean and spread of every site, which the second pass needs."""

    def __init__(self) -> None:
        self.moments: dict[str, RunningMoments] = {}

    def see(self, shown: Shown) -> None:
        """Add a tensor; NaN and infinity are errors."""
        if not bool(torch.isfinite(shown.x).all()):
            raise ModelError(
                f"{shown.site.name} holds NaN or infinity for text {shown.indices[0] + 1}; "
                "the model cannot be diagnosed"
            )
        self.moments.setdefault(shown.site.name, RunningMoments()).add(shown.x)
