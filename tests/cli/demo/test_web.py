from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo.cli.demo import npm, web
from octavo.cli.demo.web import RUNTIME, write_page
from octavo.errors import ModelError
from octavo.graph import QuantizedEncoder
from octavo.runtime import Embedder
from octavo.sentence import SentenceModules
from tests.cli.conftest import Run

TEXTS = ["the dog barks.", "a cat sleeps on the mat.", "<script>rain</script>"]


@pytest.fixture(scope="module")
def model(tiny: Path) -> QuantizedEncoder:
    return octavo.quantize(octavo.load(tiny), octavo.recipe("int8"), calibration=TEXTS)


def test_without_npm_the_page_is_built_and_names_a_mirror(
    model: QuantizedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npm.shutil, "which", lambda name: None)
    page = write_page(model, TEXTS, tmp_path, 1000)
    assert page.missing == "npm is not installed" and page.runtime_megabytes == 0
    about = json.loads((tmp_path / "data.json").read_text(encoding="utf-8"))
    assert about["runtime"] == f"{RUNTIME.address}dist/ort.wasm.min.mjs" and about["texts"] == TEXTS
    assert "blob: https://cdn.jsdelivr.net;" in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not (tmp_path / "vendor").exists()


def test_with_the_runtime_beside_it_the_page_asks_nobody_else(
    model: QuantizedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(packages: object, folder: Path) -> None:
        (folder / "ort.wasm.min.mjs").write_bytes(b"x" * 2000)

    monkeypatch.setattr(web, "unpack", unpack)
    page = write_page(model, TEXTS, tmp_path, 1000)
    assert page.missing is None and page.runtime_megabytes == 0.002
    written = "".join(
        (tmp_path / name).read_text(encoding="utf-8")
        for name in ("index.html", "data.json", "style.css", "script.js")
    )
    assert "https://" not in written and "<script>rain" not in (tmp_path / "index.html").read_text()
    vectors = np.fromfile(tmp_path / "vectors.bin", dtype="<f4").reshape(len(TEXTS), -1)
    assert np.allclose(vectors, Embedder(tmp_path / "model.onnx").encode(TEXTS), atol=1e-6)


def test_a_model_that_the_page_cannot_pool_is_refused(model: QuantizedEncoder, tmp_path: Path) -> None:
    by_max = replace(model, sentence=SentenceModules(pooling="max"))
    with pytest.raises(ModelError, match="pools by max, then Normalize; the page knows mean or cls"):
        write_page(by_max, TEXTS, tmp_path, 1000)


def test_the_command_writes_the_page_once_and_needs_force_after_it(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = octavo.load(tiny)
    monkeypatch.setattr(octavo, "load", lambda *_, **__: encoder, raising=False)
    monkeypatch.setattr("octavo.tasks.demo.split_demo_texts", lambda: (TEXTS[:2], [("a", "pair"), TEXTS[2]]))
    monkeypatch.setattr(npm.shutil, "which", lambda name: None)
    done = run("demo", "--web", tmp_path / "page", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["texts"] == 3
    assert "npm is not installed, so the page loads its runtime from a public mirror" in done.stderr
    again = run("demo", "--web", tmp_path / "page")
    assert again.exit_code == 2 and "exists already" in again.stderr
    both = run("demo", "--web", tmp_path / "other", "-o", tmp_path / "models")
    assert both.exit_code == 2 and "--web writes the page alone" in both.stderr
