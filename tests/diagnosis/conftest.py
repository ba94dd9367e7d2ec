from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.diagnosis import Diagnosis, diagnose
from octavo.diagnosis.chapter import Study
from octavo.diagnosis.chosen_text import choose_text
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.graph import Encoder
from octavo.ledger import Ledger
from octavo.methods import load
from octavo.spec import Fold, Recipe
from octavo.spec.presets import PRESETS, recipe

TEXTS = [
    "the dog barks, twice.",
    "a cat sleeps on the mat!",
    "rain again.",
    "who goes there?",
    "it rains once more, and again.",
    "no.",
]
PLANTED = 7
"""The dimension that is made an outlier in the second layer's FFN output."""
COLUMN = 5
"""The hidden unit that a single planted weight reads."""
LARGE = 2.0
"""That weight, beside a median of 0.013."""


def study_of(encoder: Encoder, texts: list[str], ledger: Ledger | None = None, **options: Any) -> Study:
    """What chapters share, as `diagnose` would make it."""
    kinds = TokenKinds(encoder)
    return Study(
        encoder=encoder,
        texts=texts,
        measured=texts,
        kinds=kinds,
        chosen=choose_text(encoder, texts, kinds),
        ledger=ledger or Ledger(None, {}),
        **options,
    )


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return TEXTS


@pytest.fixture(scope="session")
def plain(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """A tiny untrained BERT: its channels are balanced."""
    return load(tiny_bert_folder())


@pytest.fixture(scope="session")
def planted(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """A wider one with one row of an FFN's second matrix made large: a structured outlier."""
    encoder = load(tiny_bert_folder(hidden_size=64))
    with torch.no_grad():
        encoder.graph.get_parameter("encoder.layer.1.output.dense.weight")[PLANTED] *= 5000
    return encoder


@pytest.fixture(scope="session")
def written(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """One in which a single weight of an FFN's second matrix writes the same outlier, and 8 bits can spare
    part of it."""
    encoder = load(tiny_bert_folder(hidden_size=64, intermediate_size=1024))
    with torch.no_grad():
        encoder.graph.get_parameter("encoder.layer.1.intermediate.dense.weight")[COLUMN] *= 500
        encoder.graph.get_parameter("encoder.layer.1.output.dense.weight")[PLANTED, COLUMN] = LARGE
    return encoder


@pytest.fixture(scope="session")
def broken(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """One whose FFNs matter, with a hidden unit that is huge and never read: no preset isolates it."""
    encoder = load(tiny_bert_folder())
    with torch.no_grad():
        for layer in ("encoder.layer.0", "encoder.layer.1"):
            encoder.graph.get_parameter(f"{layer}.intermediate.dense.weight").mul_(20)[PLANTED] *= 500
            encoder.graph.get_parameter(f"{layer}.output.dense.weight").mul_(10)[:, PLANTED] = 0
    return encoder


@pytest.fixture(scope="session")
def diagnosed(planted: Encoder, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """The planted model with every part of a diagnosis, and its report."""
    return diagnose(
        planted,
        texts,
        output=tmp_path_factory.mktemp("diagnosed") / "report",
        sensitivity=("roles", "last", "layers", "sites"),
        panels={"One": texts[:3], "Two": texts[3:]},
    )


def without_search() -> Recipe:
    """The recipe int8 with norm outputs folded by their ranges only: it breaks where hidden tensors do."""
    norms = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")
    return replace(recipe("int8"), passes=(Fold(roles=norms, optional=True),))


@pytest.fixture
def int8_without_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the preset be one that a model with outlying hidden tensors breaks."""
    recipe = without_search()
    monkeypatch.delitem(PRESETS, "int8")  # a name is given once
    monkeypatch.setitem(PRESETS, "int8", recipe)
