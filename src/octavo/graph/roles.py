"""Roles: which value of the graph is which tensor of a transformer encoder, by data flow alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torch import fx

from octavo.graph.flow import Flow, Value

_GENERIC = {
    "linear": "projection",
    "matmul": "product",
    "attention": "attention_context",
    "function": "activation",
    "embedding": "lookup",
}


@dataclass(eq=False)
class _Attention:
    """One attention block: softmax(query · key) · value, or one fused operation in its place."""

    query: Value
    key: Value
    value: Value
    context: fx.Node
    scores: Value | None = None
    probs: Value | None = None
    output: Value | None = None
    residual: Value | None = None
    stream: Value | None = None  # the other operand of the residual sum: what entered the layer
    product: Value | None = None  # the query-key product where relative positions are added to it
    relative: list[Value] = field(default_factory=list)  # what is added to it


@dataclass(eq=False)
class _FeedForward:
    """One FFN: a linear layer, an activation function (gated or not), a second linear layer, a residual sum."""

    inputs: Value
    hidden: Value
    output: Value
    residual: Value
    gates: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class Named:
    """A value with the stable name and the role users know it by."""

    value: Value
    name: str
    role: str


def name_values(flow: Flow) -> list[Named]:
    """Name every value of the graph that may be quantized, in the order in which they are computed."""
    return _Namer(flow).run()


class _Namer:
    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.values = [value for value in flow.ordered() if _is_quantizable(value, flow)]
        self.attentions = _find_attentions(flow)
        self.feed_forwards = _find_feed_forwards(flow)
        self.roles: dict[Value, tuple[str, str]] = {}  # value -> (prefix, role)

    def run(self) -> list[Named]:
        entries = [self._entry(block) for block in self.attentions]
        if entries:
            self._name_embeddings(entries[0])
        ends = [*entries[1:], self._last_exit()] if entries else []
        for index, block in enumerate(self.attentions):
            self._name_layer(f"layers.{index}.", block, entries[index], ends[index])
        if not self.attentions:
            for index, block in enumerate(self.feed_forwards):
                self._name_feed_forward(f"layers.{index}.", block)
        self._name_head(ends[-1] if ends else None)
        return self._with_numbers()

    # -- sections ----------------------------------------------------------------------------------------------------

    def _entry(self, block: _Attention) -> Value | None:
        """The last value that everything a block reads is made from: the output of the layer before, or the embeddings."""
        reads = [read for v in (block.query, block.key, block.value) for read in self._linear_inputs(v)]
        if block.stream is not None:
            reads.append(block.stream)
        common = set.intersection(*({v.node} | v.ancestors for v in reads)) if reads else set()
        last = max(common, key=lambda node: self.flow.position[node], default=None)
        return self.flow.values[last] if last is not None else None

    def _linear_inputs(self, value: Value) -> list[Value]:
        """What the projection behind query, key or value reads; the value itself where there is no projection."""
        return self.flow.read_by.get(value.source, []) or [value]

    def _last_exit(self) -> Value | None:
        """The output of the last layer: its last residual sum, with the norm after it in post-norm models."""
        pre_norm = _is_pre_norm(self.attentions[-1], self.flow)
        last = None
        for value in self.values:
            is_end = value.kind == "sum" or (value.kind == "norm" and not pre_norm and _norms_a_sum(value, self.flow))
            if is_end and self._reaches_all_outputs(value):
                last = value
        return last

    def _reaches_all_outputs(self, value: Value) -> bool:
        results = [v for v in self.flow.values.values() if any(reader.op == "output" for reader in v.readers)]
        return all(v is value or value.node in v.ancestors for v in results)

    # -- names -------------------------------------------------------------------------------------------------------

    def _give(self, value: Value | None, prefix: str, role: str) -> None:
        if value is not None and value not in self.roles:
            self.roles[value] = (prefix, role)

    def _name_embeddings(self, entry: Value | None) -> None:
        for value in self.values:
            if entry is not None and (value is entry or value.node in entry.ancestors):
                self._give(value, "embeddings.", _GENERIC.get(value.kind, value.kind))

    def _name_layer(self, prefix: str, block: _Attention, entry: Value | None, end: Value | None) -> None:
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
        for read in self._linear_inputs(block.query):
            if read is not entry and read.kind == "norm":
                self._give(read, prefix, "attention_input")
        inside = [v for v in self.values if self._is_between(v, entry, end)]
        blocks = [f for f in self.feed_forwards if f.residual in inside]
        for number, feed_forward in enumerate(blocks):
            self._name_feed_forward(prefix + (f"ffns.{number}." if len(blocks) > 1 else ""), feed_forward)
        if end is not None:
            self._give(end, prefix, "layer_output")
        for value in inside:
            self._give(value, prefix, _GENERIC.get(value.kind, value.kind))

    def _name_feed_forward(self, prefix: str, block: _FeedForward) -> None:
        self._give(block.inputs, prefix, "ffn_input")
        for gate in block.gates:
            self._give(gate, prefix, "ffn_gate" if gate.nonlinear else "ffn_up")
        self._give(block.hidden, prefix, "ffn_hidden")
        self._give(block.output, prefix, "ffn_output")
        self._give(block.residual, prefix, "ffn_residual")

    def _is_between(self, value: Value, entry: Value | None, end: Value | None) -> bool:
        position = self.flow.position
        first = position[entry.node] if entry is not None else -1
        last = position[end.node] if end is not None else len(position)
        return first < position[value.node] <= last

    def _name_head(self, body: Value | None) -> None:
        for value in self.values:
            if value in self.roles:
                continue
            after = body is not None and body.node in value.ancestors
            if any(reader.op == "output" for reader in value.readers):
                self._give(value, "", "logits" if after else "output")
            elif after and value.kind == "norm" and body in self.flow.read_by.get(value.source, []) and body.kind == "sum":
                self._give(value, "", "final_norm")
            elif after and value.kind == "function" and _reads_one_token(value.source):
                self._give(value, "", "pooler")
            else:
                prefix = "head." if after else "embeddings." if value.kind == "embedding" else "other."
                self._give(value, prefix, _GENERIC.get(value.kind, value.kind))

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


def _role(prefix: str, role: str) -> str:
    return f"{prefix.removesuffix('s.').removesuffix('.')}_{role}" if prefix in ("embeddings.", "head.", "other.") else role


# -- recognisers -----------------------------------------------------------------------------------------------------


def _is_quantizable(value: Value, flow: Flow) -> bool:
    """Look-ups are on their table's grid already; they are sites only where a matrix product reads them."""
    if value.node in flow.masked:
        return False
    if flow.working[value.source] == "embedding" and value.kind == "embedding":
        return any(flow.working.get(reader) in ("linear", "matmul", "attention") for reader in value.readers)
    return True


def _find_attentions(flow: Flow) -> list[_Attention]:
    found = []
    for node, kind in flow.working.items():
        block = None
        if kind == "softmax":
            block = _attention_of_softmax(node, flow)
        elif kind == "attention":
            reads = [flow.values[flow.carried(n)] for n in node.all_input_nodes[:3]]
            block = _Attention(query=reads[0], key=reads[1], value=reads[2], context=node)
        if block is not None:
            _follow_output(block, flow)
            found.append(block)
    return found


def _attention_of_softmax(softmax: fx.Node, flow: Flow) -> _Attention | None:
    scores = next((v for v in flow.read_by.get(softmax, [])), None)
    probs = flow.values.get(softmax)
    if scores is None or probs is None:
        return None
    products = [node for node in _matmuls_behind(scores.node, flow) if _is_input_dependent(node, flow)]
    context = next((reader for reader in probs.readers if flow.working.get(reader) == "matmul"), None)
    if not products or context is None:
        return None
    product = products[0]
    query, key = (flow.values[flow.carried(n)] for n in product.all_input_nodes[:2])
    value = next((v for v in flow.read_by[context] if v is not probs), None)
    if value is None:
        return None
    summed = _summed(scores, flow)
    return _Attention(
        query=query, key=key, value=value, context=context, scores=scores, probs=probs,
        product=next((v for v in summed if v.source is product), None), relative=summed,
    )  # fmt: skip


def _matmuls_behind(node: fx.Node, flow: Flow) -> list[fx.Node]:
    """Matrix products that a score tensor is the sum of, the plain query-key product first."""
    source = flow.source[node]
    if flow.working[source] == "matmul":
        return [source]
    if flow.working[source] != "sum":
        return []
    return [found for value in flow.read_by.get(source, []) for found in _matmuls_behind(value.node, flow)]


def _summed(scores: Value, flow: Flow) -> list[Value]:
    """Everything that is added up to the scores; empty where they are one product."""
    if flow.working[scores.source] != "sum":
        return []
    parts = flow.read_by.get(scores.source, [])
    return parts + [deeper for part in parts for deeper in _summed(part, flow)]


def _is_input_dependent(product: fx.Node, flow: Flow) -> bool:
    """Both operands come from the text, not from a table of positions."""
    return all(_sees_text(n, set()) for n in product.all_input_nodes[:2])


def _sees_text(node: fx.Node, seen: set[fx.Node]) -> bool:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.op == "placeholder" and current.target == "input_ids":
            return True
        if current not in seen:
            seen.add(current)
            # sizes of the input are not the input
            stack += [n for n in current.all_input_nodes if not isinstance(n.meta.get("val"), int) and "sym_size" not in n.name]
    return False


def _follow_output(block: _Attention, flow: Flow) -> None:
    """Find the attention's output projection and the residual sum after it."""
    reader: fx.Node | None = block.context
    for _ in range(3):  # context -> (concat) -> linear
        value = flow.values.get(reader) if reader is not None else None
        reader = next(iter(value.readers), None) if value is not None else None
        if reader is None or flow.working.get(reader) == "linear":
            break
    if reader is None or flow.working.get(reader) != "linear":
        return
    block.output = next((v for v in flow.values.values() if v.source is reader), None)
    if block.output is None:
        return
    total = next((r for r in block.output.readers if flow.working.get(r) == "sum"), None)
    if total is not None:
        block.residual = flow.values.get(total)
        block.stream = next((v for v in flow.read_by[total] if v is not block.output), None)


def _find_feed_forwards(flow: Flow) -> list[_FeedForward]:
    found = []
    for hidden in flow.ordered():
        first = _first_linears(hidden, flow)
        second = next((r for r in hidden.readers if flow.working.get(r) == "linear"), None)
        output = next((v for v in flow.values.values() if v.source is second), None) if second is not None else None
        total = next((r for r in output.readers if flow.working.get(r) == "sum"), None) if output is not None else None
        if not first or output is None or total not in flow.values:
            continue
        inputs = flow.read_by.get(first[0], [])
        if inputs:
            gates = [v for v in flow.read_by.get(hidden.source, [])] if hidden.kind == "product" else []
            found.append(_FeedForward(inputs[0], hidden, output, flow.values[total], gates))
    return found


def _first_linears(hidden: Value, flow: Flow) -> list[fx.Node]:
    """The linear layers before an activation function: one, or two where a gate is multiplied in."""
    if hidden.kind == "function" and flow.working[hidden.source] == "linear":
        return [hidden.source]
    if hidden.kind == "product":
        parts = flow.read_by.get(hidden.source, [])
        if any(p.nonlinear for p in parts) and all(flow.working[p.source] == "linear" for p in parts):
            return [p.source for p in parts]
    return []


def _is_pre_norm(block: _Attention, flow: Flow) -> bool:
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
