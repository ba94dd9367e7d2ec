"""A quantized encoder: a graph with a quantizer at every site its recipe covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, fx

from octavo.errors import CalibrationError, ModelError, SiteError, SpecError, did_you_mean
from octavo.graph.encoder import Batch, Encoder
from octavo.graph.quantizers.quantizer import Quantizer, State
from octavo.graph.sites.flow import CARRIER, FUSED_ATTENTION, LINEAR, MATMUL, operation
from octavo.graph.sites.site import Site, in_placement
from octavo.numerics.affine import with_half_scales
from octavo.spec import Pass, Recipe

_HOLDER = "quantizers"
_OF_COSINES = frozenset({"acos", "asin", "arccos", "arcsin"})


@dataclass(eq=False, kw_only=True)
class QuantizedEncoder(Encoder):
    """An encoder that simulates quantization by its recipe.

    Arguments:
        recipe: what was asked for.
        quantizers: the quantizer of every covered site, by name, weights included.
        provenance: where the ranges come from (calibration texts, seed), for `octavo.json`.
        passes: what was done to it, in order, so that loading can do it again.
        added: the tensors that passes added to the graph, with those that a later pass replaced.
        group_index: (width,) the group of every channel, for the sites that a split cut into pieces.
        float_model: the float model that weights were rounded from, while passes that need it are to come.
    """

    recipe: Recipe
    quantizers: dict[str, Quantizer]
    provenance: dict[str, Any] = field(default_factory=dict)
    sites: tuple[tuple[Site, ...], tuple[Site, ...]]
    passes: tuple[Pass, ...] = ()
    added: frozenset[str] = frozenset()
    group_index: dict[str, Tensor] = field(default_factory=dict)
    float_model: Encoder | None = None

    @property
    def activation_sites(self) -> tuple[Site, ...]:
        """Every activation site of the model, covered or not."""
        return self.sites[0]

    @property
    def weight_sites(self) -> tuple[Site, ...]:
        """Every weight site of the model, covered or not."""
        return self.sites[1]

    @property
    def depends_on_batch(self) -> bool:
        """Whether a text's result depends on its neighbours: dynamic ranges of a whole batch, padding too."""
        return any(q.spec.dynamic and not q.spec.granularity.is_per_token for q in self.quantizers.values())

    def outputs(self, batch: Mapping[str, Tensor]) -> Batch:
        """Run a batch; text by text and without padding where results depend on the batch."""
        if not self.depends_on_batch:
            return super().outputs(batch)
        ids = batch["input_ids"]
        mask = batch.get("attention_mask", torch.ones_like(ids)).bool()
        rows = [
            super(QuantizedEncoder, self).outputs({n: x[i : i + 1, mask[i]] for n, x in batch.items()})
            for i in range(len(ids))
        ]
        return {name: self._together([row[name] for row in rows], mask) for name in self.output_names}

    def _together(self, results: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the results of single texts as those of a batch; zero where there is padding."""
        if self.head == "sequence-classification":
            return torch.cat(list(results))
        whole = results[0].new_zeros((*mask.shape, *results[0].shape[2:]))
        for position, result in enumerate(results):
            whole[position, mask[position].to(whole.device)] = result[0]
        return whole

    def matching(self, pattern: str) -> dict[str, Quantizer]:
        """The quantizers whose site matches a shell pattern; none is an error with the nearest names."""
        found = {name: q for name, q in self.quantizers.items() if fnmatchcase(name, pattern)}
        if not found:
            raise SiteError(
                f"{pattern!r} matches no quantized site of {self.name}"
                f"{did_you_mean(pattern, self.quantizers)}"
            )
        return found

    def set_state(self, pattern: str, state: Literal["fix", "learn", "off"]) -> None:
        """Switch quantizers: `fix` quantizes with the ranges found, `learn` trains them, `off` passes."""
        for quantizer in self.matching(pattern).values():
            if state == "fix":
                quantizer.fix()
            elif state == "learn":
                quantizer.learn()
            elif state == "off":
                quantizer.turn_off()
            else:
                raise SpecError(f"unknown state {state!r}; use fix, learn or off")
        self.refresh_weights()

    def refresh_weights(self) -> None:
        """Quantize every fixed weight once, so that a forward pass reads it instead of computing it again."""
        for site in self.weight_sites:
            quantizer = self.quantizers.get(site.name)
            if quantizer is None:
                continue
            quantizer.keep(None)
            if quantizer.state is State.FIX:
                with torch.no_grad():
                    quantizer.keep(quantizer(self.parameter(site)))

    def parameter(self, site: Site) -> torch.nn.Parameter:
        """The float tensor of a weight site."""
        return self.graph.get_parameter(site.targets[0])

    def put_weight(self, site: Site, value: Tensor) -> None:
        """Replace a weight in this model alone: until then it shares the float encoder's."""
        parameter = torch.nn.Parameter(value, requires_grad=self.parameter(site).requires_grad)
        for target in site.targets:
            path, _, leaf = target.rpartition(".")
            setattr(self.graph.get_submodule(path), leaf, parameter)

    def without_quantizers(self) -> Encoder:
        """Return the float model behind this one, passes included; it keeps the parameters of this moment."""
        graph = deepcopy(self.graph.graph)
        for node in list(graph.nodes):
            if node.op == "call_module" and str(node.target).startswith(f"{_HOLDER}."):
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
        parts = {name: getattr(self, name) for name in Encoder.__dataclass_fields__}
        return Encoder(**parts | {"graph": fx.GraphModule(self.graph, graph)})

    def rewritten(self, done: Pass, **changes: Any) -> QuantizedEncoder:
        """Return a model with some parts changed by a pass, which is recorded."""
        return self.with_parts(**changes | {"passes": (*self.passes, done)})

    def with_parts(self, **changes: Any) -> QuantizedEncoder:
        """Return a model with some parts changed."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        if "graph" in changes:
            parts["added"] = self.added | (tensors_read(changes["graph"]) - tensors_read(self.graph))
        return QuantizedEncoder(**parts | changes)

    def save(self, folder: str | Path, force: bool = False) -> Path:
        """Write the model as plain files; replacing a folder needs `force`."""
        from octavo.graph.saved.write import save

        return save(self, Path(folder), force=force)


def tensors_read(graph: fx.GraphModule) -> frozenset[str]:
    """Return the parameters and constants that a graph reads, by their paths."""
    return frozenset(str(node.target) for node in graph.graph.nodes if node.op == "get_attr")


def attach(encoder: Encoder, recipe: Recipe) -> QuantizedEncoder:
    """Put a quantizer at every site the recipe covers; the encoder stays as it is and shares its weights.

    Weight ranges are found at once, activation ranges by calibration. Patterns and roles that match nothing,
    and recipes that quantize nothing here, are errors.
    """
    if isinstance(encoder, QuantizedEncoder):
        raise ModelError(f"{encoder.name} is quantized already; quantize the float model it was made from")
    check_recipe(encoder, recipe)
    activations = in_placement(encoder.activation_sites, recipe.placement)
    graph = fx.GraphModule(encoder.graph, deepcopy(encoder.graph.graph))
    _own_dropouts(graph)
    quantizers: dict[str, Quantizer] = {}
    for site in (*activations, *encoder.weight_sites):
        spec = recipe.spec(site.name, site.kind, site.role)
        if spec is not None:
            quantizers[site.name] = Quantizer(site, spec)
    if not quantizers:
        raise SpecError(f"recipe {recipe.name!r} quantizes nothing in {encoder.name}; look at `octavo sites`")
    _insert(graph, quantizers, products_only=recipe.placement == "linear-inputs")
    model = QuantizedEncoder(
        **encoder.parts() | {"graph": graph},
        recipe=recipe,
        quantizers=quantizers,
        sites=(encoder.activation_sites, encoder.weight_sites),
    )
    # new modules are in training mode, in which weights are quantized at every call
    graph.to(encoder.device).eval()
    return model


def _own_dropouts(graph: fx.GraphModule) -> None:
    """Copy the dropout modules: `train()` of the quantized model must not switch those of the float one."""
    for node in graph.graph.nodes:
        if node.op == "call_module":
            setattr(graph, str(node.target), deepcopy(graph.get_submodule(str(node.target))))
    graph.eval()


def fix_weights(model: QuantizedEncoder) -> None:
    """Find the range of every weight and quantize it."""
    for site in model.weight_sites:
        quantizer = model.quantizers.get(site.name)
        if quantizer is not None and quantizer.state is State.OBSERVE:
            try:
                quantizer.observe(model.parameter(site).detach())
                quantizer.fix()
            except CalibrationError as error:
                raise CalibrationError(f"{model.name}: the weight {error}") from error
            if site.role == "embedding_weight" and quantizer.spec.bits <= 4 and quantizer.scale.numel() > 1:
                # many, and beside rows of so few bits not small; files hold them in two bytes
                quantizer.fix(with_half_scales(quantizer.affine()))
    model.refresh_weights()


def check_recipe(encoder: Encoder, recipe: Recipe) -> None:
    """Refuse a recipe with patterns or roles that match no site of the encoder."""
    activations = in_placement(encoder.activation_sites, recipe.placement)
    covered = {site.name: site.role for site in (*activations, *encoder.weight_sites)}
    everything = {site.name for site in encoder.activation_sites}
    for pattern in recipe.patterns():
        if not any(fnmatchcase(name, pattern) for name in covered):
            outside = any(fnmatchcase(name, pattern) for name in everything)
            hint = (
                f"; placement {recipe.placement} does not cover it"
                if outside
                else did_you_mean(pattern, covered)
            )
            raise SiteError(f"recipe {recipe.name!r}: {pattern!r} matches no site of {encoder.name}{hint}")
    known_roles = set(covered.values())
    for role in recipe.roles():
        if role not in known_roles:
            raise SiteError(
                f"recipe {recipe.name!r}: no site of {encoder.name} has the role {role!r}"
                f"{did_you_mean(role, known_roles)}"
            )


def _insert(graph: fx.GraphModule, quantizers: Mapping[str, Quantizer], products_only: bool) -> None:
    """Put every quantizer behind its site; with `products_only` only linear layers and products read it.

    An integer kernel quantizes what it reads; a residual sum beside it goes on in float.
    """
    nodes = {node.name: node for node in graph.graph.nodes}
    attributes: dict[str, list[fx.Node]] = {}
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            attributes.setdefault(str(node.target), []).append(node)
    holder = torch.nn.Module()
    graph.add_submodule(_HOLDER, holder)
    for name, quantizer in quantizers.items():
        label = name.replace(".", "_")
        holder.add_module(label, quantizer)
        site = quantizer.site
        places = (
            [nodes[site.targets[0]]]
            if site.kind == "activation"
            else [n for t in site.targets for n in attributes[t]]
        )
        if products_only and site.kind == "activation":
            places = [_last_carrier(places[0])]
        # a weight is stored once, on its grid: whatever reads a table that a head shares reads that
        narrow = products_only and site.kind == "activation"
        for node in places:
            readers = [user for user in node.users if _only_products_read(user)] if narrow else []
            _insert_after(graph, node, f"{_HOLDER}.{label}", readers or list(node.users))
        quantizer.inplace = site.kind == "activation" and _owns_its_memory(places[0])
    _stay_in_domain(graph)
    graph.recompile()


def _stay_in_domain(graph: fx.GraphModule) -> None:
    """Keep what arc cosines read between -1 and 1: factors of a product that are rounded may pass it."""
    for node in list(graph.graph.nodes):
        if operation(node) in _OF_COSINES:
            (source,) = node.all_input_nodes
            with graph.graph.inserting_before(node):
                kept = graph.graph.call_function(torch.ops.aten.clamp.default, (source, -1.0, 1.0))
            kept.meta = dict(source.meta)
            node.replace_input_with(source, kept)


def _insert_after(graph: fx.GraphModule, node: fx.Node, target: str, readers: Sequence[fx.Node]) -> None:
    with graph.graph.inserting_after(node):
        call = graph.graph.call_module(target, (node,))
    call.meta = dict(node.meta)
    for reader in readers:
        reader.replace_input_with(node, call)


def _last_carrier(node: fx.Node) -> fx.Node:
    """Behind dropout, which a sum and a linear layer may both read."""
    while len(node.users) == 1 and operation(next(iter(node.users))) == "dropout":
        node = next(iter(node.users))
    return node


def _only_products_read(node: fx.Node) -> bool:
    """Whether a reader is a product, or carries the tensor on to products alone."""
    name = operation(node)
    if name in LINEAR | MATMUL | FUSED_ATTENTION:
        return True
    return name in CARRIER and bool(node.users) and all(_only_products_read(user) for user in node.users)


def _owns_its_memory(node: fx.Node) -> bool:
    """Whether a node makes a tensor of its own that only its quantizer reads: it may be overwritten."""
    if len(node.users) != 1 or node.op != "call_function" or operation(node) in CARRIER | {"getitem"}:
        return False
    schema = getattr(node.target, "_schema", None)
    # `add_` and views say in their schema that their result is (part of) an argument
    return schema is not None and all(result.alias_info is None for result in schema.returns)
