"""Rounding of embedding tables, beside AdaRound's of linear layers.

A look-up copies rows, so on its own every element is best rounded to nearest: nothing to choose. But tables
are added up (token + type + position), and what the model reads is the sum. Its mean squared error is a
separate parabola for each element of a row, so the better of the two grid points around w is known without
iterations: the one nearer to w minus the mean error that the *other* tables make where the row is looked up.
Rows that were seen seldom, or never, lean on the mean over all rows, as if seen `_PRIOR` times more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from octavo.graph import Encoder, QuantizedEncoder, Quantizer, Site
from octavo.graph.sites.flow import operation
from octavo.methods.rounding.moments import part_of

_PRIOR = 8.0


@dataclass(frozen=True, eq=False)
class Lookup:
    """A table, the node (of the float graph) with the indices it is read at, and the sum it goes into."""

    site: Site
    index: str
    total: str


def find_lookups(model: QuantizedEncoder, encoder: Encoder) -> list[Lookup]:
    """The quantized tables that are read once and added to others as they are; the rest stays at nearest."""
    found = []
    for site in model.weight_sites:
        if site.name not in model.quantizers or site.role != "embedding_weight":
            continue
        attributes = [node for node in encoder.graph.graph.nodes if node.op == "get_attr"]
        tables = [node for node in attributes if node.target in site.targets]
        readers = [reader for table in tables for reader in table.users]
        if len(readers) == 1 and operation(readers[0]) == "embedding":
            index, total = readers[0].args[1], _sum_of(readers[0])
            if total is not None and isinstance(index, fx.Node):
                found.append(Lookup(site, index.name, total.name))
    return found


def _sum_of(lookup: fx.Node) -> fx.Node | None:
    """The last of the plain additions that a look-up goes through; None where something else comes first."""
    node, total = lookup, None
    while len(node.users) == 1:
        node = next(iter(node.users))
        if operation(node) != "add" or node.kwargs or len(node.all_input_nodes) != 2:
            break
        total = node
    return total


def round_table(
    model: QuantizedEncoder, encoder: Encoder, lookup: Lookup, batches: Iterable[Mapping[str, Tensor]]
) -> Tensor:
    """The integers of a table, (rows, width), given how the other tables are quantized now."""
    quantizer = model.quantizers[lookup.site.name]
    weight = model.parameter(lookup.site).detach()
    own = quantizer(weight) - weight
    sums = torch.zeros_like(weight, dtype=torch.float64)
    counts = sums.new_zeros(len(weight))
    quantized = part_of(model.graph, [lookup.total])
    float_ = part_of(encoder.graph, [lookup.total, lookup.index])
    with torch.no_grad():
        for batch in batches:
            (total_hat,) = quantized(*model.arguments(batch))
            total, index = float_(*encoder.arguments(batch))
            rows = index.expand(total.shape[:-1]).reshape(-1)
            others = (total_hat - total).reshape(len(rows), -1) - own[rows]
            sums.index_add_(0, rows, others.double())
            counts.index_add_(0, rows, torch.ones_like(rows, dtype=torch.float64))
    mean = sums.sum(0) / counts.sum()
    error = (sums + _PRIOR * mean) / (counts + _PRIOR).unsqueeze(1)
    return _neighbour(quantizer, weight, weight.double() - error)


def _neighbour(quantizer: Quantizer, weight: Tensor, wanted: Tensor) -> Tensor:
    """Of the grid points on both sides of `weight` the one nearer to `wanted`, as an integer.

    Without the limit one table would take over what another clips, where it does not belong.
    """
    scale, zero_point = quantizer.per_channel(weight.dim())
    steps = weight.double() / scale
    chosen = (wanted / scale).round().maximum(steps.floor()).minimum(steps.ceil())
    return (chosen + zero_point).clamp(quantizer.low, quantizer.high).to(torch.int32)
