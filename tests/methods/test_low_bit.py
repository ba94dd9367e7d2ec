"""Low-bit weights and token embeddings (section 5): what is stored has its real size."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import load, quantize
from octavo.spec.presets import recipe
from tests.graph import families

# preset -> bits of weights, bits of token embeddings
PRESETS = {
    "w6a32": (6, 6),
    "w4a32": (4, 4),
    "w8a32-e6": (8, 6),
    "w8a32-e4": (8, 4),
    "w8a32-e2": (8, 2),
    "w4a32-e2": (4, 2),
}


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


@pytest.mark.parametrize("name", PRESETS)
def test_weights_are_stored_in_their_bits_and_load_again(bert: Encoder, name: str, tmp_path: Path) -> None:
    model = quantize(bert, recipe(name))
    model.save(tmp_path / "saved")
    with safe_open(tmp_path / "saved" / "model.safetensors", framework="pt") as stored:
        for site in model.weight_sites:
            bits = PRESETS[name][site.name == "embeddings.token.weight"]
            tensor, count = stored.get_tensor(site.targets[0]), math.prod(map(int, site.shape))
            assert tensor.numel() * tensor.element_size() == math.ceil(count * bits / 8)
    batch = families.batch((2, 9))
    assert torch.equal(load(tmp_path / "saved")(batch)["logits"], model(batch)["logits"])


@pytest.mark.parametrize("name", PRESETS)
def test_a_weight_uses_at_most_the_values_its_bits_have(bert: Encoder, name: str) -> None:
    model = quantize(bert, recipe(name))
    for site in model.weight_sites:
        bits = PRESETS[name][site.name == "embeddings.token.weight"]
        assert len(model.quantizers[site.name](model.parameter(site)).unique()) <= 2**bits


@pytest.mark.slow
@pytest.mark.parametrize("head", ["encoder", "sequence-classification"])
def test_bert_base_with_2_bit_tokens_is_8_8_times_smaller_than_fp32(head: str, tmp_path: Path) -> None:
    """Whole files compared: packed weights, scales, biases and octavo.json against a checkpoint in FP32."""
    import transformers

    from octavo.graph.capture.source import make_encoder, network_from_config

    network = network_from_config(transformers.BertConfig(), head)  # type: ignore[arg-type]
    encoder = make_encoder("bert-base", network, None, head)  # type: ignore[arg-type]
    read = {str(node.target) for node in encoder.graph.graph.nodes if node.op == "get_attr"}
    float_ = {name: tensor for name, tensor in encoder.graph.named_parameters() if name in read}
    save_file({name: tensor.detach() for name, tensor in float_.items()}, tmp_path / "fp32.safetensors")
    saved = quantize(encoder, recipe("w4a32-e2")).save(tmp_path / "saved")
    size = sum((saved / name).stat().st_size for name in ("model.safetensors", "octavo.json"))
    ratio = (tmp_path / "fp32.safetensors").stat().st_size / size
    assert ratio >= 8.8, ratio


@pytest.mark.filterwarnings("ignore:GPTQ. .* texts give")
@pytest.mark.parametrize("name", ["w6a6", "w4a4"])
def test_few_bits_throughout_load_again_as_they_were(bert: Encoder, name: str, tmp_path: Path) -> None:
    batches = [families.batch((4, 12), seed=seed) for seed in range(2)]
    model = quantize(bert, recipe(name), batches)
    model.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert isinstance(again, QuantizedEncoder)
    for key, expected in model(batches[0]).items():
        torch.testing.assert_close(again(batches[0])[key], expected)
