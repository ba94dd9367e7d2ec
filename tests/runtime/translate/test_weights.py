from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from octavo.runtime.translate.onnx_graph import OnnxGraph
from octavo.runtime.translate.weights import _pack_columns


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
