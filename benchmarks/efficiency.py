"""Speed and kept score of a sentence encoder in every form that one deploys on CPUs, in turns.

    python benchmarks/peer_files.py FOLDER GLUE_DIR PEERS_DIR      # where nncf is installed
    python benchmarks/efficiency.py FOLDER --glue GLUE_DIR --peers PEERS_DIR --work DIR -o FILE
    python benchmarks/deploy_tables.py      # FILE is results/deploy/efficiency-MODEL.json

The table of sentence-transformers' page on efficiency: texts per second of STS-B's development set, embedded
in batches of 32 of like length, and Spearman correlation of its similarities. Every form embeds a hundred
texts, then the next one does, in an order that changes, so that a busy machine slows all of them alike;
cosines and neighbours are those of the first sentences with the float model's. Single texts of 32 tokens
and batches of 32 texts of 128 are timed before, again in turns. --pairs takes so many, spread over the file.
What is finished stands in --work, and the same command goes on where --seconds stopped it.

`int8` is calibrated with the first 64 sentences of STS-B's training set, and so is NNCF. OpenVINO chooses
the precision of floats itself, which is bfloat16 where the processor has it.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from output import add_options, report
from recipes import CALIBRATION, column
from scipy.stats import spearmanr

import octavo
from octavo.runtime import open_onnx
from octavo.runtime.benchmark import sample
from octavo.versions import processor, versions

Run = Callable[[dict[str, NDArray[Any]]], NDArray[Any]]
THREADS, BATCH, CHUNK, LENGTH = 2, 32, 96, 128
SHAPES = ((1, 32), (32, 128))
PAUSE = 0.15  # seconds before a turn: threads of the runtime before spin for a while
PEERS = {
    "ONNX Runtime, float": ("float.onnx", "onnxruntime"),
    "ONNX Runtime, its dynamic int8": ("dynamic.onnx", "onnxruntime"),
    "OpenVINO, float": ("float.onnx", "openvino"),
    "OpenVINO, NNCF int8": ("nncf.xml", "openvino"),
}


def torch_run(folder: str) -> Run:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()

    def run(feed: dict[str, NDArray[Any]]) -> NDArray[Any]:
        with torch.inference_mode():
            given = {name: torch.from_numpy(array) for name, array in feed.items()}
            hidden: NDArray[Any] = model(**given).last_hidden_state.numpy()
            return hidden

    return run


def file_run(path: Path, backend: str) -> Run:
    model = open_onnx(path, backend, threads=THREADS)
    first = model.outputs[0]
    return lambda feed: model(feed)[first]


def our_files(folder: str, glue: Path, work: Path) -> dict[str, Path]:
    """Return the files of int8, made once."""
    files = {backend: work / f"int8-{backend}.onnx" for backend in ("onnxruntime", "openvino")}
    if not all(path.exists() for path in files.values()):
        texts = column(glue / "STS-B" / "train.tsv", 7)[:CALIBRATION]
        model = octavo.quantize(octavo.load(folder), octavo.recipe("int8"), calibration=texts)
        for backend, path in files.items():
            octavo.export(model, path, backend=backend, force=True)
    return files


class Texts:
    """Both sentences of every pair, in chunks that are spread over the file."""

    def __init__(self, folder: str, glue: Path, pairs: int) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        with (glue / "STS-B" / "dev.tsv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        rows = rows[:: max(1, len(rows) // pairs)][:pairs]
        self.scores = [float(row["score"]) for row in rows]
        self.texts = [row["sentence1"] for row in rows] + [row["sentence2"] for row in rows]
        count = -(-len(self.texts) // CHUNK)
        self.chunks = [list(range(start, len(self.texts), count)) for start in range(count)]

    def feeds(self, chunk: list[int]) -> list[tuple[list[int], dict[str, NDArray[Any]]]]:
        order = sorted(chunk, key=lambda index: len(self.texts[index]))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        return [(each, self.encode([self.texts[index] for index in each])) for each in batches]

    def encode(self, texts: list[str]) -> dict[str, NDArray[Any]]:
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="np")
        return {name: array.astype(np.int64) for name, array in batch.items()}


def pooled(hidden: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    kept = mask[..., None]
    mean = (hidden * kept).sum(1) / kept.sum(1)
    normal: NDArray[Any] = mean / np.linalg.norm(mean, axis=-1, keepdims=True)
    return normal


def embed_in_turns(runs: dict[str, Run], texts: Texts, work: Path, end: float) -> bool:
    """Embed every chunk by every form and keep vectors and seconds; False where time ran out before."""
    for number, chunk in enumerate(texts.chunks):
        path = chunk_file(work, texts, number)
        if path.exists():
            continue
        if time.time() > end:
            return False
        feeds, kept = texts.feeds(chunk), {}
        for name in random.sample(list(runs), len(runs)):
            time.sleep(PAUSE)
            runs[name](feeds[0][1])
            start = time.perf_counter()
            vectors = {
                i: v for each, feed in feeds for i, v in zip(each, _vectors(runs[name], feed), strict=True)
            }
            kept[f"{name} seconds"] = np.array(time.perf_counter() - start)
            kept[name] = np.stack([vectors[index] for index in chunk])
        np.savez(path, **kept)
    return True


def chunk_file(work: Path, texts: Texts, number: int) -> Path:
    """Return where a chunk stands: of other --pairs, it is another."""
    return work / f"{len(texts.scores)}-pairs-{number}.npz"


def _vectors(run: Run, feed: dict[str, NDArray[Any]]) -> NDArray[Any]:
    return pooled(run(feed), feed["attention_mask"])


def time_in_turns(runs: dict[str, Run], work: Path, rounds: int, end: float) -> bool:
    """Time both shapes, `rounds` turns or a third of it; False where time ran out before."""
    path = work / "times.json"
    times: dict[str, dict[str, list[float]]] = json.loads(path.read_text()) if path.exists() else {}
    for batch, length in SHAPES:
        feed, key = sample(batch, length), f"{batch}x{length}"
        found = times.setdefault(key, {name: [] for name in runs})
        turns = rounds if batch == 1 else -(-rounds // 3)
        while len(next(iter(found.values()))) < turns:
            if time.time() > end:
                return False
            for name in random.sample(list(runs), len(runs)):
                found[name].append(_turn(runs[name], feed))
            path.write_text(json.dumps(times))
    return True


def _turn(run: Run, feed: dict[str, NDArray[Any]]) -> float:
    """Return the median milliseconds of some calls, after one that finds caches and threads again."""
    time.sleep(PAUSE)
    run(feed)
    taken: list[float] = []
    while not taken or (sum(taken) < 100 and len(taken) < 30):
        start = time.perf_counter()
        run(feed)
        taken.append((time.perf_counter() - start) * 1e3)
    return float(np.median(taken))


def neighbours(vectors: NDArray[Any], count: int = 10) -> NDArray[Any]:
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -2)
    return np.argsort(-scores, axis=1)[:, :count]


def table(names: list[str], texts: Texts, work: Path, sizes: dict[str, float]) -> dict[str, Any]:
    chunks = [
        np.load(chunk_file(work, texts, number), allow_pickle=False) for number in range(len(texts.chunks))
    ]
    order = np.argsort(np.concatenate(texts.chunks))
    times = json.loads((work / "times.json").read_text())
    rows: dict[str, Any] = {}
    base = np.array([float(chunk[f"{names[0]} seconds"]) for chunk in chunks])
    for name in names:
        vectors = np.concatenate([chunk[name] for chunk in chunks])[order]
        left, right = np.split(vectors, 2)
        if name == names[0]:
            reference, near = left, neighbours(left)
        seconds = np.array([float(chunk[f"{name} seconds"]) for chunk in chunks])
        cosines = (left * reference).sum(-1)
        kept = np.mean([len(set(a) & set(b)) for a, b in zip(neighbours(left), near, strict=True)]) / 10
        rows[name] = {
            "stsb": round(100 * float(spearmanr((left * right).sum(-1), texts.scores)[0]), 3),
            "cosine": round(float(cosines.mean()), 5),
            "worst": round(float(cosines.min()), 5),
            "neighbours": round(float(kept), 4),
            "texts_per_second": round(len(texts.texts) / float(seconds.sum()), 1),
            "speedup": round(float(np.median(base / seconds)), 3),
            "mb": sizes.get(name),
        }
        for shape, found in times.items():
            rows[name][f"ms_{shape}"] = round(float(np.median(found[name])), 3)
            ratio = np.median(np.array(found[names[0]]) / np.array(found[name]))
            rows[name][f"speedup_{shape}"] = round(float(ratio), 3)
    return rows


def against(rows_of: dict[str, dict[str, list[float]]], ours: str, peer: str) -> dict[str, float]:
    """Return the median over turns of our time by the peer's, of either shape."""
    pairs = {shape: (np.array(found[ours]), np.array(found[peer])) for shape, found in rows_of.items()}
    return {shape: round(float(np.median(mine / theirs)), 3) for shape, (mine, theirs) in pairs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder of Hugging Face's")
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("--peers", required=True, type=Path, help="what peer_files.py wrote")
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--name", help="the model's name in the result; default the folder's")
    parser.add_argument("--pairs", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so many")
    add_options(parser)
    options = parser.parse_args()
    end = time.time() + options.seconds
    warnings.simplefilter("ignore")
    torch.set_num_threads(THREADS)
    options.work.mkdir(parents=True, exist_ok=True)
    files = our_files(options.model, options.glue, options.work)
    runs: dict[str, Run] = {"torch, float": torch_run(options.model)}
    sizes: dict[str, float] = {}
    chosen = {name: (options.peers / file, backend) for name, (file, backend) in PEERS.items()}
    chosen["ONNX Runtime, `int8`"] = (files["onnxruntime"], "onnxruntime")
    chosen["OpenVINO, `int8`"] = (files["openvino"], "openvino")
    for name, (path, backend) in chosen.items():
        runs[name] = file_run(path, backend)
        weights = path.with_suffix(".bin") if path.suffix == ".xml" else path
        sizes[name] = round(weights.stat().st_size / 1e6, 2)
    texts = Texts(options.model, options.glue, options.pairs)
    if not (
        time_in_turns(runs, options.work, options.rounds, end)
        and embed_in_turns(runs, texts, options.work, end)
    ):
        print("not finished; the same command goes on")
        return
    times = json.loads((options.work / "times.json").read_text())
    result = {
        "command": "python benchmarks/efficiency.py MODEL --glue GLUE --peers PEERS --work DIR",
        "model": options.name or Path(options.model).name,
        "pairs": len(texts.scores),
        "threads": THREADS,
        "rounds": options.rounds,
        "processor": processor(),
        "versions": versions() | {name: version(name) for name in ("onnxruntime", "openvino")},
        "peers": json.loads((options.peers / "versions.json").read_text(encoding="utf-8")),
        "rows": table(list(runs), texts, options.work, sizes),
        "int8_to_peer": {
            "onnxruntime": against(times, "ONNX Runtime, `int8`", "ONNX Runtime, its dynamic int8"),
            "openvino": against(times, "OpenVINO, `int8`", "OpenVINO, NNCF int8"),
        },
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
