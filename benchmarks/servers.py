"""Open a folder of `octavo export --layout hub` with tools that it is laid out for, and compare vectors.

Infinity and the backends of sentence-transformers need another transformers than Octavo, so each runs
in an environment of its own, which is made first (gigabytes, some minutes) unless its Python is named by
--infinity or --sentence-transformers:

    python benchmarks/servers.py -o results/deploy/servers.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from output import add_options, report

import octavo
from octavo.runtime import Embedder
from octavo.runtime.hub.layout import write_hub_folder
from octavo.tasks.demo import split_demo_texts
from octavo.versions import processor, versions

NEEDS = {
    "infinity": ("infinity-emb==0.0.78", "optimum[onnxruntime]==1.24.0", "transformers==4.48.3", "numpy<2"),
    "sentence-transformers": (
        "sentence-transformers==5.7.0",
        "optimum-onnx[onnxruntime]==0.1.0",
        "optimum-intel[openvino]==1.27.0",
    ),
}
_TOLD = """
import json, sys
from importlib.metadata import version
folder, texts, out = sys.argv[1:4]
texts = json.load(open(texts))
found = {}
%s
names = %r
json.dump({"vectors": found, "versions": {name: version(name) for name in names}}, open(out, "w"))
"""
SCRIPTS = {
    "infinity": """
import asyncio
from infinity_emb import AsyncEmbeddingEngine, EngineArgs
options = dict(engine="optimum", device="cpu", model_warmup=False, pooling_method="mean")

async def run():
    engine = AsyncEmbeddingEngine.from_args(EngineArgs(model_name_or_path=folder, **options))
    async with engine:
        vectors, _ = await engine.embed(sentences=texts)
    found["onnx/model_quantized.onnx"] = [vector.tolist() for vector in vectors]

asyncio.run(run())
""",
    "sentence-transformers": """
from sentence_transformers import SentenceTransformer
for backend, file in (("onnx", "onnx/model.onnx"), ("onnx", "onnx/model_quantized.onnx"),
                      ("openvino", "openvino/openvino_model_qint8_quantized.xml")):
    model = SentenceTransformer(folder, backend=backend, device="cpu", model_kwargs={"file_name": file})
    found[file] = model.encode(texts, batch_size=1).tolist()
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for tool in NEEDS:
        parser.add_argument(f"--{tool}", metavar="PYTHON", help="of an environment that has it")
    parser.add_argument("--limit", type=int, default=32, help="texts to compare")
    add_options(parser)
    options = parser.parse_args()
    encoder = octavo.load("demo:minilm")
    calibration, others = split_demo_texts()
    texts = [text for text in others if isinstance(text, str)][: options.limit]
    model = octavo.quantize(encoder, octavo.recipe("int8"), calibration=calibration)
    with tempfile.TemporaryDirectory() as name:
        folder = write_hub_folder(model, Path(name) / "minilm").folder
        tools = {tool: run(tool, vars(options)[tool.replace("-", "_")], folder, texts) for tool in NEEDS}
        rows = [
            row(tool, folder, file, vectors, texts)
            for tool, (files, _) in tools.items()
            for file, vectors in files.items()
        ]
    about = {"versions": versions(), "processor": processor(), "texts": len(texts)}
    theirs = {tool: told for tool, (_, told) in tools.items()}
    report(
        {"command": "python benchmarks/servers.py", **about, "theirs": theirs, "rows": rows}, options.output
    )


def run(
    tool: str, python: str | None, folder: Path, texts: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the vectors that a tool makes with each file of the folder, and the versions it runs in."""
    work = folder.parent / tool
    work.mkdir()
    if python is None:
        python = str(work / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", work], check=True)
        subprocess.run([python, "-m", "pip", "install", "-qq", *NEEDS[tool]], check=True)
    names = [need.partition("[")[0].partition("=")[0].partition("<")[0] for need in NEEDS[tool]]
    (work / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    script = _TOLD % (SCRIPTS[tool], names)
    out = work / "out.json"
    subprocess.run([python, "-c", script, folder, work / "texts.json", out], check=True, cwd=work)
    told = json.loads(out.read_text(encoding="utf-8"))
    return told["vectors"], told["versions"]


def row(tool: str, folder: Path, file: str, vectors: Any, texts: list[str]) -> dict[str, Any]:
    """Compare a tool's vectors with those of `Embedder`."""
    found = np.array(vectors, dtype=np.float64)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    embedder = Embedder(folder / file, threads=1)
    cosines = (found * np.stack([embedder.encode(text) for text in texts])).sum(1)
    return {"tool": tool, "file": file, "mean": float(cosines.mean()), "worst": float(cosines.min())}


if __name__ == "__main__":
    main()
