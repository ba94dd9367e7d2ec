from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.hub.card import Card, model_card, shown
from octavo.sentence import SentenceModules


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("demo:minilm", "demo:minilm"),
        ("/home/someone/secret/model", "model"),
        ("../model", "model"),
        ("a`b|<script>", "a_b__script_"),
    ],
)
def test_names_are_shown_without_folders_and_markup(name: str, expected: str) -> None:
    assert shown(name) == expected


def card_of(model: Encoder, **options: Any) -> str:
    return model_card(Card(model=model, reference=None, files=(), texts=0, **options))


def test_a_model_of_the_hub_is_the_base_model(tiny_int8: QuantizedEncoder) -> None:
    from_hub = replace(tiny_int8, provenance={"model": "someone/model", "calibration": {"texts": 5}})
    header = yaml.safe_load(card_of(from_hub).split("---\n")[1])
    assert (header["base_model"], header["base_model_relation"]) == ("someone/model", "quantized")
    local = replace(tiny_int8, provenance={"model": str(Path.cwd())})
    assert "base_model" not in yaml.safe_load(card_of(local).split("---\n")[1])
    assert "Calibrated on 5 texts." in card_of(from_hub)


def test_what_transformers_js_cannot_do_is_said(tiny_int8: QuantizedEncoder) -> None:
    assert "{ pooling: 'mean', normalize: true }" in card_of(tiny_int8)
    by_max = replace(tiny_int8, sentence=SentenceModules(pooling="max"))
    assert "// hidden states; pooling by max is up to you" in card_of(by_max)
    bare = replace(tiny_int8, sentence=SentenceModules(pooling="cls", steps=()))
    assert "{ pooling: 'cls', normalize: false }" in card_of(bare)


def test_rounded_weights_are_said(tiny_int8: QuantizedEncoder) -> None:
    assert "Weights were rounded" not in card_of(tiny_int8)
    assert "Weights were rounded to 7 bits" in card_of(tiny_int8, reduce_range=True)


def test_the_command_may_be_pasted_where_a_name_has_spaces(tiny_int8: QuantizedEncoder) -> None:
    spaced = replace(tiny_int8, provenance={"model": "my model"})
    assert "octavo quantize 'my model' --recipe recipe.yaml" in card_of(spaced)
