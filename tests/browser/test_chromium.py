"""Exported files in a real browser: transformers.js, and the page of `octavo demo --web`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.demo.web import write_page
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.sizes import float_bytes
from tests.browser.conftest import HERE, TEXTS, cosines, embed
from tests.diagnosis.browser import AVAILABLE, Browser, browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not AVAILABLE, reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)"
    ),
]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def wait(check: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "the page does not get ready"
        time.sleep(0.2)
    return found


def ready(tab: Browser) -> str:
    return str(wait(lambda: tab.run("return document.documentElement.dataset.ready")))


def test_transformers_js_gives_the_vectors_of_python_in_the_browser(
    tab: Browser, node_modules: Path, models: Path, serve: Callable[[Path], str], tmp_path: Path
) -> None:
    (tmp_path / "node_modules").symlink_to(node_modules)
    (tmp_path / "models").symlink_to(models)
    own = node_modules / "@huggingface" / "transformers" / "node_modules" / "onnxruntime-web" / "dist"
    shared = node_modules / "onnxruntime-web" / "dist"
    (tmp_path / "wasm").symlink_to(own if own.is_dir() else shared)
    shutil.copy(HERE / "page.html", tmp_path / "index.html")
    tab.visit(serve(tmp_path))
    assert ready(tab) == "yes"
    found = [tab.run("return window.embed(arguments[0])", text) for text in TEXTS]
    assert cosines(found, embed(models, "model_quantized.onnx")).min() > 0.99999


@pytest.fixture(scope="module")
def page(quantized: QuantizedEncoder, demo_encoder: Encoder, tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("page")
    written = write_page(quantized, TEXTS, folder, float_bytes(demo_encoder))
    if written.missing is not None:
        pytest.skip(f"needs npm, which puts the runtime beside the page: {written.missing}")
    return folder


def test_the_page_searches_as_one_types(tab: Browser, page: Path, serve: Callable[[Path], str]) -> None:
    tab.visit(serve(page))
    assert ready(tab) == "yes", tab.run("return document.getElementById('status').textContent")
    assert tab.complaints() == []
    tab.run("document.getElementById('query').focus()")
    tab.press(*"the bakery sells bread")
    first = "return document.querySelector('#results li')?.textContent ?? ''"
    wait(lambda: "bakery" in tab.run(first))
    assert tab.run("return document.querySelectorAll('#results li').length") == 8
    numbers = {
        name: float(tab.run(f"return document.getElementById('{name}').textContent"))
        for name in ("size", "float", "latency", "load", "runtime", "check")
    }
    assert 20 < numbers["size"] < 30 and 85 < numbers["float"] < 95 and 5 < numbers["runtime"] < 20
    assert numbers["check"] >= 0.9999 and numbers["latency"] > 0
    tab.run("const q = document.getElementById('query'); q.value = ' '; q.dispatchEvent(new Event('input'))")
    wait(lambda: tab.run("return document.querySelectorAll('#results li').length") == 0)


def test_the_page_asks_for_a_server_where_there_is_none(tab: Browser, page: Path) -> None:
    tab.open(page / "index.html")
    # scripts of a file are not even started, so the page says nothing that is wrong
    time.sleep(1)
    assert tab.run("return document.getElementById('query').disabled")


def test_a_missing_file_is_said(
    tab: Browser, page: Path, serve: Callable[[Path], str], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(page, tmp_path / "page"))
    (folder / "model.onnx").unlink()
    tab.visit(serve(folder))
    assert ready(tab) == "failed"
    said = tab.run("return document.getElementById('status').textContent")
    assert said == "This page cannot run here: model.onnx cannot be loaded (404)"
