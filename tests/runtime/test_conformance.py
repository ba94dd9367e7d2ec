"""Files against simulations: every family, recipe, backend and length, padded or not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import octavo
from octavo.errors import ModelError
from octavo.graph import Encoder, Head, QuantizedEncoder
from octavo.graph.capture.source import make_encoder
from octavo.graph.quantizers.switch import switched_off
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.backends import BACKENDS, find_backend
from octavo.runtime.backends.runner import Runner
from octavo.runtime.exporting import check_exportable, export
from octavo.runtime.parity import site_parity
from tests.graph import families

LONGEST = 320
LENGTHS = (3, 64, 65, 130, 300)
SLICE = ("bert", "albert", "modernbert")
# what is refused, before calibration, and the words that say why
REFUSED = {"tapas": r"aten\.scatter_reduce\.two \(in embeddings", "xmod": "indexing by truth values"}
EVERY = tuple(family for family in (*families.EVERY, *families.FURTHER) if family not in REFUSED)

WIDE = octavo.Recipe(
    name="w8a8 with 16 bits",
    weights=octavo.TensorSpec(bits=16, symmetric=True),
    activations=octavo.TensorSpec(bits=16, estimator=octavo.AllMinMax()),
)
RECIPES: dict[str, octavo.Recipe | None] = {"float": None, "int8": octavo.recipe("int8"), "wide": WIDE}
# A window narrower than the longest text and wider than the shortest, where a family has one.
CHANGES: dict[str, dict[str, Any]] = {"modernbert": {"local_attention": 40}}


@cache
def encoder_of(family: str) -> Encoder:
    """Return a tiny encoder whose attention looks at some tokens more than at others, as trained ones do."""
    network = families.network(family, "encoder", length=LONGEST, **CHANGES.get(family, {}))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                # ordinary weights keep the size of what they multiply; untrained ones shrink it
                parameter.mul_(parameter.shape[1] ** -0.5 / parameter.std().clamp(min=1e-6))
    return make_encoder(f"tiny {family}", network, None, "encoder")


@cache
def model_of(family: str, recipe: str) -> Encoder:
    encoder, chosen = encoder_of(family), RECIPES[recipe]
    if chosen is None:
        return encoder
    data = [
        {"input_ids": families.batch((2, length), seed=seed)["input_ids"]}
        for seed, length in enumerate((9, 64, 300))
    ]
    return octavo.quantize(encoder, chosen, calibration=data)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def file_of(family: str, recipe: str, backend: str) -> tuple[Path, Runner]:
    path = Path(_folder().name) / f"{family}-{recipe}-{backend}.onnx"
    export(model_of(family, recipe), path, backend=backend)
    return path, open_onnx(path, backend, threads=1, exact=True)


def simulated(model: Encoder, batch: dict[str, torch.Tensor], backend: str) -> torch.Tensor:
    """Run the simulation without the quantizers that the backend's files leave out."""
    quantizers = model.quantizers.values() if isinstance(model, QuantizedEncoder) else ()
    left_out = [q for q in quantizers if q.site.role in find_backend(backend).left_out]
    with switched_off(left_out):
        return model(batch)["last_hidden_state"]


def check(family: str, recipe: str, backend: str, length: int, padded: bool) -> None:
    pytest.importorskip(backend)
    model = model_of(family, recipe)
    assert length <= model.max_length
    path, run = file_of(family, recipe, backend)
    batch = families.batch((3, length), padded)
    expected = simulated(model, batch, backend).numpy()
    found = run({name: tensor.numpy() for name, tensor in batch.items()})["last_hidden_state"]
    kept = batch["attention_mask"].bool().numpy()
    found, expected = found[kept], expected[kept]
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(expected, axis=-1)
    cosine = ((found * expected).sum(-1) / norms).min()
    if recipe == "float":
        scale = np.abs(expected).max()
        assert np.abs(found - expected).max() <= 1e-4 * max(scale, 1.0), np.abs(found - expected).max()
    elif recipe == "wide":
        # what is rounded otherwise differs by 1/65536 of a range; OpenVINO does not round at all there
        assert cosine > 0.99999, cosine
    else:
        # one number that rounds the other way moves all behind it by a step of 8 bits
        assert cosine > 0.99, cosine
    if backend == "onnxruntime" and isinstance(model, QuantizedEncoder):
        parity = site_parity(model, path, batch)
        steps = 1 if recipe == "int8" else 40  # of 65,536
        assert parity.most_steps <= steps and (recipe != "int8" or parity.equal > 0.99), parity


def _marks(family: str, recipe: str, backend: str) -> list[pytest.MarkDecorator]:
    usual = family in SLICE and backend == "onnxruntime" and recipe != "wide"
    return [] if usual else [pytest.mark.slow]


CELLS = [
    pytest.param(
        family,
        recipe,
        backend,
        id=f"{family}-{recipe}-{backend}",
        marks=_marks(family, recipe, backend),
    )
    for family in EVERY
    for recipe in RECIPES
    for backend in BACKENDS
]


@pytest.mark.filterwarnings("ignore::octavo.OctavoWarning")
@pytest.mark.parametrize(("family", "recipe", "backend"), CELLS)
def test_a_file_computes_its_simulation(family: str, recipe: str, backend: str) -> None:
    check_exportable(encoder_of(family))
    failures = []
    for length in LENGTHS:
        for padded in (False, True):
            try:
                check(family, recipe, backend, length, padded)
            except AssertionError as error:
                failures.append(
                    f"{length} tokens{', padded' if padded else ''}: {str(error).splitlines()[0]}"
                )
    assert not failures, "; ".join(failures)


# -- heads ---------------------------------------------------------------------------------------------------

# The others are in `make conformance`.
HEADS: tuple[Head, ...] = (
    "sequence-classification",
    "token-classification",
    "question-answering",
    "masked-lm",
)


@pytest.mark.parametrize("head", HEADS)
def test_a_file_with_a_head_rounds_as_its_simulation_does(head: Head, tmp_path: Path) -> None:
    """The pooler reads one token of a quantized tensor, and the tied table has a row of zeros."""
    pytest.importorskip("onnxruntime")
    network = families.network("bert", head)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 2:
                parameter.mul_(parameter.shape[1] ** -0.5 / parameter.std().clamp(min=1e-6))
    assert not network.get_input_embeddings().weight[0].any()
    batches = [families.batch((3, 12), padded=True), families.batch((2, 40))]
    model = octavo.quantize(
        make_encoder("tiny bert", network, None, head), octavo.recipe("int8"), calibration=batches
    )
    path = export(model, tmp_path / "model.onnx", check=True)
    for batch in batches:
        parity = site_parity(model, path, batch)
        assert parity.most_steps <= 1 and parity.equal > 0.999 and parity.difference < 1e-3, parity


@pytest.mark.slow
@pytest.mark.parametrize("family", REFUSED)
def test_a_family_that_cannot_be_exported_is_refused_with_the_operation(family: str) -> None:
    with pytest.raises(ModelError, match=f"tiny {family} cannot be exported: .*{REFUSED[family]}"):
        check_exportable(encoder_of(family))
