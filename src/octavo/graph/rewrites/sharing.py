"""Which channels have to take the same factors, because layers share the weights that take them.

A weight has one set of rows and one of columns. Where several layers read it (ALBERT), all of them have to be
divided alike; where something else reads it as well (a head tied to the token embeddings), none can be.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, fx

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.channels import Channels, Part, channels_of
from octavo.graph.rewrites.tracing import NoChannelsError, parameter_of, readers_of

T = TypeVar("T")
Key = tuple[int, Part]
"""A parameter, by identity, and which part of it takes factors."""

_SHARED = "its weights are shared with layers that read other tensors"


def channels_at(model: QuantizedEncoder, sites: Iterable[str]) -> tuple[list[Channels], dict[str, str]]:
    """Return the channels of these sites, each once, and why the rest has none."""
    found: dict[frozenset[str], Channels] = {}
    refused: dict[str, str] = {}
    for site in sites:
        try:
            channels = channels_of(model, site)
        except NoChannelsError as reason:
            refused[site] = str(reason)
        else:
            found.setdefault(frozenset(channels.sites), channels)
    return list(found.values()), refused


def groups_of(model: QuantizedEncoder, sites: Iterable[str]) -> tuple[list[list[Channels]], dict[str, str]]:
    """Return the channels of these sites in groups that share weights, and why the rest has none."""
    kept, refused = channels_at(model, sites)
    parameters = _Parameters(model)
    while True:
        groups = connected((channels, _takes(channels, parameters)) for channels in kept)
        outside = [group for group in groups if not _closed(group, parameters)]
        if not outside:
            return [_shiftable(group, parameters) for group in groups], refused
        for group in outside:
            kept = [channels for channels in kept if channels not in group]
            refused |= {site: _SHARED for channels in group for site in channels.sites}


class _Parameters:
    """The parameters of a graph by identity, whatever their names, and what reads them."""

    def __init__(self, model: QuantizedEncoder) -> None:
        self._named: Mapping[str, Tensor] = dict(model.graph.named_parameters(remove_duplicate=False))
        self._readers: dict[int, set[fx.Node]] = {}
        for node in model.graph.graph.nodes:
            if node.op == "get_attr" and str(node.target) in self._named:
                self._readers.setdefault(self.identity(str(node.target)), set()).update(readers_of(node))

    def identity(self, path: str) -> int:
        return id(self._named[path])

    def readers(self, identity: int) -> set[fx.Node]:
        return self._readers[identity]


def _takes(channels: Channels, parameters: _Parameters) -> dict[Key, list[tuple[fx.Node, Tensor]]]:
    found: dict[Key, list[tuple[fx.Node, Tensor]]] = {}
    for path, part, node, index in channels.parameters():
        found.setdefault((parameters.identity(path), part), []).append((node, index))
    return found


def connected(members: Iterable[tuple[T, Iterable[Hashable]]]) -> list[list[T]]:
    """Return members in groups: those connected by keys (weights) that they share."""
    groups: list[tuple[set[Hashable], list[T]]] = []
    for member, of_member in members:
        keys, joined = set(of_member), [member]
        for group in [g for g in groups if g[0] & keys]:
            groups.remove(group)
            keys, joined = keys | group[0], group[1] + joined
        groups.append((keys, joined))
    return [joined for _, joined in groups]


def _closed(group: Sequence[Channels], parameters: _Parameters) -> bool:
    """Say whether all that reads the weights of a group belongs to it, with channels in the same order."""
    takes: dict[Key, list[tuple[fx.Node, Tensor]]] = {}
    for channels in group:
        for key, entries in _takes(channels, parameters).items():
            takes.setdefault(key, []).extend(entries)
    same_width = len({channels.width for channels in group}) == 1
    return same_width and all(
        parameters.readers(identity) <= {node for node, _ in entries}
        and all(torch.equal(index, entries[0][1]) for _, index in entries)
        for (identity, _), entries in takes.items()
    )


def _shiftable(group: list[Channels], parameters: _Parameters) -> list[Channels]:
    """Return the group, without offsets where a bias that would take one is read elsewhere too."""
    nodes = {node for channels in group for _, _, node, _ in channels.parameters()}
    biases = [parameter_of(node.args[2]) for node in nodes if len(node.args) > 2]
    alone = all(
        parameters.readers(parameters.identity(str(bias.target))) <= nodes
        for bias in biases
        if bias is not None
    )
    if alone and all(channels.shifts for channels in group):
        return group
    return [replace(channels, shifts=False) for channels in group]
