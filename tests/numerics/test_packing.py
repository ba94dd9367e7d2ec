from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import SpecError
from octavo.numerics import pack, packed_size, unpack
from octavo.numerics.packing import CHUNK

widths = st.integers(2, 16)


@given(widths, st.booleans(), st.data())
def test_round_trip_at_the_real_size(bits: int, signed: bool, data: st.DataObject) -> None:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    values = data.draw(st.lists(st.integers(low, high), max_size=40))
    packed = pack(torch.tensor(values, dtype=torch.int32), bits)
    assert packed.dtype == torch.uint8
    assert len(packed) == -(-len(values) * (bits if bits <= 8 else 16) // 8)
    assert unpack(packed, bits, len(values), signed).tolist() == values


@given(st.integers(2, 8), st.data())
def test_bytes_are_a_little_endian_stream_of_bits(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    stream = "".join(format(value, f"0{bits}b")[::-1] for value in values)
    stream += "0" * (-len(stream) % 8)
    expected = [int(stream[i : i + 8][::-1], 2) for i in range(0, len(stream), 8)]
    assert pack(torch.tensor(values, dtype=torch.int32), bits).tolist() == expected


def test_four_bits_by_hand() -> None:
    assert pack(torch.tensor([1, -1, 7, -8, 3]), 4).tolist() == [0xF1, 0x87, 0x03]


@pytest.mark.parametrize("dtype", ["<i2", "<u2"])
def test_sixteen_bits_are_two_bytes_in_little_endian_order(dtype: str) -> None:
    values = np.array([0, 1, 258, np.iinfo(dtype).min, np.iinfo(dtype).max])
    assert pack(values, 16).numpy().tobytes() == values.astype(dtype).tobytes()


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8, 16])
def test_chunks_join_without_a_seam(bits: int) -> None:
    count = 2 * CHUNK + 5
    values = torch.randint(0, 2**bits, (count,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(unpack(pack(values, bits), bits, count, False), values.int())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64])
def test_any_integer_dtype_and_shape_is_accepted(dtype: torch.dtype) -> None:
    values = torch.arange(-8, 8, dtype=dtype).view(2, 8)
    assert unpack(pack(values.T, 4), 4, 16, True).tolist() == values.T.flatten().tolist()


@pytest.mark.parametrize("values", [[-9], [16], [-1, 8]], ids=str)
def test_values_that_do_not_fit_are_refused(values: list[int]) -> None:
    with pytest.raises(SpecError, match=f"values from {min(values)} to {max(values)} do not fit 4 bits"):
        pack(torch.tensor(values), 4)


def test_floats_are_refused() -> None:
    with pytest.raises(SpecError, match=r"dtype torch.float32 were given to pack"):
        pack(torch.ones(3), 8)


@pytest.mark.parametrize("bits", [1, 17])
def test_other_widths_are_refused(bits: int) -> None:
    with pytest.raises(SpecError, match=f"{bits} bits"):
        pack(torch.ones(3, dtype=torch.int8), bits)


def test_a_wrong_number_of_bytes_is_refused() -> None:
    with pytest.raises(SpecError, match="3 bytes were given for 5 values of 6 bits, which take 4"):
        unpack(torch.zeros(3, dtype=torch.uint8), 6, 5, False)


def test_packed_size() -> None:
    assert [packed_size(count, bits) for count, bits in ((0, 4), (1, 2), (5, 3), (5, 8), (5, 9))] == [
        0,
        1,
        2,
        5,
        10,
    ]
