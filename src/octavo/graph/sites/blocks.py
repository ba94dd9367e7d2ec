"""Blocks: attention and feed-forward networks, recognised by what reads what."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from octavo.graph.sites.flow import Flow, Value


@dataclass(eq=False)
class Attention:
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
    positions: dict[str, Value] = field(
        default_factory=dict
    )  # relative_key and relative_query, multiplied with the other


@dataclass(eq=False)
class FeedForward:
    """One FFN: linear layer, activation function (gated or not), second linear layer, residual sum."""

    inputs: Value
    hidden: Value
    output: Value
    residual: Value
    gates: list[Value] = field(default_factory=list)


def find_attentions(flow: Flow) -> list[Attention]:
    found = []
    for node, kind in flow.working.items():
        block = None
        if kind == "softmax":
            block = _attention_of_softmax(node, flow)
        elif kind == "attention":
            reads = [flow.values[flow.carried(n)] for n in node.all_input_nodes[:3]]
            block = Attention(query=reads[0], key=reads[1], value=reads[2], context=node)
        if block is not None:
            _follow_output(block, flow)
            found.append(block)
    return found


def _attention_of_softmax(softmax: fx.Node, flow: Flow) -> Attention | None:
    scores = next((v for v in flow.read_by.get(softmax, [])), None)
    probs = flow.values.get(softmax)
    if scores is None or probs is None:
        return None
    summands = _matmuls_behind(scores.node, flow)
    products = [node for node in summands if all(n in flow.text for n in node.all_input_nodes[:2])]
    context = next((reader for reader in probs.readers if flow.working.get(reader) == "matmul"), None)
    if not products or context is None:
        return None
    product = products[0]
    query, key = (flow.values[flow.carried(n)] for n in product.all_input_nodes[:2])
    value = next((v for v in flow.read_by[context] if v is not probs), None)
    if value is None:
        return None
    summed = _summed(scores, flow)
    return Attention(
        query=query, key=key, value=value, context=context, scores=scores, probs=probs,
        product=next((v for v in summed if v.source is product), None), relative=summed,
        positions=_positions([node for node in summands if node is not product], query, flow),
    )  # fmt: skip


def _matmuls_behind(node: fx.Node, flow: Flow) -> list[fx.Node]:
    """Matrix products that a score tensor is the sum of, the plain query-key product first."""
    source = flow.source[node]
    if flow.working[source] == "matmul":
        return [source]
    if flow.working[source] != "sum":
        return []
    return [found for value in flow.read_by.get(source, []) for found in _matmuls_behind(value.node, flow)]


def _positions(products: list[fx.Node], query: Value, flow: Flow) -> dict[str, Value]:
    """Positions multiplied with the query (they act as keys) or with the key (they act as queries)."""
    found = {}
    for product in products:
        reads = flow.read_by[product]
        table = next((value for value in reads if value.node not in flow.text), None)
        if table is not None:
            found["relative_key" if query in reads else "relative_query"] = table
    return found


def _summed(scores: Value, flow: Flow) -> list[Value]:
    """Everything that is added up to the scores; empty where they are one product."""
    if flow.working[scores.source] != "sum":
        return []
    parts = flow.read_by.get(scores.source, [])
    return parts + [deeper for part in parts for deeper in _summed(part, flow)]


def _follow_output(block: Attention, flow: Flow) -> None:
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


def find_feed_forwards(flow: Flow) -> list[FeedForward]:
    found = []
    for hidden in flow.ordered():
        first = _first_linears(hidden, flow)
        second = next((r for r in hidden.readers if flow.working.get(r) == "linear"), None)
        output = (
            next((v for v in flow.values.values() if v.source is second), None)
            if second is not None
            else None
        )
        total = (
            next((r for r in output.readers if flow.working.get(r) == "sum"), None)
            if output is not None
            else None
        )
        if not first or output is None or total not in flow.values:
            continue
        inputs = flow.read_by.get(first[0], [])
        if inputs:
            gates = [v for v in flow.read_by.get(hidden.source, [])] if hidden.kind == "product" else []
            found.append(FeedForward(inputs[0], hidden, output, flow.values[total], gates))
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
