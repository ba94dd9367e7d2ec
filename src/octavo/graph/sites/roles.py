"""Roles: which value of the graph is which tensor of a transformer encoder, by data flow alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from octavo.graph.sites.blocks import Attention, FeedForward, find_attentions, find_feed_forwards
from octavo.graph.sites.flow import Flow, Value

_GENERIC = {
    "linear": "projection",
    "matmul": "product",
    "attention": "attention_context",
    "function": "activation",
    "embedding": "lookup",
}


@dataclass(frozen=True)
class Named:
    """A value with the stable name and the role users know it by."""

    value: Value
    name: str
    role: str


def name_values(flow: Flow) -> list[Named]:
    """Name every value of the graph that may be quantized, in the order in which they are computed."""
    return _Namer(flow).run()


@dataclass(eq=False)
class _Layer:
    """What lies between `entry`, the value the layer reads, and `end`, the last it makes."""

    attention: Attention | None
    entry: Value | None
    end: Value | None


class _Namer:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.values = [value for value in flow.ordered() if _is_quantizable(value, flow)]
        self.attentions = find_attentions(flow)
        self.feed_forwards = find_feed_forwards(flow)
        self.roles: dict[Value, tuple[str, str]] = {}  # value -> (prefix, role)

    def run(self) -> list[Named]:
        layers = self._layers()
        if layers:
            self._name_embeddings(layers[0].entry)
        for index, layer in enumerate(layers):
            self._name_layer(f"layers.{index}.", layer)
        self._name_head(layers[-1].end if layers else None)
        return self._with_numbers()

    # -- sections --------------------------------------------------------------------------------------------

    def _layers(self) -> list[_Layer]:
        """The layers: each reaches from what its attention reads to what the next one's reads."""
        if not self.attentions:
            return self._layers_without_attention()
        entries = [self._entry(block) for block in self.attentions]
        ends = [*entries[1:], self._last_exit(_is_pre_norm(self.attentions[-1], self.flow))]
        return [_Layer(*parts) for parts in zip(self.attentions, entries, ends, strict=True)]

    def _layers_without_attention(self) -> list[_Layer]:
        """Tokens are mixed by something else (FNet, YOSO): each FFN belongs to a layer of its own."""
        entries = [self._entry_before(block.inputs) for block in self.feed_forwards]
        ends = [*entries[1:], self._last_exit(pre_norm=False)] if entries else []
        return [_Layer(None, entry, end) for entry, end in zip(entries, ends, strict=True)]

    def _entry(self, block: Attention) -> Value | None:
        """The last value that all a block reads is made from: the layer before, or the embeddings."""
        reads = [read for v in (block.query, block.key, block.value) for read in self._linear_inputs(v)]
        if block.stream is not None:
            reads.append(block.stream)
        return self._last_common(reads)

    def _entry_before(self, inputs: Value) -> Value | None:
        """The last value that both sides of the residual sum before an FFN are made from.

        Without such a sum it is the value before.
        """
        for total in self.flow.read_by.get(inputs.source, []):
            sides = self.flow.read_by.get(total.source, [])
            if total.kind == "sum" and len(sides) > 1:
                return self._last_common(sides)
        place = self.values.index(inputs)
        return self.values[place - 1] if place else None

    def _last_common(self, values: Sequence[Value]) -> Value | None:
        """The last value that all of these are made from, or are."""
        common = set.intersection(*({v.node} | v.ancestors for v in values)) if values else set()
        last = max(common, key=lambda node: self.flow.position[node], default=None)
        return self.flow.values[last] if last is not None else None

    def _linear_inputs(self, value: Value) -> list[Value]:
        """What the projection behind query, key or value reads; without a projection the value itself."""
        return self.flow.read_by.get(value.source, []) or [value]

    def _last_exit(self, pre_norm: bool) -> Value | None:
        """The output of the last layer: its last residual sum, with the norm after it in post-norm models."""
        last = None
        for value in self.values:
            is_end = value.kind == "sum" or (
                value.kind == "norm" and not pre_norm and _norms_a_sum(value, self.flow)
            )
            if is_end and self._reaches_all_outputs(value):
                last = value
        return last

    def _reaches_all_outputs(self, value: Value) -> bool:
        results = [v for v in self.flow.values.values() if any(reader.op == "output" for reader in v.readers)]
        return all(v is value or value.node in v.ancestors for v in results)

    # -- names -----------------------------------------------------------------------------------------------

    def _give(self, value: Value | None, prefix: str, role: str) -> None:
        if value is not None and value not in self.roles:
            self.roles[value] = (prefix, role)

    def _name_embeddings(self, entry: Value | None) -> None:
        for value in self.values:
            if entry is not None and (value is entry or value.node in entry.ancestors):
                self._give(value, "embeddings.", _generic(value))

    def _name_layer(self, prefix: str, layer: _Layer) -> None:
        if layer.attention is not None:
            self._name_attention(prefix, layer.attention, layer.entry)
        inside = [value for value in self.values if self._is_between(value, layer)]
        blocks = [block for block in self.feed_forwards if block.residual in inside]
        for number, feed_forward in enumerate(blocks):
            self._name_feed_forward(prefix + (f"ffns.{number}." if len(blocks) > 1 else ""), feed_forward)
        self._give(layer.end, prefix, "layer_output")
        for value in inside:
            if value.node in self.flow.text:
                self._give(value, prefix, _generic(value))
            else:  # the same in every layer and for every text: made from a table of relative positions
                self._give(value, "embeddings.", f"relative_{_generic(value)}")

    def _name_attention(self, prefix: str, block: Attention, entry: Value | None) -> None:
        for part in ("query", "key", "value"):
            self._give(getattr(block, part), prefix, part)
        self._give(block.scores, prefix, "attention_scores")
        self._give(block.probs, prefix, "attention_probs")
        self._give(self.flow.values.get(block.context), prefix, "attention_context")
        self._give(block.output, prefix, "attention_output")
        self._give(block.residual, prefix, "attention_residual")
        self._give(block.product, prefix, "attention_product")
        for value in block.relative:
            self._give(value, prefix, "relative_scores")
        for role, value in block.positions.items():
            self._give(value, prefix, role)
        for read in self._linear_inputs(block.query):
            if read is not entry and read.kind == "norm":
                self._give(read, prefix, "attention_input")

    def _name_feed_forward(self, prefix: str, block: FeedForward) -> None:
        self._give(block.inputs, prefix, "ffn_input")
        for gate in block.gates:
            self._give(gate, prefix, "ffn_gate" if gate.nonlinear else "ffn_up")
        self._give(block.hidden, prefix, "ffn_hidden")
        self._give(block.output, prefix, "ffn_output")
        self._give(block.residual, prefix, "ffn_residual")

    def _is_between(self, value: Value, layer: _Layer) -> bool:
        position = self.flow.position
        first = position[layer.entry.node] if layer.entry is not None else -1
        last = position[layer.end.node] if layer.end is not None else len(position)
        return first < position[value.node] <= last

    def _name_head(self, body: Value | None) -> None:
        for value in self.values:
            if value in self.roles:
                continue
            after = body is not None and body.node in value.ancestors
            if after and value.kind == "norm" and body is not None and self._norms(value, body):
                self._give(value, "", "final_norm")
            elif any(reader.op == "output" for reader in value.readers):
                self._give(value, "", "logits" if after else "output")
            elif after and value.kind == "function" and _reads_one_token(value.source):
                self._give(value, "", "pooler")
            else:
                prefix = "head." if after else "embeddings." if value.kind == "embedding" else "other."
                self._give(value, prefix, _generic(value))

    def _norms(self, value: Value, body: Value) -> bool:
        return body.kind == "sum" and body in self.flow.read_by.get(value.source, [])

    def _with_numbers(self) -> list[Named]:
        """Number the names that occur more than once: `embeddings.sum.0`, `embeddings.sum.1`."""
        counts = Counter("".join(self.roles[value]) for value in self.values)
        used: Counter[str] = Counter()
        named = []
        for value in self.values:
            prefix, role = self.roles[value]
            name = prefix + role
            if counts[name] > 1:
                used[name] += 1
                name = f"{name}.{used[name] - 1}"
            named.append(Named(value, name, _role(prefix, role)))
        return named


def _generic(value: Value) -> str:
    return _GENERIC.get(value.kind, value.kind)


def _role(prefix: str, role: str) -> str:
    outside = prefix in ("embeddings.", "head.", "other.")
    return f"{prefix.removesuffix('s.').removesuffix('.')}_{role}" if outside else role


def _is_quantizable(value: Value, flow: Flow) -> bool:
    """Look-ups are on their table's grid already; they are sites only where a matrix product reads them."""
    if value.node in flow.masked:
        return False
    if flow.working[value.source] == "embedding" and value.kind == "embedding":
        return any(flow.working.get(reader) in ("linear", "matmul", "attention") for reader in value.readers)
    return True


def _is_pre_norm(block: Attention, flow: Flow) -> bool:
    """Pre-norm layers add the residual stream itself; post-norm layers only ever read its norm."""
    return block.residual is not None and any(flow.working.get(r) == "sum" for r in block.residual.readers)


def _norms_a_sum(value: Value, flow: Flow) -> bool:
    if value.source is not value.node and flow.working[value.source] == "sum":
        return True
    return any(flow.working[parent.source] == "sum" for parent in flow.read_by.get(value.source, []))


def _reads_one_token(linear: fx.Node) -> bool:
    node = linear.args[0]
    while isinstance(node, fx.Node):
        if "select" in str(node.target):
            return True
        inputs = node.all_input_nodes
        if len(inputs) != 1 and node.op != "call_module":
            return False
        node = inputs[0] if inputs else None
    return False
