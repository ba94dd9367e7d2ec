"""What the tests in Node and Chromium share: npm packages, the real model in 8 bits, a server of files."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import octavo
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime import Embedder
from octavo.runtime.hub.layout import write_hub_folder

HERE = Path(__file__).parent
NEEDED = (
    "needs Node and npm with the packages of tests/browser/package.json: npm install --ignore-scripts there"
)
TEXTS = octavo.demo_texts()[:24]


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """npm's packages: those that were installed here, or a fresh copy that vanishes with the tests."""
    if (HERE / "node_modules").is_dir():
        return HERE / "node_modules"
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip(NEEDED)
    folder = tmp_path_factory.mktemp("npm")
    shutil.copy(HERE / "package.json", folder)
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        pytest.skip(f"{NEEDED} ({done.stderr.strip()[-200:]})")
    return folder / "node_modules"


@pytest.fixture(scope="session")
def quantized(demo_encoder: Encoder) -> QuantizedEncoder:
    """The real all-MiniLM-L6-v2 by the recipe int8."""
    return octavo.quantize(demo_encoder, octavo.recipe("int8"), calibration=octavo.demo_texts())


@pytest.fixture(scope="session")
def models(
    quantized: QuantizedEncoder, demo_encoder: Encoder, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of models as transformers.js looks for them, with one, `minilm`; its plain file is float."""
    folder = tmp_path_factory.mktemp("models")
    write_hub_folder(quantized, folder / "minilm", against=demo_encoder, float_onnx=True)
    return folder


def embed(folder: Path, name: str) -> NDArray[Any]:
    """Embeddings in Python, one text at a time, as the scripts make them."""
    embedder = Embedder(folder / "minilm" / "onnx" / name, threads=1)
    return np.stack([embedder.encode(text) for text in TEXTS])


def cosines(found: Any, expected: NDArray[Any]) -> NDArray[Any]:
    vectors = np.array(found, dtype=np.float64)
    return np.asarray((vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1))


def run_node(script: str, node_modules: Path, *arguments: object, out: Path) -> Any:
    """Run a script beside npm's packages and return what it wrote."""
    place = node_modules.parent / script
    if not place.exists():
        shutil.copy(HERE / script, place)
    texts = out.with_name("texts.json")
    texts.write_text(json.dumps(TEXTS), encoding="utf-8")
    command = ["node", str(place), *map(str, arguments), str(texts), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text(encoding="utf-8"))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Any]:
    """Serve folders on 127.0.0.1 until the test ends; each call returns an address."""
    servers: list[ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
