"""Capture: a Hugging Face model becomes one flat graph of ATen operations with dynamic batch and length."""

from __future__ import annotations

import inspect
import io
import linecache
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import has_side_effect

from octavo.errors import CaptureError, DataError
from octavo.graph.capture.traits import with_own_settings
from octavo.graph.sites.flow import Flow, operation

_MOST_BATCH = 65536
# An example of 2 x 9 tokens: sizes of 0 and 1 would be baked into the graph, and equal sizes taken for one.
_EXAMPLE_SHAPE = (2, 9)
# MobileBERT's shifted embeddings need length != 2; every other family captures from 2 on.
_SHORTEST = (2, 3)


class _Positional(nn.Module):
    """Calls the model by keyword and returns the wanted outputs as a tuple, as export needs it."""

    def __init__(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(inputs)
        self.outputs = tuple(outputs)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        result = self.model(**dict(zip(self.names, tensors, strict=True)), return_dict=True)
        return tuple(getattr(result, name) for name in self.outputs)


def capture(
    model: nn.Module, inputs: Sequence[str], outputs: Sequence[str], max_length: int, name: str
) -> fx.GraphModule:
    """Export `model` (in eval mode) to a trainable graph that takes `inputs` and returns `outputs`.

    Every input is an integer tensor (batch, length); `max_length` bounds the length. Parameters are shared
    with `model` and keep its names. Dropout survives as modules, so the graph trains as the model did.
    """
    exported = _export(model, inputs, outputs, max_length, name)
    graph = _graph_module(exported, inputs, {id(tensor): path for path, tensor in model.named_parameters()})
    _drop_checks(graph, name)
    _dropout_as_modules(graph)
    graph.graph.eliminate_dead_code()
    graph.delete_all_unused_submodules()
    graph.recompile()
    _refuse_stand_ins(graph, name)
    return graph.eval()


def _export(
    model: nn.Module, inputs: Sequence[str], outputs: Sequence[str], max_length: int, name: str
) -> torch.export.ExportedProgram:
    count = len(inputs)
    example = tuple(torch.ones(_EXAMPLE_SHAPE, dtype=torch.long) for _ in range(count))
    failure: Exception | None = None
    for shortest in _SHORTEST:
        shape = {
            0: torch.export.Dim("batch", min=1, max=_MOST_BATCH),
            1: torch.export.Dim("length", min=shortest, max=max_length),
        }
        wrapper = _Positional(with_own_settings(model), inputs, outputs)
        with _noted_conditions() as conditions:
            try:
                # Without gradients, so that `with torch.no_grad()` inside a model leaves no nested graph.
                with torch.no_grad(), _quiet_export():
                    return torch.export.export(
                        wrapper, example, dynamic_shapes=((shape,) * count,), strict=False
                    )
            except Exception as error:  # of many types; each is a model that cannot be captured
                failure = error
    assert failure is not None
    raise CaptureError(_explain(failure, conditions, name)) from failure


_STAND_INS = {"zeros_like", "ones_like", "full_like", "empty_like"}
_FRAME = re.compile(r'File "\S*?(?P<module>modeling_\w+)\.py", line (?P<line>\d+)')


def _refuse_stand_ins(graph: fx.GraphModule, name: str) -> None:
    """Refuse a model in which a constant stands where a layer reads a result.

    MRA returns zeros for its attention where its CUDA kernel is missing; whatever follows means nothing.
    """
    for value in Flow(graph).ordered():
        read = [reader for reader in value.readers if reader.op != "output"]
        if operation(value.node) in _STAND_INS and read and not _is_filled(value.node):
            raise CaptureError(
                f"{name}: the model computes a constant{_place(value.node)} ({operation(value.node)}), where "
                "its next layer reads a result. A kernel that it needs is missing, and its outputs would "
                "mean nothing; use a version of the model that needs none"
            )


def _is_filled(node: fx.Node) -> bool:
    """Return whether something writes into a tensor after it was made."""
    schemas = [getattr(user.target, "_schema", None) for user in node.users]
    return any(schema is not None and schema.is_mutable for schema in schemas)


def _explain(failure: Exception, conditions: Sequence[str], name: str) -> str:
    """Say which operation cannot be captured, where it stands in the model's code, and why."""
    reason = next(
        (line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__
    )
    places = _frames_outside_torch(failure)
    if reason.startswith("Constraints violated"):
        reason, places = "what it computes depends on the length of the texts", list(conditions)
    where = f" in {places[-1]}" if places else ""
    raised = type(failure)
    own = issubclass(raised, AttributeError | TypeError | ValueError) and "torch" not in raised.__module__
    advice = (
        "Octavo gives it token ids and an attention mask, no other input"
        if own
        else "a model is capturable when its forward has no control flow that depends on data or length"
    )
    return f"{name}: torch.export cannot capture this model{where}: {reason} ({advice})"


def _frames_outside_torch(failure: BaseException) -> list[str]:
    """Places in the model's own code, outermost first, each with its line of source."""
    places = []
    trace = failure.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        module = trace.tb_frame.f_globals.get("__name__", "")
        if ".modeling_" in module or module.startswith("transformers_modules"):
            source = linecache.getline(code.co_filename, trace.tb_lineno).strip()
            place = f"{module.rsplit('.', 1)[-1]}.{code.co_qualname}, line {trace.tb_lineno}"
            places.append(f"{place}, `{source}`")
        trace = trace.tb_next
    return places


_CONDITION = re.compile(
    r"eval (?P<what>.+) \[guard added\] \(\S*?(?P<module>modeling_\w+)\.py:(?P<line>\d+) in"
)


@contextmanager
def _noted_conditions() -> Iterator[list[str]]:
    """Yield a list of the places in a model's code that compare sizes, filled as export meets them."""
    places: list[str] = []

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found = _CONDITION.search(record.getMessage())
            if found is not None:
                places.append(f"{found['module']}, line {found['line']} ({found['what']})")

    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    before = logger.handlers, logger.level, logger.propagate
    # torch's own handler would print every remark
    logger.handlers, logger.propagate = [Note()], False
    logger.setLevel(logging.INFO)
    try:
        yield places
    finally:
        logger.handlers, level, logger.propagate = before
        logger.setLevel(level)


@contextmanager
def _quiet_export() -> Iterator[None]:
    """torch.export logs and prints each failed attempt at length; our error says it in one sentence."""
    logger = logging.getLogger("torch.export")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)


def _graph_module(
    exported: torch.export.ExportedProgram, inputs: Sequence[str], paths: Mapping[int, str]
) -> fx.GraphModule:
    """A plain GraphModule with the model's parameter names (`paths`, by identity) and the given inputs."""
    lifted = _unlifted(exported)
    root = nn.Module()
    graph = lifted.graph
    for node in list(graph.nodes):
        if node.op == "get_attr":
            value = _attribute(lifted, str(node.target))
            # tied parameters have several names and export picks any: the model's first name is stable
            node.target = paths.get(id(value), str(node.target).removeprefix("model."))
            _attach(root, node.target, value)
    holders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, name in zip(holders, inputs, strict=True):
        node.target = name
        node.name = name
    _flatten_output(graph)
    graph.set_codegen(fx.graph.CodeGen())
    return fx.GraphModule(root, graph)


def _unlifted(exported: torch.export.ExportedProgram) -> fx.GraphModule:
    """The program as a module, without the input checks that newer versions of torch add to it."""
    options = inspect.signature(exported.module).parameters
    module = exported.module(**({"check_guards": False} if "check_guards" in options else {}))
    assert isinstance(module, fx.GraphModule)
    return module


def _flatten_output(graph: fx.Graph) -> None:
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    results = output.args[0]
    output.args = (tuple(results) if isinstance(results, list | tuple) else (results,),)


def _attribute(module: nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _attach(root: nn.Module, path: str, value: Any) -> None:
    """Put a parameter or constant at a dotted path below `root`, making the modules on the way."""
    *parents, leaf = path.split(".")
    module = root
    for part in parents:
        if not hasattr(module, part):
            module.add_module(part, nn.Module())
        module = getattr(module, part)
    if hasattr(module, leaf):
        return
    if isinstance(value, nn.Parameter):
        module.register_parameter(leaf, value)
    elif isinstance(value, Tensor):
        module.register_buffer(leaf, value, persistent=False)
    else:
        setattr(module, leaf, value)


@has_side_effect
def require(condition: bool, sentence: str) -> None:
    """Refuse a batch for which a condition of the model's own code does not hold."""
    if not condition:
        raise DataError(sentence)


def _drop_checks(graph: fx.GraphModule, name: str) -> None:
    """Remove run-time assertions of export: lengths and devices are checked where batches are made.

    Where the model's own code wants two numbers to be equal that texts decide, the check stays: T5's
    classifiers would else read another text's tokens.
    """
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or "_assert" not in str(node.target) or node.users:
            continue
        if _is_equality_of_data(node):
            source = (node.meta.get("stack_trace") or "").strip().splitlines()[-1:]
            said = f"`{source[0].strip().rstrip(',')}`{_place(node)}" if source else str(node.args[1])
            sentence = (
                f"{name}: the model's own code refuses these texts in one batch, since {said} does not hold; "
                "run each in a batch of its own"
            )
            with graph.graph.inserting_before(node):
                graph.graph.call_function(require, (node.args[0], sentence))
        graph.graph.erase_node(node)


def _is_equality_of_data(node: fx.Node) -> bool:
    condition = node.args[0]
    found = condition.meta.get("val") if isinstance(condition, fx.Node) else None
    is_equality = str(getattr(getattr(found, "node", None), "expr", "")).startswith("Eq(")
    return is_equality and bool(free_unbacked_symbols(found))


def _place(node: fx.Node) -> str:
    """Return where a node stands in the model's code: " in modeling_mra, line 591"."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return f" in {frames[-1][0]}, line {frames[-1][1]}" if frames else ""


def _dropout_as_modules(graph: fx.GraphModule) -> None:
    """Give every dropout a module, so that `train()` and `eval()` mean what they mean in the model."""
    count = 0
    for node in list(graph.graph.nodes):
        if node.target is not torch.ops.aten.dropout.default:
            continue
        name = f"dropout_{count}"
        count += 1
        graph.add_submodule(name, nn.Dropout(node.args[1]))
        with graph.graph.inserting_after(node):
            module = graph.graph.call_module(name, (node.args[0],))
        module.meta = dict(node.meta)
        node.replace_all_uses_with(module)
        graph.graph.erase_node(node)


def move(graph: fx.GraphModule, device: torch.device) -> None:
    """Move parameters to `device` and with them the devices that export wrote into the operations.

    A graph that shares its parameters gets its own on the new device; the others stay where they are.
    """
    moved: dict[nn.Parameter, nn.Parameter] = {}
    for module in graph.modules():
        for name, old in module.named_parameters(recurse=False, remove_duplicate=False):
            if old.device != device:
                new = moved.setdefault(old, nn.Parameter(old.detach().to(device), old.requires_grad))
                module.register_parameter(name, new)
    graph.to(device)
    for node in graph.graph.nodes:
        node.args = fx.node.map_aggregate(
            node.args, lambda value: device if isinstance(value, torch.device) else value
        )
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": device}
    graph.recompile()
