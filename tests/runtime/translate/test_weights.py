from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from transformers import RobertaConfig, RobertaModel

import octavo
from octavo.graph.capture.source import make_encoder
from octavo.runtime.backends.onnxruntime import ONNXRUNTIME
from octavo.runtime.translate.onnx_graph import OnnxGraph
from octavo.runtime.translate.packing import _pack_columns


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_columns_come_back_from_bytes(bits: int) -> None:
    integers = np.random.default_rng(0).integers(0, 2**bits, (3, 16))
    packed = _pack_columns(integers, bits)
    assert packed.shape == (3, 16 * bits // 8)
    digits = [(packed >> (bits * place)) & (2**bits - 1) for place in range(8 // bits)]
    assert (np.concatenate(digits, axis=1) == integers).all()


@pytest.mark.parametrize("shape", [(3, 5), (4, 4), ()], ids=str)
def test_four_bit_integers_are_stored_two_to_a_byte(shape: tuple[int, ...]) -> None:
    integers = np.random.default_rng(0).integers(-8, 8, shape)
    graph = OnnxGraph(21)
    name = graph.packed_initializer(np.asarray(integers), 4, signed=True, name="w")
    tensor = graph.initializers[name]
    assert len(tensor.raw_data) == (integers.size + 1) // 2
    assert (numpy_helper.to_array(tensor).astype(np.int32) == integers).all()


def test_equal_constants_are_stored_once() -> None:
    graph = OnnxGraph(21)
    assert graph.constant([1, 2], np.int64) == graph.constant([1, 2], np.int64)
    assert graph.constant([1, 2], np.int64) != graph.constant([1, 2], np.int32)


def test_positions_that_count_up_are_cut_from_their_table(tiny_file: Path) -> None:
    nodes = onnx.load(str(tiny_file)).graph.node
    kinds = [node.op_type for node in nodes]
    assert kinds.count("Slice") == 1 and "Range" not in kinds
    gathered = [node.input[0] for node in nodes if node.op_type == "Gather"]
    assert not any("position" in name for name in gathered)


def test_positions_made_from_the_tokens_are_looked_up() -> None:
    """RoBERTa counts its tokens from the padding token's number on."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = RobertaConfig(**sizes, vocab_size=99, max_position_embeddings=64, attn_implementation="eager")
    network = RobertaModel(config)
    model = octavo.quantize(make_encoder("roberta", network, None, "encoder"), octavo.recipe("w8a32"))
    kinds = [node.op_type for node in ONNXRUNTIME.onnx_model(model).graph.node]
    assert "Slice" not in kinds and kinds.count("Gather") >= 3


def test_a_text_longer_than_the_positions_is_refused_by_the_runtime(tiny_file: Path) -> None:
    session = onnxruntime.InferenceSession(str(tiny_file), providers=["CPUExecutionProvider"])
    longest = next(t.dims[0] for t in onnx.load(str(tiny_file)).graph.initializer if "position" in t.name)
    feed = {each.name: np.ones((1, longest + 1), np.int64) for each in session.get_inputs()}
    with pytest.raises(Exception, match=f"{longest} by {longest + 1}"):
        session.run(None, feed)
