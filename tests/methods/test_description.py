from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.methods import load, quantize
from octavo.methods.description import describe_saved
from octavo.spec.presets import recipe


def test_a_saved_model_in_numbers(tiny_bert_folder: Callable[..., Path], tmp_path: Path) -> None:
    model = quantize(load(tiny_bert_folder()), recipe("w8a8-peg3"), ["the dog barks.", "a cat sleeps."])
    described = describe_saved(model, model.save(tmp_path / "saved"))
    assert (described["recipe"], described["placement"]) == ("w8a8-peg3", "full")
    assert described["activation_sites"] == {"8": 29}
    assert described["extra_parameters"] == 2 * (32 + 2 * 3 * 3)
    assert described["weights_bytes"] == (tmp_path / "saved" / "model.safetensors").stat().st_size
    assert described["folder_bytes"] > described["weights_bytes"]
    assert described["times_smaller"] == pytest.approx(described["fp32_bytes"] / described["weights_bytes"])


def test_sites_left_in_float_are_counted_as_such(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    model = quantize(load(tiny_bert_folder()), recipe("w4a32"))
    assert describe_saved(model, model.save(tmp_path / "saved"))["activation_sites"] == {"float": 29}
