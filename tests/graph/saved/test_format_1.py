"""Folders and recipes that a tree of format 1 wrote: every later one must read them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import octavo
from octavo.graph import Encoder, Head
from octavo.graph.capture.source import make_encoder
from octavo.graph.saved import read
from octavo.spec import dump_recipe, load_recipe, parse_recipe, recipe_from_dict
from octavo.spec.presets import PRESETS
from tests.fixtures import arithmetic, format_1

HERE = Path(format_1.__file__).parent
MODELS = HERE / "models.zip"
with ZipFile(MODELS) as archive:
    NAMES = sorted({entry.partition("/")[0] for entry in archive.namelist()})
RECIPES = sorted((HERE / "recipes").iterdir())
INPUTS = ("input_ids", "attention_mask")
# a reader is told of keys that have become something else; what it is told has tests of its own
rewrites = pytest.mark.filterwarnings("ignore:.*is a recipe of format 1:octavo.OctavoWarning")


def name_of(path: Path) -> str:
    return path.stem


@pytest.fixture(scope="module")
def expected() -> dict[str, Tensor]:
    return load_file(HERE / "expected.safetensors")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every saved folder, unpacked."""
    unpacked = tmp_path_factory.mktemp("format-1")
    with ZipFile(MODELS) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.fixture(scope="module")
def tolerance(expected: dict[str, Tensor]) -> float:
    """Zero, unless arithmetic here differs in its last bits from that of the machine that stored the outputs.

    Then a float model is off by a millionth, and one where a rounding falls on the other side by a step.
    """
    return 0.0 if torch.equal(arithmetic.probe(), expected["probe"]) else 0.02


@pytest.fixture(scope="module")
def captured_once() -> Iterator[None]:
    """Capture each architecture once, which takes most of the time of loading.

    Every weight of a copy is the same number, so that all that counts comes from the files.
    """
    captures: dict[str, Encoder] = {}

    def capture(name: str, network: nn.Module, tokenizer: Any, head: Head, sentence: Any) -> Encoder:
        key = f"{head} {network.config.to_json_string()}"
        if key not in captures:
            captures[key] = make_encoder(name, network, tokenizer, head, sentence)
            with torch.no_grad():
                for parameter in captures[key].graph.parameters():
                    if parameter.requires_grad:
                        parameter.fill_(0.5)
        copied = copy.deepcopy(captures[key].graph)
        return replace(captures[key], name=name, tokenizer=tokenizer, sentence=sentence, graph=copied)

    with mock.patch.object(read, "make_encoder", capture):
        yield


@pytest.mark.usefixtures("captured_once")
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_returns_what_it_returned(
    name: str, folders: Path, expected: dict[str, Tensor], tolerance: float
) -> None:
    model = octavo.load(str(folders / name), device="cpu")
    # the graph itself: a call runs texts one by one where ranges are dynamic, which that tree did not
    with torch.no_grad():
        results = model.graph(*model.arguments({key: expected[key] for key in INPUTS}))
    outputs = dict(zip(model.output_names, results, strict=True))
    stored = {key.partition(":")[2]: value for key, value in expected.items() if key.startswith(f"{name}:")}
    assert outputs.keys() == stored.keys()
    for key, output in outputs.items():
        exact = torch.equal(output, stored[key])
        assert exact or (tolerance and (output - stored[key]).abs().max() < tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_of_a_saved_model_survives_writing_and_reading(name: str, folders: Path) -> None:
    manifest = json.loads((folders / name / "octavo.json").read_text(encoding="utf-8"))
    assert manifest["octavo"] == manifest["recipe"]["octavo"] == 1
    recipe = recipe_from_dict(manifest["recipe"])
    assert parse_recipe(dump_recipe(recipe)) == recipe


@rewrites
@pytest.mark.parametrize("file", RECIPES, ids=name_of)
def test_a_recipe_file_survives_writing_and_reading(file: Path) -> None:
    recipe = load_recipe(file)
    assert recipe.name == file.stem
    assert parse_recipe(dump_recipe(recipe)) == recipe


@rewrites
# `int8` is ours and was chosen anew since; the others are rows of the paper.
@pytest.mark.parametrize("file", [f for f in RECIPES if f.stem in PRESETS.keys() - {"int8"}], ids=name_of)
def test_the_file_of_a_preset_means_what_the_preset_means(file: Path) -> None:
    described = PRESETS[file.stem].description
    assert replace(load_recipe(file), description=described) == PRESETS[file.stem]


def test_every_preset_of_that_time_is_kept() -> None:
    presets = {name.removeprefix("preset-") for name in NAMES if name.startswith("preset-")}
    assert len(presets) == 27 and presets < {file.stem for file in RECIPES}
