"""Operations that work on each number by itself; hidden states stay flat through them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from octavo.errors import ModelError
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.sites.flow import operation
from octavo.runtime.translate.context import ONNX_TYPES, Translation, Value
from octavo.runtime.translate.operations.exact import EXACT, exact_gelu
from octavo.runtime.translate.operations.table import translates

_UNARY = {
    "abs": "Abs", "acos": "Acos", "ceil": "Ceil", "cos": "Cos", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "log": "Log", "neg": "Neg",
    "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
_BINARY = {
    "mul": "Mul",
    "multiply": "Mul",
    "div": "Div",
    "divide": "Div",
    "pow": "Pow",
    "min": "Min",
    "max": "Max",
    "minimum": "Min",
    "maximum": "Max",
}
_COMPARISONS = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less"}
_LOGIC = {"__and__": "And", "__or__": "Or", "logical_and": "And", "logical_or": "Or", "bitwise_and": "And"}


def operands(
    t: Translation, node: fx.Node, arguments: list[Any], dtype: torch.dtype
) -> tuple[list[str], bool]:
    """Return the operands of an elementwise operation as names, and whether they are flat.

    They are flat if one of them travels so and every other one is a number, a vector along the width or flat.
    """
    nodes = [a for a in arguments if isinstance(a, fx.Node)]
    tensors = [n for n in nodes if isinstance(n.meta.get("val"), Tensor) and n.meta["val"].dim() > 1]
    flat = (
        t.is_hidden_state(node)
        and all(t.is_hidden_state(n) and n.meta["val"].dtype == dtype for n in tensors)
        and any(t.value(n).flat for n in tensors)
    )
    if not flat:
        return [t.full(a, dtype) for a in arguments], False
    return [t.rows(a) if a in tensors else t.full(a, dtype) for a in arguments], True


@translates(*_UNARY)
def _unary(t: Translation, node: fx.Node) -> Value:
    if not isinstance(node.meta["val"], Tensor):
        return _size_arithmetic(t, node, _UNARY[operation(node)])
    dtype = node.meta["val"].dtype
    names, flat = operands(t, node, [node.args[0]], dtype)
    return Value(name=_function(t, _UNARY[operation(node)], names[0], node.name, dtype), flat=flat)


def _function(t: Translation, name: str, x: str, result: str = "", dtype: torch.dtype = torch.float32) -> str:
    """Write a function of one number, as the same bits everywhere if the file asks for it."""
    if t.options.exact_floats and dtype == torch.float32 and name in EXACT:
        return EXACT[name](t, x, result)
    return t.graph.add(name, x, name=result)


@translates(*_BINARY)
def _binary(t: Translation, node: fx.Node) -> Value:
    if not isinstance(node.meta["val"], Tensor):
        return _size_arithmetic(t, node, _BINARY[operation(node)])
    if operation(node) in ("min", "max") and not (len(node.args) == 2 and isinstance(node.args[1], fx.Node)):
        raise ModelError(f"{node.target} along an axis has no ONNX translation here; export is not possible")
    if node.kwargs.get("rounding_mode") is not None:
        return _rounded_division(t, node)
    if operation(node) == "pow" and node.args[1] == 3 and t.options.exact_floats:  # of GELU by tanh
        (name,), flat = operands(t, node, [node.args[0]], node.meta["val"].dtype)
        return Value(name=t.graph.add("Mul", t.graph.add("Mul", name, name), name, name=node.name), flat=flat)
    names, flat = operands(t, node, list(node.args[:2]), node.meta["val"].dtype)
    return Value(name=t.graph.add(_BINARY[operation(node)], *names, name=node.name), flat=flat)


def _rounded_division(t: Translation, node: fx.Node) -> Value:
    """Write a division that is rounded down or towards zero; of integers in float, which holds any size."""
    dtype = node.meta["val"].dtype
    wide = dtype if dtype.is_floating_point else torch.float64
    quotient = t.graph.add("Div", *(t.full(a, wide) for a in node.args[:2]))
    rounded = t.graph.add("Floor", quotient)
    if node.kwargs["rounding_mode"] == "trunc":
        negative = t.graph.add("Less", quotient, t.full(0.0, wide))
        rounded = t.graph.add("Where", negative, t.graph.add("Ceil", quotient), rounded)
    return Value(name=rounded if wide == dtype else t.graph.add("Cast", rounded, to=ONNX_TYPES[dtype]))


def _size_arithmetic(t: Translation, node: fx.Node, name: str) -> Value:
    return Value(name=t.once(name, *(t.size(a) for a in node.args)))


@translates("sym_min")
def _sym_min(t: Translation, node: fx.Node) -> Value:
    return _size_arithmetic(t, node, "Min")


@translates("sym_max")
def _sym_max(t: Translation, node: fx.Node) -> Value:
    return _size_arithmetic(t, node, "Max")


@translates("floordiv")
def _floordiv(t: Translation, node: fx.Node) -> Value:
    return _size_arithmetic(t, node, "Div")


@translates("add", "sub", "rsub")
def _sum(t: Translation, node: fx.Node) -> Value:
    """Write a ± alpha · b; sums of sizes as well."""
    name = operation(node)
    sign = "Add" if name == "add" else "Sub"
    if node.target in (operator.add, operator.sub):
        return _size_arithmetic(t, node, sign)
    arguments = list(node.args[:2]) if name != "rsub" else [node.args[1], node.args[0]]
    names, flat = operands(t, node, arguments, node.meta["val"].dtype)
    alpha = node.kwargs.get("alpha", 1)
    if alpha != 1:
        second = 0 if name == "rsub" else 1
        names[second] = t.graph.add("Mul", names[second], t.full(alpha, node.meta["val"].dtype))
    return Value(name=t.graph.add(sign, *names, name=node.name), flat=flat)


@translates("gelu")
def _gelu(t: Translation, node: fx.Node) -> Value:
    """Write GELU, exact or by tanh; before opset 20, which brought it, as x · ½(1 + erf(x/√2))."""
    names, flat = operands(t, node, [node.args[0]], node.meta["val"].dtype)
    approximate = str(node.kwargs.get("approximate", "none"))
    if t.options.exact_floats and approximate == "none":
        return Value(name=exact_gelu(t, names[0], node.name), flat=flat)
    if t.graph.opset >= 20 and not t.options.exact_floats:
        return Value(name=t.graph.add("Gelu", *names, name=node.name, approximate=approximate), flat=flat)
    return Value(name=_gelu_written_out(t, names[0], approximate), flat=flat)


def _gelu_written_out(t: Translation, x: str, approximate: str) -> str:
    def number(value: float) -> str:
        return t.full(value, torch.float32)

    if approximate == "tanh":
        cube = t.graph.add("Mul", t.graph.add("Mul", x, t.graph.add("Mul", x, x)), number(0.044715))
        inner = _function(
            t, "Tanh", t.graph.add("Mul", t.graph.add("Add", x, cube), number(0.7978845608028654))
        )
    else:
        inner = t.graph.add("Erf", t.graph.add("Div", x, number(1.4142135623730951)))
    return t.graph.add("Mul", t.graph.add("Mul", x, t.graph.add("Add", inner, number(1.0))), number(0.5))


@translates("silu")
def _silu(t: Translation, node: fx.Node) -> Value:
    names, flat = operands(t, node, [node.args[0]], node.meta["val"].dtype)
    return Value(
        name=t.graph.add("Mul", names[0], _function(t, "Sigmoid", names[0]), name=node.name), flat=flat
    )


@translates("rsqrt", "reciprocal")
def _rsqrt(t: Translation, node: fx.Node) -> Value:
    names, flat = operands(t, node, [node.args[0]], node.meta["val"].dtype)
    inner = t.graph.add("Sqrt", *names) if operation(node) == "rsqrt" else names[0]
    return Value(name=t.graph.add("Reciprocal", inner, name=node.name), flat=flat)


@translates("clamp", "clamp_min", "clamp_max")
def _clamp(t: Translation, node: fx.Node) -> Value:
    dtype = node.meta["val"].dtype
    low = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
    high = node.args[2] if len(node.args) > 2 else node.kwargs.get("max")
    if operation(node) == "clamp_max":
        low, high = None, low
    if _saturates(t, node, low, high):
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return t.value(source)
    name = t.full(node.args[0], dtype)
    for bound, operator_name in ((low, "Max"), (high, "Min")):
        if bound is not None:  # a bound may be a size, which Clip would want as a scalar
            name = t.graph.add(operator_name, name, t.full(bound, dtype))
    return Value(name=name)


def _saturates(t: Translation, node: fx.Node, low: object, high: object) -> bool:
    """Say whether only a quantizer reads a clamped tensor, and its grid ends at the bounds or before."""
    bounds = [t.tensor(n) for n in (low, high) if isinstance(n, fx.Node) and n.op == "get_attr"]
    readers = [t.module.get_submodule(str(user.target)) for user in node.users if user.op == "call_module"]
    if len(bounds) != 2 or len(node.users) != 1 or not readers or not isinstance(readers[0], Quantizer):
        return False
    quantizer = readers[0]
    if quantizer.site.role in t.options.left_out or quantizer.scale.numel() != 1:
        return False
    step, zero_point = float(quantizer.scale), int(quantizer.zero_point)
    ends = [(edge - zero_point) * step for edge in (quantizer.low, quantizer.high)]
    # a hundredth of a step rounds to the same integer
    return ends[0] > float(bounds[0]) - step / 100 and ends[1] < float(bounds[1]) + step / 100  # type: ignore[arg-type]


# -- truth values --------------------------------------------------------------------------------------------


@translates(*_COMPARISONS, "ne")
def _comparison(t: Translation, node: fx.Node) -> Value:
    dtype = _common(node.args[:2])
    names = [t.full(a, dtype) for a in node.args[:2]]
    if operation(node) == "ne":
        return Value(name=t.graph.add("Not", t.graph.add("Equal", *names), name=node.name))
    return Value(name=t.graph.add(_COMPARISONS[operation(node)], *names, name=node.name))


def _common(arguments: Any) -> torch.dtype:
    """Return the type that two operands are compared in."""
    parts: list[Any] = [a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments]
    left, right = (part if isinstance(part, Tensor | int | float) else 0 for part in parts)
    dtype = torch.result_type(left, right)
    return torch.int64 if dtype == torch.bool else dtype


@translates(*_LOGIC)
def _logic(t: Translation, node: fx.Node) -> Value:
    if node.meta["val"].dtype != torch.bool:
        raise ModelError(f"{node.target} of integers has no ONNX translation here; export is not possible")
    names = [t.full(a, torch.bool) for a in node.args[:2]]
    return Value(name=t.graph.add(_LOGIC[operation(node)], *names, name=node.name))


@translates("bitwise_not", "logical_not")
def _not(t: Translation, node: fx.Node) -> Value:
    if node.meta["val"].dtype != torch.bool:
        raise ModelError(f"{node.target} of integers has no ONNX translation here; export is not possible")
    return Value(name=t.graph.add("Not", t.full(node.args[0], torch.bool), name=node.name))


@translates("where")
def _where(t: Translation, node: fx.Node) -> Value:
    dtype = node.meta["val"].dtype
    names = [t.full(node.args[0], torch.bool), *(t.full(a, dtype) for a in node.args[1:3])]
    return Value(name=t.graph.add("Where", *names, name=node.name))


@translates("masked_fill")
def _masked_fill(t: Translation, node: fx.Node) -> Value:
    dtype = node.meta["val"].dtype
    names = [t.full(node.args[1], torch.bool), t.full(node.args[2], dtype), t.full(node.args[0], dtype)]
    return Value(name=t.graph.add("Where", *names, name=node.name))


# -- types ---------------------------------------------------------------------------------------------------


@translates("to", "_to_copy", "type_as", "float", "bool", "long")
def _to(t: Translation, node: fx.Node) -> Value:
    source, dtype = node.args[0], node.meta["val"].dtype
    assert isinstance(source, fx.Node)
    if source.meta["val"].dtype == dtype:
        return t.value(source)
    return Value(name=t.once("Cast", t.full(source), to=ONNX_TYPES[dtype]))


@translates("contiguous", "clone", "alias", "detach", "lift_fresh_copy", "dropout")
def _same(t: Translation, node: fx.Node) -> Value:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return t.value(source)
