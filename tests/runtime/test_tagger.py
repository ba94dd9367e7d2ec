from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

import octavo
from octavo.errors import OctavoWarning
from octavo.runtime.exporting import export
from octavo.runtime.tagger import Entity, Tagger
from tests.runtime.conftest import TEXTS

LABELS = {0: "O", 1: "B-X", 2: "I-X", 3: "B-Y", 4: "plain"}


@pytest.fixture(scope="module")
def folder(tiny_bert_folder: Callable[..., Path]) -> Path:
    # so wide a head that its labels vary from token to token
    return tiny_bert_folder("BertForTokenClassification", id2label=LABELS, initializer_range=1.0)


@pytest.fixture(scope="module")
def tagger(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    return Tagger(export(octavo.load(folder), tmp_path_factory.mktemp("tagger") / "m.onnx"), folder)


def test_entities_are_those_of_transformers_pipeline(folder: Path, tagger: Tagger) -> None:
    network = transformers.BertForTokenClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pipe = transformers.pipeline(
        "token-classification", model=network, tokenizer=tokenizer, aggregation_strategy="simple"
    )
    kinds = set()
    for text, found in zip(TEXTS, tagger.tag(list(TEXTS), batch_size=2), strict=True):
        expected = pipe(text)
        assert [(e.label, e.start, e.end) for e in found] == [
            (e["entity_group"], e["start"], e["end"]) for e in expected
        ]
        assert [e.score for e in found] == pytest.approx([float(e["score"]) for e in expected], abs=1e-4)
        assert all(text[e.start : e.end] == e.text for e in found)
        kinds |= {e.label for e in found}
    assert len(kinds) > 1
    assert tagger.tag(TEXTS[0]) == tagger.tag([TEXTS[0]])[0]


def test_a_text_that_is_cut_is_told(tagger: Tagger) -> None:
    with pytest.warns(OctavoWarning, match="1 texts are longer than 64 tokens; what follows is not tagged"):
        found = tagger.tag("rain " * 40)
    assert all(isinstance(entity, Entity) for entity in found)
