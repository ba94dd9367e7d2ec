from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from octavo.errors import OutputError
from octavo.graph import QuantizedEncoder
from octavo.runtime.encoding_files import encodings, write_encodings


def test_weights_are_what_their_encodings_say(tiny_int8: QuantizedEncoder) -> None:
    entry = encodings(tiny_int8)["weights"]["layers.0.query.weight"]
    site = next(site for site in tiny_int8.weight_sites if site.name == "layers.0.query.weight")
    scale = torch.tensor(entry["scale"])[torch.tensor(entry["group"])][:, None]
    steps = tiny_int8.quantizers[site.name].constant / scale
    assert torch.allclose(steps, steps.round(), atol=1e-3)
    assert (entry["bits"], entry["symmetric"], entry["axis"], entry["low"]) == (8, True, 0, -128)


def test_one_scale_has_no_axis(tiny_int8: QuantizedEncoder) -> None:
    entry = encodings(tiny_int8)["activations"]["layers.0.attention_context"]
    assert len(entry["scale"]) == len(entry["offset"]) == 1 and "axis" not in entry


def test_the_file_is_json_and_never_overwritten(tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    path = write_encodings(tiny_int8, tmp_path / "encodings.json")
    assert json.loads(path.read_text())["recipe"] == "int8"
    with pytest.raises(OutputError, match="exists already"):
        write_encodings(tiny_int8, path)
