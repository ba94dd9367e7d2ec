"""Sites: the places of a captured graph where a tensor can be quantized."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, fx

from octavo.graph.sites.flow import Flow, Value
from octavo.graph.sites.roles import Named, name_values

Kind = Literal["activation", "weight"]
_WEIGHT_ROLES = {"linear": "linear_weight", "embedding": "embedding_weight", "norm": "norm_weight"}


@dataclass(frozen=True, kw_only=True)
class Site:
    """One tensor that a recipe can quantize.

    Args:
        name: stable name, `layers.10.ffn_residual` or `layers.10.ffn_output.weight`.
        role: what it is in any encoder, `ffn_residual`; weights are `linear_weight`, `embedding_weight` or
            `norm_weight`.
        shape: sizes, with "batch" and "length" where they vary.
        targets: the graph node that makes an activation, or the paths of a weight (several if tied).
        is_linear_input: a linear layer or an attention product reads it.
    """

    name: str
    role: str
    kind: Kind
    shape: tuple[int | str, ...]
    targets: tuple[str, ...]
    is_linear_input: bool = False

    @property
    def layer(self) -> int | None:
        """The layer the site belongs to, None for embeddings, head and the like."""
        found = re.match(r"layers\.(\d+)\.", self.name)
        return int(found[1]) if found else None

    @property
    def channel_axis(self) -> int:
        """The axis of an activation's embedding dimensions: the last, or -2 where a convolution made it.

        (batch, width, length) is such an output; attention scores have four axes and no channels.
        """
        convolved = len(self.shape) == 3 and isinstance(self.shape[1], int) and isinstance(self.shape[2], str)
        return -2 if self.kind == "activation" and convolved else -1

    @property
    def width(self) -> int | None:
        """The size of the channel axis, or None where it varies (attention scores and probabilities)."""
        size = self.shape[self.channel_axis] if self.shape else None
        return size if isinstance(size, int) else None

    def to_dict(self) -> dict[str, object]:
        """What `octavo sites --json` and `octavo.json` show."""
        return {"name": self.name, "role": self.role, "shape": list(self.shape)}


def find_sites(graph: fx.GraphModule) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """All activation sites and all weight sites of a captured graph, in the order of computation."""
    flow = Flow(graph)
    named = name_values(flow)
    sizes = _size_names(graph)
    activations = tuple(
        Site(
            name=item.name,
            role=item.role,
            kind="activation",
            shape=_shape(item.value.node, sizes),
            targets=(item.value.node.name,),
            is_linear_input=_feeds_a_product(item.value, flow),
        )
        for item in named
    )
    return activations, tuple(_weight_sites(flow, named))


def in_placement(sites: Iterable[Site], placement: str) -> tuple[Site, ...]:
    """The activation sites a placement covers: `full` has all, `linear-inputs` what integer kernels read."""
    return tuple(site for site in sites if placement == "full" or site.is_linear_input)


def _feeds_a_product(value: Value, flow: Flow) -> bool:
    return any(flow.working.get(reader) in ("linear", "matmul", "attention") for reader in value.readers)


def _size_names(graph: fx.GraphModule) -> dict[str, str]:
    """Symbols of export and the names users know: the first input is (batch, length)."""
    first = next(node for node in graph.graph.nodes if node.op == "placeholder")
    return dict(zip(map(str, first.meta["val"].shape), ("batch", "length"), strict=True))


def _shape(node: fx.Node, names: dict[str, str]) -> tuple[int | str, ...]:
    value = node.meta["val"]
    return tuple(
        int(size) if isinstance(size, int) else _named_size(str(size), names) for size in value.shape
    )


def _named_size(size: str, names: dict[str, str]) -> str:
    for symbol, name in names.items():
        size = size.replace(symbol, name)
    return size


# -- weights -------------------------------------------------------------------------------------------------


def _weight_sites(flow: Flow, named: list[Named]) -> list[Site]:
    """Weights are named for what they make: `layers.0.ffn_output.weight`, `embeddings.token.weight`."""
    found: dict[int, tuple[str, str, list[str], Tensor]] = {}
    makers = _makers(flow, named)
    for node, kind in flow.working.items():
        if node.op == "get_attr" and node not in flow.values:
            continue  # a matrix that only its own layer reads; tables read as activations are values
        for weight in flow.weights_of(node):
            tensor = flow.tensor(weight)
            path = str(weight.target)
            if id(tensor) not in found:
                role = _WEIGHT_ROLES[kind]
                found[id(tensor)] = (makers.get(node) or _table_name(node, flow), role, [path], tensor)
            elif path not in found[id(tensor)][2]:
                found[id(tensor)][2].append(path)
    names = [name for name, *_ in found.values()]
    return [
        Site(
            name=f"{_numbered(names, index)}.weight",
            role=role,
            kind="weight",
            shape=tuple(tensor.shape),
            targets=tuple(paths),
        )
        for index, (_, role, paths, tensor) in enumerate(found.values())
    ]


def _numbered(names: list[str], index: int) -> str:
    name = names[index]
    return f"{name}.{names[:index].count(name)}" if names.count(name) > 1 else name


def _makers(flow: Flow, named: list[Named]) -> dict[fx.Node, str]:
    """The name of what each working operation makes; a fused projection makes several things."""
    made: dict[fx.Node, list[str]] = {}
    for item in sorted(named, key=lambda n: _ORDER.get(n.role, 0)):
        if flow.working[item.value.source] != "embedding":
            made.setdefault(item.value.source, []).append(item.name)
    return {node: _joined(names) for node, names in made.items()}


_ORDER = {"query": 0, "key": 1, "value": 2, "ffn_gate": 0, "ffn_up": 1}


def _joined(names: list[str]) -> str:
    prefix = names[0].rpartition(".")[0]
    if len(names) == 1 or any(name.rpartition(".")[0] != prefix for name in names):
        return names[0]
    first, *rest = (name.rpartition(".")[2] for name in names)
    return ".".join(filter(None, (prefix, "_".join([first, *(name.removeprefix("ffn_") for name in rest)]))))


def _table_name(node: fx.Node, flow: Flow) -> str:
    """Which table a look-up reads, by where its indices come from."""
    if node.op != "call_function" or flow.working[node] != "embedding":
        return "embeddings.relative" if node.op == "get_attr" else "other"
    origins = _origins(node.args[1])
    if isinstance(node.args[1], fx.Node) and node.args[1].target == "input_ids":
        return "embeddings.token"
    if any("token_type" in name for name in origins):
        return "embeddings.token_type"
    sizes = (
        [str(size) for size in node.args[1].meta["val"].shape] if isinstance(node.args[1], fx.Node) else []
    )
    # distances are looked up for every pair of positions: indices are (length, length)
    is_relative = len(sizes) > 1 and sizes[-1] == sizes[-2]
    return "embeddings.relative" if is_relative else "embeddings.position"


def _origins(start: object) -> set[str]:
    """Names of the inputs and constants that an index is computed from."""
    found: set[str] = set()
    stack = [start] if isinstance(start, fx.Node) else []
    seen: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op in ("placeholder", "get_attr"):
            found.add(str(node.target))
        stack.extend(n for n in node.all_input_nodes if isinstance(n.meta.get("val", torch.empty(0)), Tensor))
    return found
