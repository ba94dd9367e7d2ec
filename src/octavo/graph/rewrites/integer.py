"""I-BERT's rewrite: GELU, softmax and LayerNorm of a quantized graph compute in integers."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from octavo.errors import ModelError, SpecError
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer, State, require_integers
from octavo.graph.rewrites.editing import Editor
from octavo.graph.sites.flow import CARRIER, FUSED_ATTENTION, PRODUCT, operation
from octavo.numerics.integer_functions import LARGEST, integer_gelu, integer_layer_norm, integer_softmax
from octavo.spec import IntegerFunctions, PerChannel

_HOLDER = "integer"
# Inside a layer these mean that a function or a norm is written out in a form that is not recognised.
_UNKNOWN = FUSED_ATTENTION | frozenset(
    "tanh sigmoid silu exp erf rsqrt sqrt pow rms_norm mish hardswish elu".split()
)


def integer_only(model: QuantizedEncoder) -> QuantizedEncoder:
    """Return a model whose GELU, softmax and LayerNorm run in integers (I-BERT); `model` stays as it is.

    Each of them must read tensors with one static scale: a per-tensor quantizer before softmax and
    LayerNorm, and before GELU a linear layer whose input and weight are quantized. ReLU is an integer
    function already and stays, as does the tanh of a pooler, outside the layers. Integers inside, handed on
    as floats: a simulation. The model may have no ranges yet.
    """
    if IntegerFunctions() in model.passes:
        raise SpecError(f"{model.name} has integer functions already")
    require_integers(model.quantizers.values(), IntegerFunctions.variant_name)
    rewriter = _Rewriter(model)
    rewriter.run()
    return model.rewritten(
        IntegerFunctions(), graph=rewriter.editor.finish(), quantizers=rewriter.editor.quantizers
    )


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
        if not quantizer.spec.granularity.has_one_scale or quantizer.spec.dynamic:
            raise SpecError(
                self._message(reader, f"reads {quantizer.site.name}, which has not one static scale")
                + f"; use per-tensor at {quantizer.site.name}"
            )

    def _has_rows(self, weight: Quantizer) -> bool:
        granularity = weight.spec.granularity
        return granularity.has_one_scale or granularity == PerChannel(axis=0)

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


class IntegerFunction(nn.Module):
    """A function of a tensor that lies on a grid: the product of the scales of some quantizers and a factor.

    It computes in integers once they all are fixed; while ranges are being found, or are switched off, in
    float. Scales are read at every call, so that a model can be rewritten first and calibrated or loaded
    afterwards.
    """

    def __init__(self, sources: tuple[Quantizer, ...], factor: float = 1.0) -> None:
        super().__init__()
        self._sources = sources  # in a tuple, because they belong to their own sites in the graph
        self.factor = factor

    @property
    def is_active(self) -> bool:
        """Whether the input is on its grid."""
        return all(source.state is State.FIX for source in self._sources)

    def grid(self) -> Tensor:
        """The scale of the input, 0-d, or (channels,) where weights have a scale for every row."""
        result = torch.tensor(self.factor, dtype=torch.float64, device=self._sources[0].scale.device)
        for source in self._sources:
            scale = source.scale.double()
            result = result * (scale.reshape(()) if scale.numel() == 1 else scale[source.index])
        return result

    def integers(self, x: Tensor, scale: Tensor) -> Tensor:
        """The 32-bit accumulators that the input stands for, int64."""
        return (x.double() / scale).clamp(-LARGEST, LARGEST).round().long()


class IntegerGelu(IntegerFunction):
    """GELU of a linear layer's output, whose grid is that of its input times that of its weight."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return functional.gelu(x)
        q, scale = integer_gelu(self.integers(x, self.grid()), self.grid())
        return (q * scale).to(x.dtype)


class IntegerSoftmax(IntegerFunction):
    """Softmax along the last axis; masked positions are far below every other."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return torch.softmax(x, -1)
        q, scale = integer_softmax(self.integers(x, self.grid()), self.grid())
        return (q * scale).to(x.dtype)


class IntegerLayerNorm(IntegerFunction):
    """LayerNorm over the last axis; its weight goes into the scale of a channel, its bias onto that grid."""

    _SMALLEST = 2.0**-20  # a weight of 0 would leave no grid for the bias

    def __init__(self, sources: tuple[Quantizer, ...], eps: float) -> None:
        super().__init__(sources)
        self.eps = eps

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if not self.is_active:
            return functional.layer_norm(x, (x.shape[-1],), weight, bias, self.eps)
        q, scale = integer_layer_norm(self.integers(x, self.grid()), self.grid(), self.eps)
        sign = torch.where(weight < 0, -1.0, 1.0)
        scale = scale.to(x.device) * sign * weight.double().abs().clamp(min=self._SMALLEST)
        q = q + (bias.double() / scale).round().long()
        return (q * scale).to(x.dtype)
