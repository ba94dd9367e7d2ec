from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from octavo.diagnosis.records import pack, unpack


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    size: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Outer:
    items: tuple[Inner, ...]
    shape: tuple[int | str, ...]
    by_number: dict[int, list[int]]
    boxes: tuple[tuple[float, ...], ...]
    tensors: dict[str, Tensor]
    one: Inner | None = None


def test_a_record_survives_json_and_tensors() -> None:
    record = Outer(
        items=(Inner(name="a", size=math.inf), Inner(name="b")),
        shape=("batch", 3),
        by_number={7: [1, 2], 0: []},
        boxes=((0.1, 0.2), ()),
        tensors={"layers.0/x": torch.tensor([1.5, -2.0])},
        one=Inner(name="c"),
    )
    plain, tensors = pack(record)
    again = unpack(Outer, json.loads(json.dumps(plain)), tensors)
    for name in ("items", "shape", "by_number", "boxes", "one"):
        assert getattr(again, name) == getattr(record, name)
    assert torch.equal(again.tensors["layers.0/x"], record.tensors["layers.0/x"])


def test_a_record_of_another_form_is_an_error() -> None:
    with pytest.raises(KeyError):
        unpack(Inner, {"title": "a"}, {})
