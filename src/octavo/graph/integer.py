"""I-BERT's rewrite: GELU, softmax and LayerNorm of a quantized graph compute in integers."""

from __future__ import annotations

from dataclasses import fields

from torch import Tensor, fx, nn

from octavo.errors import ModelError, SpecError
from octavo.graph.editing import Editor
from octavo.graph.integer_modules import IntegerGelu, IntegerLayerNorm, IntegerSoftmax
from octavo.graph.operations import CARRIER, FUSED_ATTENTION, PRODUCT, operation
from octavo.graph.quantized import QuantizedEncoder
from octavo.graph.quantizer import Quantizer
from octavo.spec import PerChannel, PerTensor

TRANSFORM = "integer-functions"
_HOLDER = "integer"
# Inside a layer these mean that a function or a norm is written out in a form that is not recognised.
_UNKNOWN = FUSED_ATTENTION | frozenset(
    "tanh sigmoid silu exp erf rsqrt sqrt pow rms_norm mish hardswish elu".split()
)


def integer_only(model: QuantizedEncoder) -> QuantizedEncoder:
    """A model whose GELU, softmax and LayerNorm run in integer arithmetic (I-BERT); `model` stays as it is.

    Each of them must read tensors with one static scale: a per-tensor quantizer before softmax and
        LayerNorm, and before GELU a linear layer whose input and weight are quantized. ReLU is an integer
        function already and stays, as does the tanh of a pooler, outside the layers. Integers inside,
        handed on as floats: a simulation.
    """
    if TRANSFORM in model.transforms:
        raise SpecError(f"{model.name} has integer functions already")
    return apply_integer(model)


def apply_integer(model: QuantizedEncoder) -> QuantizedEncoder:
    """The rewrite itself, also for a model that has no ranges yet."""
    rewriter = _Rewriter(model)
    rewriter.run()
    parts = {field.name: getattr(model, field.name) for field in fields(model)}
    changed = {
        "graph": rewriter.editor.finish(),
        "quantizers": rewriter.editor.quantizers,
        "transforms": (*model.transforms, TRANSFORM),
    }
    return QuantizedEncoder(**parts | changed)


class _Rewriter:
    def __init__(self, model: QuantizedEncoder) -> None:
        self.model = model
        self.editor = Editor(model.graph, model.quantizers)
        self.count = 0
        holder = nn.Module()
        self.editor.module.add_submodule(_HOLDER, holder)
        self.makers = {site.targets[0]: site.name for site in model.activation_sites}

    def run(self) -> None:
        """Replace every function, or name the first that cannot be."""
        replace = {"gelu": self._gelu, "softmax": self._softmax, "layer_norm": self._layer_norm}
        last = self._last_in_layers()
        inside = True
        for node in list(self.editor.graph.nodes):
            if node.op == "call_function" and _is_float(node):
                name = operation(node)
                if name in replace:
                    replace[name](node)
                elif name in _UNKNOWN and inside:
                    raise ModelError(
                        f"{self.model.name}: {node.name} ({node.target}) is a function written out, which "
                        "has no integer form here; integer functions know gelu, relu, softmax and layer_norm"
                    )
            inside = inside and node.name != last

    def _last_in_layers(self) -> str:
        inside = [site.targets[0] for site in self.model.activation_sites if site.name.startswith("layers.")]
        return inside[-1] if inside else ""

    # -- the three functions -------------------------------------------------------------------------------

    def _gelu(self, node: fx.Node) -> None:
        linear = node.args[0]
        if not isinstance(linear, fx.Node) or operation(linear) != "linear":
            raise ModelError(self._message(node, "does not read a linear layer"))
        x, _ = self._source(linear.args[0], node)
        found = self.editor.parameter(linear.args[1]) if isinstance(linear.args[1], fx.Node) else None
        weight = found[1] if found is not None else None
        if weight is None or not self._has_rows(weight):
            raise SpecError(
                self._message(node, "reads a linear layer whose weight has no scale per tensor or row")
            )
        self._put(node, IntegerGelu((x, weight)), (linear,))

    def _softmax(self, node: fx.Node) -> None:
        if node.args[1] not in (-1, node.meta["val"].dim() - 1):
            raise ModelError(self._message(node, f"runs along axis {node.args[1]}, not the last"))
        source, factor = self._source(node.args[0], node)
        self._put(node, IntegerSoftmax((source,), factor), (node.args[0],))

    def _layer_norm(self, node: fx.Node) -> None:
        x, shape, weight, bias, *rest = (*node.args, None, None)[: max(4, len(node.args))]
        if not isinstance(shape, list | tuple) or len(shape) != 1 or weight is None or bias is None:
            raise ModelError(self._message(node, "has no weight and bias over the last axis alone"))
        source, factor = self._source(x, node)
        if factor != 1:
            raise ModelError(self._message(node, "reads a scaled tensor"))
        eps = float(str(rest[0])) if rest and rest[0] is not None else 1e-5
        self._put(node, IntegerLayerNorm((source,), eps), (x, weight, bias))

    def _put(self, node: fx.Node, module: nn.Module, args: tuple[object, ...]) -> None:
        name = f"{_HOLDER}.function_{self.count}"
        self.count += 1
        self.editor.module.add_submodule(name, module)
        with self.editor.after(node):
            call = self.editor.graph.call_module(name, args)  # type: ignore[arg-type]
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        # The new node takes the old one's name: sites point to it.
        old = node.name
        self.editor.graph.erase_node(node)
        call.name = old

    # -- grids ---------------------------------------------------------------------------------------------

    def _source(self, node: object, reader: fx.Node) -> tuple[Quantizer, float]:
        """The quantizer whose grid a tensor lies on, back past mask and scaling, and the scaling."""
        factor = 1.0
        while isinstance(node, fx.Node):
            quantizer = self.editor.quantizer_at(node)
            if quantizer is not None:
                self._check(quantizer, reader)
                return quantizer, factor
            step, node = _step(node)
            factor *= step
        raise SpecError(
            self._message(reader, "reads a tensor that is not quantized; use placement full, all sites on")
        )

    def _check(self, quantizer: Quantizer, reader: fx.Node) -> None:
        if not isinstance(quantizer.spec.granularity, PerTensor) or quantizer.spec.dynamic:
            raise SpecError(
                self._message(reader, f"reads {quantizer.site.name}, which has not one static scale")
                + f"; use per-tensor at {quantizer.site.name}"
            )

    def _has_rows(self, weight: Quantizer) -> bool:
        return isinstance(weight.spec.granularity, PerTensor) or weight.spec.granularity == PerChannel(axis=0)

    def _message(self, node: fx.Node, problem: str) -> str:
        site = self.makers.get(node.name, node.name)
        return f"{site}: {operation(node)} cannot be computed in integers, because it {problem}"


def _step(node: fx.Node) -> tuple[float, object]:
    """One step back from a tensor, past a carrier, a scaling by a number or the attention mask."""
    name = operation(node)
    if name in CARRIER or name == "dropout":
        return 1.0, node.args[0]
    if name in PRODUCT and isinstance(node.args[1], int | float):
        return (1 / node.args[1] if name.startswith("div") else float(node.args[1])), node.args[0]
    if name in ("add", "where", "masked_fill"):
        return 1.0, _unmasked(node)
    return 1.0, None


def _unmasked(node: fx.Node) -> object:
    """The operand of a masking that is an activation: the mask is made without any quantizer."""
    inputs = [n for n in node.all_input_nodes if _is_float(n)]
    quantized = [n for n in inputs if _reaches_quantizer(n)]
    return quantized[0] if len(quantized) == 1 else None


def _reaches_quantizer(node: fx.Node) -> bool:
    seen: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current.op == "call_module" and str(current.target).startswith("quantizers."):
            return True
        if current not in seen:
            seen.add(current)
            stack += current.all_input_nodes
    return False


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()
