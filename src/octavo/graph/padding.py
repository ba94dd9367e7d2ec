"""Padding: most encoders mask it, some read it, and those must be calibrated with it.

Convolutions over tokens (ConvBERT), Fourier transforms (FNet) and approximations of attention (Nyströmformer,
YOSO) let every token see the padding beside it. What such a model computes for a text depends on the batch,
in float as well, and what passes its sites in a padded batch may leave the ranges of the text alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx

from octavo.graph.batches import Padded, without_padding
from octavo.graph.encoder import Encoder

_LEAST = 8  # tokens of padding that a proof adds
_NOTICED = 1e-3  # of the largest value; rounding leaves less than a hundredth of it


def reads_padding(encoder: Encoder, batches: Sequence[Mapping[str, Tensor]]) -> bool:
    """Return whether padding beside a text changes what passes the sites of its own tokens.

    The shortest of the texts is run alone and padded.
    """
    parts = [part for batch in batches for part in without_padding(batch)]
    shortest = min(parts, key=lambda part: part["input_ids"].shape[1], default=None)
    if shortest is None or encoder.max_length < 2:
        return False
    # where every text is as long as can be, the end of one, which some heads look for
    kept = min(shortest["input_ids"].shape[1], max(encoder.max_length - _LEAST, encoder.max_length // 2))
    alone = {name: tensor[:1, -kept:] for name, tensor in shortest.items() if name in encoder.inputs}
    length = min(kept + max(kept, _LEAST), encoder.max_length)
    padded = _by_site(encoder, padded_to(alone, length, _padding_id(encoder)))
    return any(_differ(values, padded[name]) for name, values in _by_site(encoder, alone).items())


def _differ(alone: Tensor, padded: Tensor) -> bool:
    own = padded[:, : alone.shape[1]]
    return float((alone - own).abs().max()) > _NOTICED * float(alone.abs().max())


def _by_site(encoder: Encoder, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what passes each site that has a row for every token, (batch, length, width)."""
    nodes = {site.targets[0] for site in encoder.activation_sites if site.shape[:2] == ("batch", "length")}
    run = _Recording(encoder.graph, nodes)
    with torch.no_grad():
        run.run(*encoder.arguments(batch))
    return run.values


class _Recording(fx.Interpreter):
    """A run of a graph that keeps what some of its nodes give."""

    def __init__(self, graph: fx.GraphModule, nodes: set[str]) -> None:
        super().__init__(graph)
        self.nodes = nodes
        self.values: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> object:
        result = super().run_node(n)
        if n.name in self.nodes:
            assert isinstance(result, Tensor)
            # a later operation may write into the same memory
            self.values[n.name] = result.clone()
        return result


def with_padding(encoder: Encoder, batches: Sequence[Mapping[str, Tensor]]) -> list[Mapping[str, Tensor]]:
    """Return batches, each followed by what it is with the padding that counts.

    Padding that was given is kept as it is. Where there is none, every text is padded to the longest of all,
    the most that a batch of these texts can have, and half as much.
    """
    longest = max(batch["input_ids"].shape[1] for batch in batches)
    is_given = any(map(_is_padded, batches))
    made: list[Mapping[str, Tensor]] = []
    for batch in batches:
        own = batch["input_ids"].shape[1]
        lengths = (own,) if is_given else ((own + longest) // 2, longest)
        padded = [padded_to(batch, length, _padding_id(encoder)) for length in dict.fromkeys(lengths)]
        made += [batch, *filter(_is_padded, padded)]
    return made


def _is_padded(batch: Mapping[str, Tensor]) -> bool:
    return "attention_mask" in batch and not bool(batch["attention_mask"].all())


def padded_to(batch: Mapping[str, Tensor], length: int, padding: int) -> Padded:
    """Return a batch with rows of `length` tokens, padded at the end, and a mask that says so."""
    ids = batch["input_ids"]
    whole = {"attention_mask": torch.ones_like(ids), **batch}
    fill = {"input_ids": padding}
    rows, missing = len(ids), length - ids.shape[1]
    return Padded(
        (name, torch.cat([tensor, tensor.new_full((rows, missing), fill.get(name, 0))], dim=1))
        if tensor.shape == ids.shape
        else (name, tensor)
        for name, tensor in whole.items()
    )


def _padding_id(encoder: Encoder) -> int:
    known = getattr(encoder.tokenizer, "pad_token_id", None)
    if known is None:
        known = getattr(encoder.config, "pad_token_id", None)
    return int(known or 0)
