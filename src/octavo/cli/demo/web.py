"""`octavo demo --web DIR`: a static page that searches sentences in the browser, with a model in 8 bits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.demo.npm import Package, unpack
from octavo.errors import ModelError

if TYPE_CHECKING:
    from octavo.graph import QuantizedEncoder

PAGE = "index.html"
RECIPE = "int8"
EXAMPLES = ("bad weather", "somebody is late", "food and cooking", "a problem with the computer", "money")
RUNTIME = Package(
    name="onnxruntime-web",
    version="1.30.0",
    files=("dist/ort.wasm.min.mjs", "dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm"),
)
TOKENIZERS = Package(name="@huggingface/tokenizers", version="0.2.0", files=("dist/tokenizers.min.mjs",))
_VENDOR = "vendor"
_ASSETS = ("style.css", "script.js")
_POOLINGS = ("mean", "cls")


@dataclass(frozen=True, kw_only=True)
class WebPage:
    """A page that was written.

    Arguments:
        megabytes: of the model.
        runtime_megabytes: of what runs it, beside the page; 0 where the page loads it from a mirror.
        missing: in words, why the runtime is not beside the page; None where it is.
    """

    folder: Path
    megabytes: float
    runtime_megabytes: float
    missing: str | None


def write_page(model: QuantizedEncoder, texts: Sequence[str], folder: Path, fp32_bytes: int) -> WebPage:
    """Write the page, the model, the sentences and their embeddings, and what runs the model, into a folder.

    The embeddings come from the exported file itself, run in Python. The browser pools and normalizes itself,
    so that models with dense layers or another pooling than by the mean or the first token are refused.

    Arguments:
        fp32_bytes: what the weights of the float model take.
    """
    from octavo.graph.capture.source import quiet_transformers
    from octavo.runtime.embedder import Embedder
    from octavo.runtime.exporting import export

    steps = model.sentence.step_names
    if model.pooling not in _POOLINGS or steps != ("Normalize",):
        raise ModelError(
            f"{model.name} pools by {model.pooling}, then {', '.join(steps) or 'nothing'}; the page knows "
            f"{' or '.join(_POOLINGS)}, then Normalize"
        )
    assert model.tokenizer is not None, "whoever has sentences to search has a tokenizer"
    file = export(model, folder / "model.onnx", check=True, target="web")
    with quiet_transformers():
        model.tokenizer.save_pretrained(folder)
    Embedder(file, threads=1).encode(list(texts)).astype("<f4").tofile(folder / "vectors.bin")
    (folder / _VENDOR).mkdir()
    missing = unpack((RUNTIME, TOKENIZERS), folder / _VENDOR)
    runtime = sum(part.stat().st_size for part in (folder / _VENDOR).iterdir()) if missing is None else 0
    if missing is not None:
        for part in (folder / _VENDOR).iterdir():
            part.unlink()
        (folder / _VENDOR).rmdir()
    about = {
        "model": Path(model.provenance.get("model", model.name)).name,
        "recipe": model.recipe.name,
        "pooling": model.pooling,
        "max_length": model.text_length,
        "bytes": file.stat().st_size,
        "float_bytes": fp32_bytes,
        "runtime_bytes": runtime,
        "texts": list(texts),
        "examples": list(EXAMPLES),
        "versions": {package.name: package.version for package in (RUNTIME, TOKENIZERS)},
        **_addresses(missing is None),
    }
    (folder / "data.json").write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")
    _write_assets(folder, local=missing is None)
    return WebPage(
        folder=folder,
        megabytes=file.stat().st_size / 1e6,
        runtime_megabytes=runtime / 1e6,
        missing=missing,
    )


def _addresses(local: bool) -> dict[str, str]:
    """Where the page finds what runs the model: beside it, or at a mirror."""
    if local:
        names = [f"./{_VENDOR}/{Path(name).name}" for name in (RUNTIME.files[0], TOKENIZERS.files[0])]
        return {"runtime": names[0], "tokenizers": names[1], "wasm": f"./{_VENDOR}/"}
    return {
        "runtime": RUNTIME.address + RUNTIME.files[0],
        "tokenizers": TOKENIZERS.address + TOKENIZERS.files[0],
        "wasm": RUNTIME.address + "dist/",
    }


def _write_assets(folder: Path, local: bool) -> None:
    source = resources.files("octavo.cli.demo") / "page"
    for name in _ASSETS:
        (folder / name).write_bytes((source / name).read_bytes())
    mirror = "" if local else " " + RUNTIME.address.partition("/npm")[0]
    page = (source / PAGE).read_text(encoding="utf-8").replace("{{sources}}", mirror)
    (folder / PAGE).write_text(page, encoding="utf-8")
