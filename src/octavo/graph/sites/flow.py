"""Data flow: which tensors of a captured graph the heavy operations read.

A graph is a chain of *operations that do the work* (linear layers, matrix products, norms, softmax, sums of
two streams) joined by *carriers* that move values without changing them (view, transpose, dropout,
multiplication by a constant) and by *functions of one tensor* (an activation function however it is written
out, rotary positions, a written-out RMS norm). A tensor is worth a quantizer exactly where one of the working
operations reads it, so the values of a graph are what those operations read, traced back past the carriers.
No module name is looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx, nn

LINEAR = frozenset({"linear", "addmm", "conv1d", "conv2d"})
MATMUL = frozenset({"matmul", "bmm", "mm", "baddbmm", "einsum"})
NORM = frozenset({"layer_norm", "native_layer_norm", "rms_norm", "group_norm", "batch_norm"})
SOFTMAX = frozenset({"softmax", "_softmax"})
FUSED_ATTENTION = frozenset({"scaled_dot_product_attention"})
SUM = frozenset({"add", "sub", "rsub"})
PRODUCT = frozenset({"mul", "div", "multiply", "divide"})
MASKING = SUM | {"where", "masked_fill"}
CONCAT = frozenset({"cat", "stack", "concat"})
REDUCTION = frozenset({"mean", "var", "sum", "std", "var_mean", "norm", "linalg_vector_norm"})
SPLIT = frozenset({"split", "split_with_sizes", "chunk", "unbind", "tensor_split"})
CARRIER = frozenset(
    "view reshape _unsafe_view transpose permute contiguous clone dropout expand expand_as unsqueeze squeeze "
    "flatten reshape_as unflatten select slice to _to_copy alias detach lift_fresh_copy type_as t "
    "repeat".split()
) | frozenset(SPLIT)
# Operations that keep a function of one tensor linear; any other makes it an activation function.
LINEARISH = (
    SUM
    | PRODUCT
    | CARRIER
    | frozenset("neg cat stack pad constant_pad_nd getitem gather index im2col unfold roll flip".split())
)


def operation(node: fx.Node) -> str:
    """The bare name of what a node computes: 'linear', 'add' (also for `add_`), 'dropout', 'getitem'."""
    if node.op == "call_module":
        return "dropout" if str(node.target).startswith("dropout_") else str(node.target)
    if node.op != "call_function":
        return node.op
    if node.target is operator.getitem:
        return "getitem"
    schema = getattr(node.target, "_schema", None)
    name = (
        schema.name.split("::")[-1]
        if schema is not None
        else getattr(node.target, "__name__", str(node.target))
    )
    return name.rstrip("_") if not name.startswith("__") else name


def first_value(node: fx.Node) -> object:
    """What a node gives, or the first of several."""
    value = node.meta.get("val")
    return value[0] if isinstance(value, list | tuple) and value else value


def is_float(node: fx.Node) -> bool:
    """Whether a node gives floating-point numbers, as export recorded it."""
    value = first_value(node)
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def dims(node: fx.Node) -> int | None:
    """How many dimensions a node's tensor has; None where it gives no tensor."""
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else None


@dataclass(eq=False)
class Value:
    """One tensor that working operations read.

    `node` is where it stands, `source` the working operation it comes from (they differ for a function of one
    tensor), `kind` what that is: linear, matmul, norm, softmax, attention, embedding, sum, product, concat,
    function, other; `readers` are the working operations that read it, the graph's output among them;
    `weights` the parameters that make it.
    """

    node: fx.Node
    source: fx.Node
    kind: str
    nonlinear: bool = False
    readers: list[fx.Node] = field(default_factory=list)
    weights: list[fx.Node] = field(default_factory=list)
    ancestors: set[fx.Node] = field(default_factory=set, repr=False)


_KINDS = (
    dict.fromkeys(LINEAR, "linear")
    | dict.fromkeys(MATMUL, "matmul")
    | dict.fromkeys(NORM, "norm")
    | dict.fromkeys(SOFTMAX, "softmax")
    | dict.fromkeys(FUSED_ATTENTION, "attention")
    | {"embedding": "embedding"}
)
_JOINS = dict.fromkeys(CONCAT, "concat") | dict.fromkeys(SUM, "sum") | dict.fromkeys(PRODUCT, "product")


class Flow:
    """The values of a graph and the relations between them."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self.graph = graph
        self.position = {node: place for place, node in enumerate(graph.graph.nodes)}
        self.parametric: set[fx.Node] = set()  # depends on a weight: an activation
        self.text: set[fx.Node] = set()  # depends on the token ids, not merely on how many there are
        self.masked: set[fx.Node] = set()  # carries the attention mask's fill value
        self._mask: set[fx.Node] = set()  # made from the attention mask and nothing learned
        self.source: dict[fx.Node, fx.Node] = {}
        self._flags: dict[fx.Node, frozenset[str]] = {}
        self._pieces: dict[fx.Node, frozenset[fx.Node]] = {}  # parts of a split that a node is made from
        self.working: dict[fx.Node, str] = {}  # working operation -> kind
        for node in graph.graph.nodes:
            self._visit(node)
        self.values: dict[fx.Node, Value] = {}
        self._collect_reads()
        self._collect_weights()
        self._collect_ancestors()

    # -- first pass: classify every node ---------------------------------------------------------------------

    def _visit(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            if node.target == "attention_mask":
                self._mask.add(node)
            if node.target == "input_ids":
                self.text.add(node)
        elif node.op == "get_attr":
            self._visit_attribute(node)
        elif node.op != "output":
            self._visit_call(node)

    def _visit_attribute(self, node: fx.Node) -> None:
        tensor = self.tensor(node)
        # frozen tables, such as RoFormer's sinusoids, are constants of the architecture, not learned
        if not isinstance(tensor, nn.Parameter) or not tensor.requires_grad:
            return
        self.parametric.add(node)
        if (
            sum(size > 1 for size in tensor.shape) > 1
        ):  # a table read as an activation: relative or absolute positions
            self._work(node, "embedding")

    def _visit_call(self, node: fx.Node) -> None:
        inputs = node.all_input_nodes
        if isinstance(first_value(node), torch.Tensor) and any(n in self.text for n in inputs):
            self.text.add(node)
        if any(n in self.parametric for n in inputs) and is_float(node):
            self.parametric.add(node)
            self._classify(node)
        elif any(n in self._mask for n in inputs):
            self._mask.add(node)

    def _classify(self, node: fx.Node) -> None:
        name = operation(node)
        kind = self._kind_of_work(name, node)
        if kind is not None:
            self._work(node, kind)
            return
        streams = [n for n in node.all_input_nodes if n in self.source]
        if not streams and name in CARRIER:
            return  # a bias or a scale, brought into shape: part of whatever reads it
        adds_mask = name in MASKING and any(n in self._mask for n in node.all_input_nodes)
        if adds_mask or any(n in self.masked for n in streams):
            self.masked.add(node)
        if name in PRODUCT and any(self._is_vector_parameter(n) for n in node.all_input_nodes):
            self._work(node, "norm")  # a norm written out: RMS norm, MobileBERT's scale and shift
        elif len({self.source[n] for n in streams}) == 1 and not self._is_gating(name, streams):
            self._carry(node, name, streams)
        else:
            self._work(node, _JOINS.get(name, "other"))

    def _kind_of_work(self, name: str, node: fx.Node) -> str | None:
        if name in ("matmul", "mm") and self._parameters(node.args[1]):
            return "linear"
        return _KINDS.get(name)

    def _work(self, node: fx.Node, kind: str) -> None:
        self.working[node] = kind
        self.source[node] = node
        self._flags[node] = frozenset()
        self._pieces[node] = frozenset()

    def _carry(self, node: fx.Node, name: str, streams: list[fx.Node]) -> None:
        """Take a node for a function of the one working operation its inputs come from."""
        self.source[node] = self.source[streams[0]]
        self._flags[node] = frozenset().union(*(self._flags[n] for n in streams)) | self._new_flags(name)
        is_piece = name == "getitem" and operation(streams[0]) in SPLIT
        self._pieces[node] = (
            frozenset({node}) if is_piece else frozenset().union(*(self._pieces[n] for n in streams))
        )

    def _is_gating(self, name: str, streams: list[fx.Node]) -> bool:
        """Whether two halves of one linear layer's output are multiplied, one activated (a gated FFN)."""
        if name not in PRODUCT or len(streams) != 2:
            return False
        first, second = (self._pieces[n] for n in streams)
        activated = any("nonlinear" in self._flags[n] for n in streams)
        return activated and bool(first) and bool(second) and not first & second

    def _new_flags(self, name: str) -> frozenset[str]:
        if name in REDUCTION:
            return frozenset({"norm"})
        return frozenset() if name in LINEARISH else frozenset({"nonlinear"})

    # -- second pass: what the working operations read -------------------------------------------------------

    def _collect_reads(self) -> None:
        for node, kind in self.working.items():
            for operand in self._activations_read(node, kind):
                for stop in self.unmasked(operand):
                    self._value(self.carried(stop)).readers.append(node)
        output = next(node for node in reversed(self.graph.graph.nodes) if node.op == "output")
        for result in output.all_input_nodes:
            if result in self.source:
                self._value(self.carried(result, through_splits=True)).readers.append(output)

    def _activations_read(self, node: fx.Node, kind: str) -> list[fx.Node]:
        if kind == "embedding" or self._parameters(node):  # tables, and weights put together from several
            return []
        if kind in ("linear", "softmax") or operation(node) in NORM:
            operand = node.args[1] if operation(node) == "addmm" else node.args[0]
            return [operand] if isinstance(operand, fx.Node) and operand in self.source else []
        streams = [n for n in node.all_input_nodes if n in self.source]
        return [self.source[n] for n in streams[:1]] if kind == "norm" else streams

    def carried(self, node: fx.Node, through_splits: bool = False) -> fx.Node:
        """The node whose value `node` carries: back past views, dropout and multiplication by constants."""
        while True:
            name = operation(node)
            if node in self.working:
                return node
            if (
                name in CARRIER
                or (name == "getitem" and through_splits)
                or self._is_constant_scaling(node, name)
            ):
                node = next(n for n in node.all_input_nodes if n in self.source)
            else:
                return node

    def unmasked(self, node: fx.Node) -> list[fx.Node]:
        """`node`, or what it was before the attention mask was added to it."""
        if node not in self.masked:
            return [node]
        streams = [n for n in node.all_input_nodes if n in self.source]
        clean = [n for n in streams if n not in self.masked]
        return [leaf for n in (clean or streams) for leaf in self.unmasked(n)]

    def _is_constant_scaling(self, node: fx.Node, name: str) -> bool:
        if name not in PRODUCT or len([n for n in node.all_input_nodes if n in self.source]) != 1:
            return False
        if node.args[0] not in self.source:
            return False
        other = node.args[1]
        return not isinstance(other, fx.Node) or (other not in self.parametric and dims(other) == 0)

    def _value(self, node: fx.Node) -> Value:
        if node not in self.values:
            source = self.source[node]
            flags = self._flags[node]
            kind = self.working[source]
            if "norm" in flags:
                kind = "norm"
            elif "nonlinear" in flags:
                kind = "function"
            self.values[node] = Value(node, source, kind, nonlinear="nonlinear" in flags)
        return self.values[node]

    # -- third pass: weights and ancestry --------------------------------------------------------------------

    def _collect_weights(self) -> None:
        for value in self.values.values():
            value.weights = list(self._weights_between(value.node))

    def _weights_between(self, node: fx.Node) -> Iterator[fx.Node]:
        """Weights that the value at `node` is made with, back to and including its working operation."""
        seen: set[fx.Node] = set()
        stack = [node]
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in self.working:
                yield from self.weights_of(current)
                continue
            for n in current.all_input_nodes:
                if n in self.source:
                    stack.append(n)

    def weights_of(self, node: fx.Node) -> list[fx.Node]:
        """The weight tensors (not biases) a working operation multiplies or looks up."""
        if node.op == "get_attr":
            return [node]
        if operation(node) in PRODUCT:
            return [n for n in node.all_input_nodes if self._is_vector_parameter(n)]
        place = {"linear": 1, "embedding": 0, "norm": 2}.get(self.working[node])
        if operation(node) == "addmm":
            place = 2
        if place is None or place >= len(node.args):
            return []
        return [n for n in self._parameters(node.args[place]) if self.tensor(n).numel()]

    def _parameters(self, start: object) -> list[fx.Node]:
        """The parameters that a weight is, or is put together from; none where it is itself computed."""
        if not isinstance(start, fx.Node):
            return []
        if start.op == "get_attr":
            return [start] if start in self.parametric else []
        if operation(start) not in CARRIER | CONCAT:
            return []
        parts = [self._parameters(n) for n in start.all_input_nodes]
        return [n for part in parts for n in part] if all(parts) else []

    def _collect_ancestors(self) -> None:
        reads: dict[fx.Node, list[Value]] = {}
        for value in self.values.values():
            for reader in value.readers:
                reads.setdefault(reader, []).append(value)
        self.read_by = reads
        for value in sorted(self.values.values(), key=lambda v: self.position[v.node]):
            for parent in reads.get(value.source, []):
                value.ancestors |= parent.ancestors | {parent.node}
            if value.node is not value.source and value.source in self.values:
                value.ancestors |= {value.source} | self.values[value.source].ancestors

    def ordered(self) -> list[Value]:
        """All values in the order in which they are computed."""
        return sorted(self.values.values(), key=lambda value: self.position[value.node])

    def tensor(self, node: fx.Node) -> torch.Tensor:
        """The parameter or constant that a `get_attr` node stands for."""
        found: object = self.graph
        for part in str(node.target).split("."):
            found = getattr(found, part)
        assert isinstance(found, torch.Tensor)
        return found

    def _is_vector_parameter(self, node: fx.Node) -> bool:
        return node.op == "get_attr" and node in self.parametric and self.tensor(node).dim() == 1
