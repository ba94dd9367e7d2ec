from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import octavo
from octavo.errors import CalibrationError, OctavoWarning, SiteError, SpecError
from octavo.graph import Encoder, Head, QuantizedEncoder
from octavo.graph.quantizers.watch import probe, watched
from octavo.methods import load
from octavo.runtime import BACKENDS
from octavo.spec import (
    AllMinMax,
    Equalization,
    Equalize,
    Fold,
    MigrateGamma,
    Override,
    PerChannel,
    PerEmbedding,
    PerGroup,
    Recipe,
    ShiftAndScale,
    SmoothQuant,
    TensorSpec,
)
from octavo.spec.presets import recipe
from tests.graph import families

NORMS = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")
HEADS = ("value", "attention_context", "query", "key")
EVERYTHING = (*NORMS, *HEADS, "ffn_hidden")
BATCHES = [families.batch((3, 12), seed=seed) for seed in range(3)]
PASSES: dict[str, Equalization] = {
    "fold": Fold(roles=EVERYTHING, optional=True, power=1.0),
    "smooth-quant": SmoothQuant(roles=EVERYTHING, optional=True),
    "migrate-gamma": MigrateGamma(roles=NORMS, optional=True),
    "shift-and-scale": ShiftAndScale(roles=(*NORMS, *HEADS), optional=True, thresholds=3),
    "scale": ShiftAndScale(roles=EVERYTHING, optional=True, thresholds=3, shift=False),
    "equalize": Equalize(roles=EVERYTHING, optional=True),
}
SUBJECTS: list[tuple[str, Head]] = [
    ("bert", "sequence-classification"),
    ("roberta-prelayernorm", "sequence-classification"),
    ("modernbert", "sequence-classification"),
    ("albert", "sequence-classification"),
    ("mobilebert", "token-classification"),
    ("distilbert", "encoder"),
    ("roberta", "sequence-classification"),
    ("eurobert", "sequence-classification"),
]
pytestmark = pytest.mark.filterwarnings("ignore:.* sites are not folded")


def wide(*passes: Equalization, bits: int = 16) -> Recipe:
    return replace(
        recipe("int8"),
        name="wide",
        weights=TensorSpec(bits=bits, symmetric=True, granularity=recipe("int8").weights.granularity),  # type: ignore[union-attr]
        activations=TensorSpec(bits=bits, estimator=AllMinMax()),
        passes=passes,
    )


def outputs(model: Encoder, batch: dict[str, Tensor] = BATCHES[0]) -> Tensor:
    return model(batch)[model.output_names[0]]


def passes_of(name: str, family: str) -> Equalization:
    """The pass, without what a family refuses: RMS norms and norms that sums read as well take no shift."""
    if name != "shift-and-scale" or family not in ("modernbert", "eurobert", "mobilebert"):
        return PASSES[name]
    return replace(PASSES[name], roles=("value",) if family != "modernbert" else ("ffn_input", "value"))


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize(("family", "head"), SUBJECTS, ids=[family for family, _ in SUBJECTS])
def test_at_16_bits_every_pass_is_the_identity(name: str, family: str, head: Head) -> None:
    _, float_model = families.captured(family, head)
    model = octavo.quantize(float_model, wide(passes_of(name, family)), calibration=BATCHES)
    # other sites are on a grid of 16 bits too: far below what a wrongly scaled weight does
    torch.testing.assert_close(outputs(model), outputs(float_model), rtol=0, atol=3e-3)


@pytest.mark.parametrize("name", ["fold", "shift-and-scale", "equalize"])
@pytest.mark.parametrize(("family", "head"), SUBJECTS, ids=[family for family, _ in SUBJECTS])
def test_a_saved_model_gives_the_same_bits(name: str, family: str, head: Head, tmp_path: Path) -> None:
    _, float_model = families.captured(family, head)
    model = octavo.quantize(float_model, wide(passes_of(name, family), bits=8), calibration=BATCHES)
    again = load(model.save(tmp_path / "saved"))
    assert isinstance(again, QuantizedEncoder) and again.passes == model.passes
    assert torch.equal(outputs(again), outputs(model))


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(("family", "head"), SUBJECTS, ids=[family for family, _ in SUBJECTS])
def test_an_exported_model_computes_the_simulation(
    family: str, head: Head, backend: str, tmp_path: Path
) -> None:
    pytest.importorskip(backend)
    _, float_model = families.captured(family, head)
    shifted = replace(PASSES["equalize"], powers=(), alphas=(), thresholds=0)  # nothing, or a shift
    done = (replace(shifted, skip_roles=NORMS), replace(PASSES["equalize"], roles=NORMS))
    model = octavo.quantize(float_model, wide(*done, bits=8), calibration=BATCHES)
    file = octavo.export(model, tmp_path / "model.onnx", backend=backend)
    run = BACKENDS[backend].open(file, exact=True)
    batch = {name: BATCHES[0][name] for name in model.inputs if name in BATCHES[0]}
    batch |= {n: torch.zeros_like(batch["input_ids"]) for n in model.inputs if n not in batch}
    found = run({name: tensor.numpy() for name, tensor in batch.items()})[model.output_names[0]]
    scale = outputs(model).abs().max()
    assert float((torch.as_tensor(found) - outputs(model)).abs().max()) < 0.05 * float(scale)


# -- what is chosen ------------------------------------------------------------------------------------------


# the two halves of few texts have other ranges, and what one half would clip of the other counts
MANY = [families.batch((8, 12), seed=seed) for seed in range(8)]


def outlying() -> Encoder:
    """A BERT whose FFN input has two dimensions a hundred times larger than the rest."""
    encoder = families.fresh("bert", "encoder")
    with torch.no_grad():
        for name, parameter in encoder.graph.named_parameters():
            if name.endswith("attention.output.LayerNorm.weight"):
                parameter[:2] *= 100
    return encoder


def hidden(model: QuantizedEncoder) -> Tensor:
    """What the first layer that reads the outliers makes of them."""
    found = []
    site = "layers.0.ffn_hidden"
    with watched({site: model.quantizers[site]}, lambda _, x: found.append(x.clone())):
        model(BATCHES[0])
    return found[0]


def error(encoder: Encoder, *passes: Equalization) -> float:
    only = replace(wide(*passes), overrides=(*wide().overrides, Override(roles=("ffn_input",), bits=8)))
    model = octavo.quantize(encoder, only, calibration=MANY)
    return float((hidden(model) - hidden(probe(encoder))).square().mean())


def test_every_method_helps_where_few_dimensions_are_large() -> None:
    encoder = outlying()
    plain = error(encoder)
    for name in ("fold", "smooth-quant", "migrate-gamma", "shift-and-scale", "equalize"):
        assert error(encoder, replace(PASSES[name], roles=("ffn_input",))) < plain / 3, name


def test_a_relu_takes_factors_into_the_layer_before_it() -> None:
    """MobileBERT: nothing is added to the graph at the FFN's hidden tensor."""
    _, encoder = families.captured("mobilebert")
    model = octavo.quantize(encoder, wide(Fold(roles=("ffn_hidden",)), bits=8), calibration=BATCHES)
    assert not [name for name, _ in model.graph.named_parameters() if name.startswith("folded.")]
    assert len(model.graph.graph.nodes) == len(
        octavo.quantize(encoder, wide(bits=8), calibration=BATCHES).graph.graph.nodes
    )


def test_a_gate_takes_factors_into_the_other_half() -> None:
    _, encoder = families.captured("modernbert")
    model = octavo.quantize(encoder, wide(Fold(roles=("ffn_hidden",)), bits=8), calibration=BATCHES)
    assert not [name for name, _ in model.graph.named_parameters() if name.startswith("folded.")]


def test_a_multiplication_is_added_only_where_it_pays() -> None:
    _, encoder = families.captured("bert")
    never = Equalize(roles=("ffn_hidden",), worth=1e-6)
    model = octavo.quantize(encoder, wide(never, bits=8), calibration=BATCHES)
    assert not [name for name, _ in model.graph.named_parameters() if name.startswith("folded.")]


@pytest.mark.parametrize(("bits", "shifts"), [(8, True), (6, True), (5, False), (4, False)])
def test_nothing_is_shifted_where_weights_have_few_bits(bits: int, shifts: bool) -> None:
    encoder = families.fresh("bert", "encoder")
    with torch.no_grad():
        for name, parameter in encoder.graph.named_parameters():
            if name.endswith("layer.0.attention.output.LayerNorm.bias"):
                parameter += torch.tensor([9.0, -9.0]).repeat(len(parameter) // 2)
    weights = TensorSpec(bits=bits, symmetric=True, granularity=PerChannel())

    def scale(*passes: Equalization) -> float:
        done = replace(wide(*passes, bits=8), weights=weights)
        model = octavo.quantize(encoder, done, calibration=MANY)
        return float(model.quantizers["layers.0.ffn_input"].scale)

    shift = Equalize(sites=("layers.0.ffn_input",), powers=(), alphas=(), thresholds=0)  # nothing, or a shift
    assert (scale(shift) < scale() / 2) is shifts


def test_the_choice_depends_on_the_seed_alone() -> None:
    _, encoder = families.captured("bert")
    done = Equalize(roles=EVERYTHING, optional=True, tokens=16)
    first, second = (octavo.quantize(encoder, wide(done, bits=8), calibration=BATCHES) for _ in range(2))
    assert torch.equal(outputs(first), outputs(second))


def test_passes_on_other_sites_compose() -> None:
    _, encoder = families.captured("bert")
    done = (
        ShiftAndScale(roles=("ffn_input",), thresholds=2),
        SmoothQuant(roles=("ffn_hidden",)),
        Fold(roles=("value", "query")),
        MigrateGamma(roles=("layer_output",)),
    )
    model = octavo.quantize(encoder, wide(*done), calibration=BATCHES)
    torch.testing.assert_close(outputs(model), outputs(encoder), rtol=0, atol=3e-3)


# -- bad input -----------------------------------------------------------------------------------------------


def quantized(done: Equalization, family: str = "bert", *others: Equalization, **changes: Any) -> Any:
    _, encoder = families.captured(family)
    return octavo.quantize(encoder, replace(wide(*others, done), **changes), calibration=BATCHES)


def test_a_shift_that_nothing_can_take_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"no linear layer can take a shift of layers\.0\.ffn_hidden; skip it"
    ):
        quantized(ShiftAndScale(roles=("ffn_hidden",)))
    with pytest.raises(
        SpecError, match=r"can take a shift of layers\.0\.attention_input; skip it, or say shift"
    ):
        quantized(ShiftAndScale(roles=("attention_input",)), "eurobert")


def test_a_site_that_something_else_reads_is_named_with_the_reason() -> None:
    with pytest.warns(
        OctavoWarning, match=r"layers\.0\.ffn_input: not only linear layers read it\) and keep one range"
    ):
        quantized(Equalize(roles=("ffn_input", "value")), placement="full")


def test_a_pass_that_can_do_nothing_is_refused_with_a_remedy() -> None:
    sentence = (
        r"equalize: none of its 2 sites.*ffn_input: not only linear layers read it\); take the pass out or"
    )
    with pytest.raises(SpecError, match=sentence):
        quantized(Equalize(roles=("ffn_input",)), placement="full")


def test_rotated_queries_are_not_folded_and_that_is_said() -> None:
    with pytest.warns(OctavoWarning, match=r"layers\.0\.query: .*no linear layer makes it"):
        quantized(Equalize(roles=("query", "key"), optional=True), "eurobert")


def test_two_passes_for_one_set_of_channels_are_refused() -> None:
    first, second = Fold(roles=("value",)), Equalize(roles=("attention_context",))
    with pytest.raises(
        SpecError, match=r"equalize: two passes name layers\.0\.value; let one of them skip it"
    ):
        quantized(second, "bert", first)


def test_groups_are_refused() -> None:
    several = Override(roles=("value",), granularity=PerGroup(groups=2))
    with pytest.raises(SpecError, match=r"equalize: layers\.0\.value has per-group ranges.*or skip it"):
        quantized(Equalize(roles=("attention_context",)), overrides=(several,))
    with pytest.raises(SpecError, match=r"smooth-quant: layers\.0\.ffn_input has per-embedding ranges"):
        several = Override(roles=("ffn_input",), granularity=PerEmbedding())
        quantized(SmoothQuant(roles=("ffn_input",)), overrides=(several,))


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(SiteError, match=r"'layers\.9\.ffn_input' matches no site"):
        quantized(Equalize(sites=("layers.9.ffn_input",)))
    with pytest.raises(SiteError, match=r"no site of tiny bert has the role 'ffn_inputs'.*ffn_input"):
        quantized(MigrateGamma(roles=("ffn_inputs",)))


def test_sites_that_no_norm_makes_keep_their_gamma_and_that_is_said() -> None:
    with pytest.warns(OctavoWarning, match=r"2 sites are not folded.*ffn_hidden: no norm makes it"):
        quantized(MigrateGamma(roles=("ffn_input", "ffn_hidden")))
    with pytest.raises(SpecError, match=r"migrate-gamma: none of its 2 sites.*ffn_hidden: no norm makes it"):
        quantized(MigrateGamma(roles=("ffn_hidden",)))


def test_no_data_is_said() -> None:
    _, encoder = families.captured("bert")
    with pytest.raises(CalibrationError, match="equalizes channels by errors found from data; give"):
        octavo.quantize(encoder, wide(Equalize(roles=("ffn_input",))))
