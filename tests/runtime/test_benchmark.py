from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import DataError, ModelError
from octavo.runtime.benchmark import Benchmark, bench
from octavo.runtime.plot import draw
from octavo.runtime.quality import can_read_texts
from tests.runtime.conftest import TEXTS

SHAPES = ((1, 4), (2, 8))


@pytest.fixture(scope="module")
def measured(tiny_bert_folder: Callable[..., Path], tiny_saved: Path, tiny_file: Path) -> Benchmark:
    models = [str(tiny_bert_folder()), str(tiny_saved), str(tiny_file)]
    return bench(models, shapes=SHAPES, texts=TEXTS, threads=1, seconds=0.0, memory=False)


def test_every_artifact_says_what_its_arithmetic_is(measured: Benchmark) -> None:
    assert [row.kind for row in measured.rows] == ["float", "simulated", "integer"]
    assert [row.backend for row in measured.rows] == ["torch", "torch", "onnxruntime"]
    assert all(row.megabytes is not None and row.megabytes > 0 for row in measured.rows)


def test_every_shape_is_timed_and_the_first_artifact_is_the_reference(measured: Benchmark) -> None:
    for row in measured.rows:
        assert [(timing.batch, timing.length) for timing in row.timings] == list(SHAPES)
        assert all(0 < timing.fastest_ms <= timing.median_ms for timing in row.timings)
    cosines = [None if row.quality is None else row.quality.cosine for row in measured.rows]
    assert cosines[0] is not None and cosines[0].worst > 0.99999
    assert cosines[2] is not None and cosines[2].mean > 0.95


def test_the_document_carries_versions(measured: Benchmark) -> None:
    assert {"rows", "threads", "texts", "versions"} <= measured.to_dict().keys()


def test_the_plot_names_every_artifact(measured: Benchmark) -> None:
    picture = draw(measured.rows, SHAPES[1]).document()
    assert picture.startswith("<svg") and all(row.name in picture for row in measured.rows)
    assert "(simulated)" in picture


def test_peak_memory_is_that_of_a_process_of_its_own(tiny_file: Path) -> None:
    row = bench([str(tiny_file)], shapes=((1, 4),), threads=1, seconds=0.0).rows[0]
    assert row.peak_megabytes is not None and 10 < row.peak_megabytes < 1000


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing to measure"):
        bench([])
    with pytest.raises(DataError, match="a length of at least 2"):
        bench(["x"], shapes=((1, 1),))


def test_fidelity_needs_a_tokenizer(tiny_file: Path) -> None:
    with pytest.raises(ModelError, match="none of the artifacts has a tokenizer"):
        bench([str(tiny_file)], shapes=((1, 4),), texts=TEXTS, threads=1, seconds=0.0, memory=False)


def test_only_files_run_in_a_backend(tiny_saved: Path) -> None:
    with pytest.raises(ModelError, match=r"only files that end in \.onnx or \.xml run in openvino; export"):
        bench([f"{tiny_saved}@openvino"], memory=False)


def test_a_model_in_openvinos_own_format_takes_part(tiny_file: Path, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    path = tmp_path / "model.xml"
    openvino.save_model(openvino.Core().read_model(str(tiny_file)), path)
    (row,) = bench([str(path)], shapes=((1, 4),), threads=1, seconds=0.0, memory=False).rows
    assert (row.kind, row.backend, row.name) == ("integer", "openvino", "model.xml (openvino)")
    assert row.megabytes is not None and row.megabytes > 0


def test_files_alone_are_compared_with_a_tokenizer(tiny_file: Path, tiny_saved: Path, tmp_path: Path) -> None:
    other = tmp_path / tiny_file.name
    other.write_bytes(tiny_file.read_bytes())
    options: Any = {"shapes": ((1, 4),), "texts": TEXTS, "threads": 1, "seconds": 0.0, "memory": False}
    rows = bench([str(tiny_file), str(other)], tokenizer=tiny_saved, **options).rows
    assert rows[0].name != rows[1].name
    assert all(row.quality is not None and row.quality.cosine is not None for row in rows)
    assert rows[1].quality is not None and rows[1].quality.cosine is not None
    assert rows[1].quality.cosine.worst > 0.99999


def test_a_missing_tokenizer_is_said_before_anything_is_timed(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.runtime.benchmark._time_all", lambda *given: pytest.fail("timed first"))
    with pytest.raises(ModelError, match=r"none of the artifacts has a tokenizer.*give --tokenizer DIR"):
        bench([str(tiny_file)], shapes=((1, 4),), texts=TEXTS, threads=1, memory=False)
    assert not can_read_texts([str(tiny_file), f"{tiny_file}@openvino"])
    assert can_read_texts([str(tiny_file), "demo:minilm"])
