"""What must hold for every encoder family, whatever its architecture."""

from __future__ import annotations

import difflib
import math
from collections import Counter

import pytest
import torch
from torch import Tensor, fx, nn

from octavo.graph import Encoder, Head, attach, in_placement
from octavo.methods import calibrate, quantize
from octavo.spec import AllMinMax, Recipe, TensorSpec
from tests.golden.sites import golden_file, render
from tests.graph import families

Pair = tuple[nn.Module, Encoder]
# (batch, length) other than the (2, 9) that was captured.
SHAPES = ((1, 9), (3, 17), (5, 4), (2, families.LENGTH))
EVERYTHING = Recipe(
    name="everything",
    weights=TensorSpec(symmetric=True),
    activations=TensorSpec(estimator=AllMinMax()),
)
LINEAR_INPUTS = Recipe(
    name="linear inputs",
    placement="linear-inputs",
    weights=None,
    activations=TensorSpec(estimator=AllMinMax()),
)
HEADS: tuple[tuple[str, Head], ...] = (
    ("bert", "encoder"),
    ("bert", "token-classification"),
    ("bert", "question-answering"),
    ("bert", "masked-lm"),
    ("roberta", "masked-lm"),
    ("mobilebert", "masked-lm"),
    ("albert", "masked-lm"),
    ("distilbert", "question-answering"),
    ("electra", "token-classification"),
    ("mpnet", "encoder"),
    ("modernbert", "encoder"),
)


def difference(network: nn.Module, encoder: Encoder, batch: dict[str, Tensor]) -> float:
    with torch.no_grad():
        expected = network(**batch)
    results = encoder(batch)
    assert tuple(results) == encoder.output_names
    return max(float((results[name] - expected[name]).abs().max()) for name in encoder.output_names)


@pytest.mark.parametrize("padded", [False, True], ids=["unpadded", "padded"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_equal_hugging_face(pair: Pair, shape: tuple[int, int], padded: bool) -> None:
    assert difference(*pair, families.batch(shape, padded)) <= 1e-6


def test_quantizers_that_are_off_change_nothing(pair: Pair) -> None:
    network, encoder = pair
    model = attach(encoder, EVERYTHING)
    model.set_state("*", "off")
    assert difference(network, model, families.batch((3, 11), padded=True)) <= 1e-6


def test_sites_are_those_of_the_snapshot(family: str, pair: Pair) -> None:
    golden = golden_file(family).read_text(encoding="utf-8")
    found = render(pair[1])
    changes = "\n".join(difflib.unified_diff(golden.splitlines(), found.splitlines(), "snapshot", "now", n=1))
    message = (
        f"sites of {family} changed; if that is right, run python -m tests.golden.update {family}\n{changes}"
    )
    assert found == golden, message


def test_names_are_unique_and_weights_end_in_weight(pair: Pair) -> None:
    sites = (*pair[1].activation_sites, *pair[1].weight_sites)
    assert max(Counter(site.name for site in sites).values()) == 1
    assert all(site.name.endswith(".weight") == (site.kind == "weight") for site in sites)


def test_a_site_stands_for_every_matrix_and_every_table(pair: Pair) -> None:
    _, encoder = pair
    read = {str(node.target) for node in encoder.graph.graph.nodes if node.op == "get_attr"}
    matrices = {
        path
        for path, parameter in encoder.graph.named_parameters()
        if path in read and parameter.requires_grad and sum(size > 1 for size in parameter.shape) > 1
    }
    covered = {target for site in encoder.weight_sites for target in site.targets}
    assert matrices <= covered


def test_no_quantizer_reads_the_fill_value_of_the_mask(pair: Pair) -> None:
    model = attach(pair[1], EVERYTHING)
    lowest: dict[str, float] = {}
    for name, quantizer in model.quantizers.items():
        quantizer.register_forward_pre_hook(
            lambda _, args, name=name: lowest.update({name: float(args[0].amin())})
        )
    model(families.batch((4, 12), padded=True))
    assert set(lowest) == set(model.quantizers)
    assert min(lowest.values()) > -1e4, min(lowest, key=lambda name: lowest[name])


# -- linear inputs: an independent walk over the graph -------------------------------------------------------

MOVES = (
    "view reshape transpose permute contiguous clone expand unsqueeze squeeze flatten select slice getitem "
    "split chunk unbind to t dropout im2col repeat alias"
).split()


def name_of(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target).split(".")[0].split("_")[0]
    return (
        str(getattr(node.target, "__name__", node.target)).split(".")[0].rstrip("_")
        if node.op == "call_function"
        else node.op
    )


def is_move(node: fx.Node) -> bool:
    """Nodes that only move or rescale one tensor by a number."""
    tensors = [
        n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor) and n.meta["val"].dim()
    ]
    scales = name_of(node) in ("mul", "div") and len(tensors) == 1
    return name_of(node) in MOVES or scales


def origin(node: fx.Node) -> fx.Node:
    while is_move(node):
        node = node.all_input_nodes[0]
    return node


def operands(node: fx.Node) -> list[fx.Node]:
    """What a linear layer (without its weight and bias) or a matrix product reads."""
    if name_of(node) in ("linear", "conv1d"):
        return [node.all_input_nodes[0]]
    return list(node.all_input_nodes[:2]) if name_of(node) in ("matmul", "bmm") else []


def test_linear_inputs_are_quantized_and_nothing_else(pair: Pair) -> None:
    model = attach(pair[1], LINEAR_INPUTS)
    nodes = list(model.graph.graph.nodes)
    reads = [(node, operand) for node in nodes for operand in operands(node)]
    assert reads
    for node, operand in reads:
        assert origin(operand).op == "call_module", f"{node.name} reads {origin(operand).name} in float"
    reached = {origin(operand) for _, operand in reads}
    quantizers = {
        node for node in nodes if node.op == "call_module" and str(node.target).startswith("quantizers.")
    }
    assert quantizers == reached
    assert len(quantizers) == len(in_placement(model.activation_sites, "linear-inputs"))


# -- a whole quantization ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* reads padding:octavo.OctavoWarning")
def test_a_quantized_model_is_close_repeats_itself_and_changes_with_its_bits(pair: Pair) -> None:
    _, encoder = pair
    batch = families.batch((4, 10), padded=True)
    name = encoder.output_names[0]
    exact = encoder(batch)[name]
    model = quantize(encoder, EVERYTHING, [batch])
    first, second = model(batch)[name], model(batch)[name]
    assert torch.equal(first, second)
    assert torch.equal(encoder(batch)[name], exact)  # the float model is as it was
    assert 0 < float((first - exact).norm() / exact.norm()) < 0.5
    with torch.enable_grad():
        results = model.graph(*model.arguments(batch))
    assert torch.equal(results[0], first)


@pytest.mark.parametrize(("family_name", "head"), HEADS, ids=lambda value: str(value))
def test_heads_equal_hugging_face(family_name: str, head: Head) -> None:
    network, encoder = families.captured(family_name, head)
    assert difference(network, encoder, families.batch((3, 14), padded=True)) <= 1e-6
    model = attach(encoder, EVERYTHING)
    calibrate(model, [families.batch((2, 8))])
    assert all(
        math.isfinite(float(value.sum())) for value in model(families.batch((3, 14), padded=True)).values()
    )
    ends = {"encoder": {"layer_output", "final_norm"}}.get(head, {"logits"})
    assert encoder.activation_sites[-1].role in ends
