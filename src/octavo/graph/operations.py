"""Operations of a captured graph by what they do to a value."""

from __future__ import annotations

import operator

import torch
from torch import fx

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
