"""Real models from load to benchmark: `make zoo`, with OCTAVO_ZOO naming the folder that holds theirs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import octavo
from octavo.fidelity import Reference
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.capture.traits import layers_of
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.backends import BACKENDS
from octavo.runtime.benchmark import bench
from octavo.runtime.embedder import Embedder
from octavo.runtime.parity import parity, site_parity

pytestmark = [
    pytest.mark.zoo,
    # int8 folds what it can, and says what it cannot
    pytest.mark.filterwarnings("ignore:.* sites are not folded:octavo.OctavoWarning"),
    # MobileBERT's embeddings have those of the next token in them, padding too
    pytest.mark.filterwarnings("ignore:.* reads padding:octavo.OctavoWarning"),
]

KOREAN = (
    "오늘은 날씨가 맑고 바람이 조금 분다.",
    "서울의 지하철은 아침마다 사람들로 가득하다.",
    "그는 어제 도서관에서 책 세 권을 빌렸다.",
    "우리 회사는 내년에 새로운 공장을 지을 계획이다.",
    "이 음식은 너무 매워서 물을 많이 마셨다.",
    "아이들이 운동장에서 축구를 하고 있다.",
    "정부는 새로운 교통 정책을 발표했다.",
    "부산까지 기차로 두 시간 반쯤 걸린다.",
    "그 영화는 생각보다 재미있었다.",
    "내일까지 보고서를 제출해 주세요.",
    "할머니는 시장에서 사과와 배를 사셨다.",
    "인공지능 기술이 빠르게 발전하고 있다.",
)


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """What is known of a model beforehand: its head, its layers, and what it reads."""

    name: str
    head: str
    layers: int
    texts: Callable[[], tuple[str, ...]] = octavo.demo_texts

    @property
    def folder(self) -> Path:
        """Where it lies; without it the test is skipped."""
        folder = Path(os.environ["OCTAVO_ZOO"]) / self.name
        if not folder.is_dir():
            pytest.skip(f"{self.name} is not there")
        return folder

    @property
    def calibration(self) -> list[str]:
        """Texts that ranges come from."""
        return list(self.texts()[:24])

    @property
    def others(self) -> list[str]:
        """Texts that were not among them, where there are enough."""
        return list(self.texts()[-8:])


SPECIMENS = (
    Specimen(name="gte-small", head="encoder", layers=12),
    Specimen(name="albert-kor", head="masked-lm", layers=12, texts=lambda: KOREAN),
    Specimen(name="mobilebert-ner", head="token-classification", layers=24),
    Specimen(name="mpnet-base", head="encoder", layers=12),
)


@pytest.fixture(scope="module", params=SPECIMENS, ids=lambda specimen: specimen.name)
def specimen(request: pytest.FixtureRequest) -> Specimen:
    found: Specimen = request.param
    return found


@pytest.fixture(scope="module")
def encoder(specimen: Specimen) -> Encoder:
    return octavo.load(specimen.folder)


@pytest.fixture(scope="module")
def int8(encoder: Encoder, specimen: Specimen) -> QuantizedEncoder:
    return octavo.quantize(encoder, octavo.recipe("int8"), calibration=specimen.calibration)


@pytest.fixture(scope="module")
def saved(int8: QuantizedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return int8.save(tmp_path_factory.mktemp("saved") / "int8")


@pytest.fixture(scope="module")
def files(int8: QuantizedEncoder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The exported file of every backend that is installed."""
    folder = tmp_path_factory.mktemp("files")
    installed = [name for name, backend in BACKENDS.items() if backend.is_installed]
    return {name: octavo.export(int8, folder / f"{name}.onnx", backend=name) for name in installed}


@pytest.fixture(scope="module")
def batch(encoder: Encoder, specimen: Specimen) -> dict[str, Tensor]:
    """Texts of different lengths, padded."""
    return next(iter(encoder.batches(specimen.others)))[1]


# -- the float model -----------------------------------------------------------------------------------------


def test_every_layer_and_the_head_are_found(encoder: Encoder, specimen: Specimen) -> None:
    assert encoder.layers == layers_of(encoder.config) == specimen.layers
    assert encoder.head == specimen.head


def test_outputs_equal_hugging_face(encoder: Encoder, specimen: Specimen, batch: dict[str, Tensor]) -> None:
    import transformers

    classes = {"masked-lm": "AutoModelForMaskedLM", "token-classification": "AutoModelForTokenClassification"}
    loader = getattr(transformers, classes.get(specimen.head, "AutoModel"))
    network = loader.from_pretrained(specimen.folder, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        expected = network.eval()(**batch)
    for name, found in encoder(batch).items():
        right = expected[name]
        assert float((found - right).abs().max()) <= 1e-4 * max(1.0, float(right.abs().max()))


def test_embeddings_equal_sentence_transformers(
    encoder: Encoder, specimen: Specimen, batch: dict[str, Tensor]
) -> None:
    if specimen.head != "encoder":
        pytest.skip("this model makes no embeddings")
    found = encoder.embed(batch, encoder(batch))
    hidden, mask = encoder(batch)["last_hidden_state"], batch["attention_mask"].unsqueeze(-1)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    assert torch.allclose(found, mean / mean.norm(dim=1, keepdim=True), atol=1e-6)
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(specimen.folder), device="cpu")
    for positions, each in encoder.batches(specimen.others):
        theirs = model.encode([specimen.others[position] for position in positions])
        ours = encoder.embed(each, encoder(each)).numpy()
        assert abs(ours - theirs).max() < 1e-5


def test_a_diagnosis_reads_every_site(encoder: Encoder, specimen: Specimen) -> None:
    found = octavo.diagnose(encoder, specimen.others[:4], sensitivity=())
    assert {site.name for site in found.sites} == {site.name for site in encoder.activation_sites}
    assert found.findings and found.trials


# -- int8 ----------------------------------------------------------------------------------------------------


def test_fidelity_of_int8_is_recorded(
    encoder: Encoder,
    int8: QuantizedEncoder,
    specimen: Specimen,
    record_property: Callable[[str, object], None],
) -> None:
    """How far int8 is from float is no matter of right or wrong: mobilebert-ner does not survive it."""
    quality = Reference.of_texts(encoder, specimen.others).compare(int8).quality()
    assert quality.cosine is not None and math.isfinite(quality.sqnr)
    record_property("cosine.mean", quality.cosine.mean)
    record_property("cosine.worst", quality.cosine.worst)


def test_saved_and_loaded_it_is_the_same_bit_for_bit(
    int8: QuantizedEncoder, saved: Path, batch: dict[str, Tensor], specimen: Specimen
) -> None:
    loaded = octavo.load(saved)
    assert loaded.head == int8.head and loaded.sentence.pooling == int8.sentence.pooling
    assert loaded.text_length == int8.text_length
    tokens = next(iter(loaded.batches(specimen.others)))[1]
    for name, before in int8(batch).items():
        assert torch.equal(loaded(tokens)[name], before)


def test_onnx_runtime_rounds_to_the_integers_of_the_simulation(
    int8: QuantizedEncoder, files: dict[str, Path], batch: dict[str, Tensor]
) -> None:
    found = site_parity(int8, files["onnxruntime"], batch)
    scale = max(float(values.abs().max()) for values in int8(batch).values())
    assert found.equal > 0.999 and found.most_steps <= 1
    assert found.difference < 1e-3 * max(1.0, scale)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_is_as_near_the_simulation_as_that_is_to_the_float_model(
    encoder: Encoder,
    int8: QuantizedEncoder,
    files: dict[str, Path],
    specimen: Specimen,
    backend: str,
    record_property: Callable[[str, object], None],
) -> None:
    """From one number that rounds the other way on, runs differ as much as quantization changes a model."""
    pytest.importorskip(backend)
    found = parity(int8, files[backend], specimen.others, backend).cosine
    lost = Reference.of_texts(encoder, specimen.others).compare(int8).quality().cosine
    assert found is not None and lost is not None
    record_property("parity.mean", found.mean)
    record_property("parity.worst", found.worst)
    assert 1 - found.mean <= max(0.01, 1 - lost.mean)


def test_an_embedder_gives_the_normalized_mean_of_what_the_file_computes(
    files: dict[str, Path], saved: Path, batch: dict[str, Tensor], encoder: Encoder, specimen: Specimen
) -> None:
    if specimen.head != "encoder":
        pytest.skip("this model makes no embeddings")
    found = Embedder(files["onnxruntime"], saved).encode(specimen.others)
    outputs = open_onnx(files["onnxruntime"])({name: tensor.numpy() for name, tensor in batch.items()})
    mask = batch["attention_mask"].unsqueeze(-1).numpy()
    mean = (outputs["last_hidden_state"] * mask).sum(1) / mask.sum(1)
    expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    order = next(iter(encoder.batches(specimen.others)))[0]
    assert np.abs(found[order] - expected).max() < 1e-4


def test_a_benchmark_has_a_row_for_every_artifact(
    files: dict[str, Path], saved: Path, specimen: Specimen
) -> None:
    measure = partial(bench, shapes=((2, 16),), threads=1, seconds=0.1, memory=False)
    given = [f"{file}@{backend}" for backend, file in files.items()]
    rows = measure([str(specimen.folder), str(saved), *given], texts=specimen.others[:2]).rows
    assert [row.kind for row in rows] == ["float", "simulated", *["integer"] * len(files)]
    for row in rows:
        assert row.quality is not None and row.megabytes is not None
        assert all(timing.median_ms > 0 for timing in row.timings)
    assert all((row.megabytes or 0) < 0.35 * (rows[0].megabytes or 0) for row in rows[2:])
