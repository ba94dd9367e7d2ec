"""Editing a captured graph: new operations, parameters and quantizers, with the shapes export recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, fx, nn

from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.sites.flow import first_value

HOLDER = "quantizers"
"""The submodule of a graph that holds its quantizers."""


class Editor:
    """A copy of a quantized graph, open for changes; the original stays as it is.

    Arguments:
        source: the graph to copy; parameters are shared, quantizers are copied.
        quantizers: those of the graph, by site name; `self.quantizers` are the copies.
    """

    def __init__(self, source: fx.GraphModule, quantizers: Mapping[str, Quantizer]) -> None:
        self.module = fx.GraphModule(source, deepcopy(source.graph))
        self.graph = self.module.graph
        self.device = next((each.device for each in self.module.parameters()), torch.device("cpu"))
        self.quantizers = {name: copy_quantizer(quantizer) for name, quantizer in quantizers.items()}
        for name, quantizer in self.quantizers.items():
            self._holder().add_module(label(name), quantizer)
        # Dropout: `train()` must not switch that of the original. Integer functions read the grids of
        # quantizers, of the copies from now on.
        copies = {id(quantizers[name]): copy for name, copy in self.quantizers.items()}
        for node in self.graph.nodes:
            if node.op == "call_module" and self.quantizer_at(node) is None:
                original = self.module.get_submodule(str(node.target))
                self._put(str(node.target), deepcopy(original, dict(copies)))

    def finish(self) -> fx.GraphModule:
        """Drop what nothing reads any more and return the graph."""
        self.graph.eliminate_dead_code()
        self.module.delete_all_unused_submodules()
        self.graph.lint()
        self.module.recompile()
        return self.module

    @contextmanager
    def after(self, node: fx.Node) -> Iterator[None]:
        """Insert what is added in this block behind `node`."""
        with self.graph.inserting_before(node.next):
            yield

    # -- adding --------------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> fx.Node:
        """Add an ATen operation; its shape comes from running it on the shapes of its arguments."""
        node = self.graph.call_function(function, args, options)
        values = fx.node.map_arg(args, lambda n: n.meta["val"])
        inputs = (first_value(n) for n in node.all_input_nodes)
        modes = (getattr(value, "fake_mode", None) for value in inputs)
        mode = next((mode for mode in modes if mode is not None), None)
        if mode is not None:
            with mode, torch.no_grad():
                node.meta["val"] = function(*values, **options)
        return node

    def tensor(self, path: str, value: Tensor, like: fx.Node) -> fx.Node:
        """Add a parameter (if `value` is one) or a constant at a dotted path; `like` is any activation."""
        *parents, leaf = path.split(".")
        holder = self._holder(*parents)
        if isinstance(value, nn.Parameter):
            if value.device != self.device:
                value = nn.Parameter(value.detach().to(self.device), requires_grad=value.requires_grad)
            holder.register_parameter(leaf, value)
        else:
            holder.register_buffer(leaf, value.to(self.device), persistent=False)
        node = self.graph.get_attr(path)
        # the recorded shapes stay on the device and in the type of capture, whatever the model is moved to
        with like.meta["val"].fake_mode:
            dtype = like.meta["val"].dtype if value.is_floating_point() else value.dtype
            node.meta["val"] = torch.empty(value.shape, dtype=dtype, device=like.meta["val"].device)
        return node

    def quantize(self, node: fx.Node, quantizer: Quantizer) -> fx.Node:
        """Add a quantizer, named for its site, behind a node."""
        name = quantizer.site.name
        self.quantizers[name] = quantizer
        self._holder().add_module(label(name), quantizer)
        call = self.graph.call_module(f"{HOLDER}.{label(name)}", (node,))
        call.meta = dict(node.meta)
        return call

    def erase(self, node: fx.Node) -> None:
        """Remove a node that nothing reads any more; one that is read stays."""
        if not node.users:
            self.graph.erase_node(node)

    def _put(self, path: str, module: nn.Module) -> None:
        *parents, leaf = path.split(".")
        holder = self._holder(*parents) if parents else self.module
        holder.add_module(leaf, module)

    def _holder(self, *path: str) -> nn.Module:
        module: nn.Module = self.module
        for part in path or (HOLDER,):
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        return module

    # -- asking --------------------------------------------------------------------------------------------

    def quantizer_at(self, node: fx.Node) -> Quantizer | None:
        """The quantizer that a node calls, if it calls one."""
        if node.op != "call_module":
            return None
        module = self.module.get_submodule(str(node.target))
        return module if isinstance(module, Quantizer) else None

    def call_of(self, site: str) -> fx.Node:
        """The node that calls the quantizer of an activation site."""
        target = f"{HOLDER}.{label(site)}"
        found: fx.Node = next(n for n in self.graph.nodes if n.op == "call_module" and n.target == target)
        return found

    def parameter(self, node: fx.Node) -> tuple[nn.Parameter, Quantizer | None] | None:
        """The parameter a node stands for, with its quantizer; None where it is computed from others."""
        quantizer = self.quantizer_at(node)
        source = node.args[0] if quantizer is not None else node
        if not isinstance(source, fx.Node) or source.op != "get_attr":
            return None
        return self.module.get_parameter(str(source.target)), quantizer


def label(site: str) -> str:
    """The name of a site as an attribute of a module."""
    return site.replace(".", "_")


def copy_quantizer(quantizer: Quantizer) -> Quantizer:
    """A quantizer with the same state that can be changed alone; a cached weight is shared."""
    shared = {} if quantizer.constant is None else {id(quantizer.constant): quantizer.constant}
    return deepcopy(quantizer, shared)
