r"""Show that a change of the code leaves saved models and exported files as they were, byte for byte.

    python benchmarks/unchanged.py write baseline      # with the tree before the change
    python benchmarks/unchanged.py compare baseline    # with the tree after it; status 1 on a difference

Every preset quantizes the demo model; so do `w8a8-peg3` and `w8a8-peg6` with their groups split, and the
recipe that `allocate_bits` finds. Digests are kept of each tensor saved, of the other files beside them, of
what the model returns, before it is saved and after it is loaded again, and of the ONNX graph for each
runtime. Left out are octavo.json, which names versions, and the metadata of ONNX files; where a recipe cannot
be exported, the refusal is kept instead. `compare` also loads the folders that `write` kept, which every
later format must still read.

Everything runs on one thread with fixed seeds: writing twice gives the same digests, on one machine. Either
command takes a few minutes, and `write` keeps 1.6 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

import octavo
from octavo.spec.presets import preset_names

MODEL = "demo:minilm"
SPLIT = ("w8a8-peg3", "w8a8-peg6")
WITH_HEAD = ("w8a8-mp-output",)  # quantizes pooler and logits, which a bare encoder lacks
RUNTIMES = ("onnxruntime", "openvino")
COLUMNS = ("saved", "loaded", "kept", *RUNTIMES)
DIGESTS = "digests.json"
WORDS = 12  # of a refusal: enough to recognise it

CALIBRATION = (
    "The weather is fine today.",
    "She sold the house by the lake and moved into the city last spring.",
    "Rain!",
    "A train leaves for the coast every hour, except on Sundays.",
    "He could not remember where he had put his keys, so he waited outside until his sister came home.",
    "Water boils at one hundred degrees.",
    "The committee will publish its report in March; until then nobody may quote from it.",
    "Two dogs run along the beach.",
    "How long does it take to learn a language well enough to read its newspapers?",
    "Prices rose by 3.5 percent in 2019, and by 1.2 percent in the year before.",
    "Thank you for your letter.",
    "The old bridge was closed because the river had damaged one of its piers, and drivers have had to take "
    "the long way around through the hills ever since.",
    "No.",
    "My grandmother grows tomatoes, beans and basil on her balcony.",
    "Please restart the computer and try again.",
    "Although the team had lost three games in a row, the coach did not change a single player.",
    "A violin, a cello and a piano stand in the empty hall.",
    "Light travels faster than sound, which is why we see lightning before we hear thunder.",
    "The museum opens at nine.",
    "In the second chapter the author explains how glass is made, what it costs, and why the furnaces must "
    "never be allowed to cool down.",
    "Is this seat taken?",
    "They cooked rice with onions and lentils for forty guests.",
    "The patient was given a mild sedative and slept through the night without any further pain.",
    "Most birds can fly.",
)  # fmt: skip
QUESTIONS = (
    "A cat sleeps on the warm roof.",
    "Why?",
    "The bank raised its rates again, and the markets fell within minutes of the announcement.",
    "Children play football in the park after school.",
    "Turn left at the second light, then follow the road until you see the church.",
    "Coffee or tea?",
    "The experiment failed twice before somebody noticed that the thermometer was broken.",
    "He reads.",
)

Digests = dict[str, Any]


def main() -> None:
    """Run the sub-command that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, purpose in (("write", "keep models and digests"), ("compare", "make them again and compare")):
        command = commands.add_parser(name, help=purpose)
        command.add_argument("folder", type=Path, metavar="DIR", help=f"the folder of {DIGESTS}")
        command.add_argument("--only", nargs="+", metavar="NAME", help="these recipes alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", octavo.OctavoWarning)
    if options.command == "write":
        write(options.folder, options.only)
    elif not compare(options.folder, options.only):
        sys.exit(1)


def write(folder: Path, only: list[str] | None) -> None:
    """Keep models, ONNX files and digests of every recipe in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, make in models(only):
        start = time.perf_counter()
        found[name] = digests(make, folder / name)
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    (folder / DIGESTS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def compare(folder: Path, only: list[str] | None) -> bool:
    """Make everything again, print a table, and say whether all is as it was."""
    before: Digests = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    made = dict(models(only))
    same = True
    print(f"{'recipe':22}" + "".join(f"{column:16}" for column in COLUMNS))
    for name in dict.fromkeys([*before, *made]):
        if name not in before or name not in made:
            if not only:
                print(f"{name:22}{'only before' if name in before else 'only now'}")
                same = False
            continue
        now = digests_again(made[name], folder / name / "saved")
        expected = before[name] | {"kept": before[name]["loaded"]}
        row = {column: verdict(expected[column], now[column]) for column in COLUMNS}
        print(f"{name:22}" + "".join(f"{word:16}" for word in row.values()), flush=True)
        for column in [column for column, word in row.items() if word == "differs"]:
            same = False
            print("\n".join(f"    {column}: {line}" for line in differences(expected[column], now[column])))
    print("all is the same" if same else "there are differences")
    return same


def digests_again(make: Callable[[], Any], kept: Path) -> Digests:
    """Return the digests of a model made again, and of the one in the folder that `write` kept."""
    with tempfile.TemporaryDirectory() as place:
        return digests(make, Path(place)) | {"kept": loaded_digests(kept)}


def verdict(before: Digests, now: Digests) -> str:
    """Return a word for the table; refusals are alike if their type is, for words may be mended."""
    if "refused" in before and "refused" in now:
        kinds = {refusal["refused"].partition(":")[0] for refusal in (before, now)}
        return "refused alike" if len(kinds) == 1 else "differs"
    return "same" if before == now else "differs"


def differences(before: Digests, now: Digests) -> list[str]:
    """Name the first parts that differ, and count the others."""
    if "refused" in before or "refused" in now:
        return [f"{before.get('refused', 'written')} -> {now.get('refused', 'written')}"]
    odd = [
        f"{part}: {name}"
        for part in dict.fromkeys([*before, *now])
        for name in dict.fromkeys([*before.get(part, {}), *now.get(part, {})])
        if before.get(part, {}).get(name) != now.get(part, {}).get(name)
    ]
    return [*odd[:8], *([f"and {len(odd) - 8} more"] if len(odd) > 8 else [])]


# -- models --------------------------------------------------------------------------------------------------


def models(only: list[str] | None) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of every case and a function that makes its quantized model."""
    encoder = octavo.load(MODEL, device="cpu")
    # a tokenizer saves how it padded last: settled here, not by whichever recipe comes first
    encoder.tokenizer(list(QUESTIONS))
    cases: dict[str, Callable[[], Any]] = {
        name: lambda name=name: quantized(with_head() if name in WITH_HEAD else encoder, shortened(name))
        for name in preset_names()
    }
    for name in SPLIT:
        cases[f"{name}-split"] = lambda name=name: octavo.split_groups(quantized(encoder, shortened(name)))
    cases["allocated-bits"] = lambda: quantized(encoder, allocated(encoder))
    return ((name, make) for name, make in cases.items() if not only or name in only)


def quantized(encoder: Any, recipe: Any) -> Any:
    """Quantize on the calibration texts."""
    torch.manual_seed(0)
    return octavo.quantize(encoder, recipe, calibration=list(CALIBRATION), batch_size=1, seed=0)


def with_head() -> Any:
    """The demo model with an untrained head for two classes."""
    torch.manual_seed(0)
    return octavo.load(MODEL, head="sequence-classification", labels=2, device="cpu")


def shortened(name: str) -> Any:
    """A preset, learned rounding cut to few iterations, wherever a recipe keeps it."""
    recipe = octavo.recipe(name)
    if hasattr(recipe, "passes"):
        return replace(recipe, passes=tuple(_few_iterations(step) for step in recipe.passes))
    return replace(recipe, rounding=_few_iterations(recipe.rounding))


def _few_iterations(step: Any) -> Any:
    return replace(step, iterations=20) if "iterations" in {field.name for field in fields(step)} else step


def allocated(encoder: Any) -> Any:
    """A recipe with bits for every layer, from few short texts."""
    texts = sorted(CALIBRATION, key=len)[:4]
    torch.manual_seed(0)
    return octavo.allocate_bits(
        encoder, texts, octavo.AverageBits(bits=5), base=octavo.recipe("qbert-w8a8"), parts=2, seed=0
    )


# -- digests -------------------------------------------------------------------------------------------------


def digests(make: Callable[[], Any], folder: Path) -> Digests:
    """Make a model, write it and its ONNX files into a folder, and return their digests."""
    model = make()
    model.save(folder / "saved", force=True)
    found: Digests = {
        "saved": saved_digests(folder / "saved") | {"outputs": output_digests(model)},
        "loaded": loaded_digests(folder / "saved"),
    }
    for runtime in RUNTIMES:
        file = folder / f"{runtime}.onnx"
        try:
            export(model, file, runtime)
        except octavo.OctavoError as error:
            words = " ".join(str(error).split()[:WORDS])
            found[runtime] = {"refused": f"{type(error).__name__}: {words}"}
        else:
            found[runtime] = onnx_digests(file)
    return found


def saved_digests(folder: Path) -> Digests:
    """Digest every tensor of a saved folder, and every other file but octavo.json."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        tensors = {key: tensor_digest(opened.get_tensor(key)) for key in opened.keys()}
    kept = ("octavo.json", "model.safetensors")
    others = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in kept]
    return {"tensors": tensors, "files": {path.name: digest(path.read_bytes()) for path in others}}


def loaded_digests(folder: Path) -> Digests:
    """Digest what a model returns when it is loaded from its folder."""
    return {"outputs": output_digests(octavo.load(str(folder), device="cpu"))}


def output_digests(model: Any) -> Digests:
    """Digest what a model returns for the questions, padded into one batch."""
    # padded here, since a tokenizer asked to pad says so in the tokenizer.json it saves afterwards
    encoded = model.tokenizer(list(QUESTIONS))
    fills = {"input_ids": model.tokenizer.pad_token_id}
    batch = {name: padded(encoded[name], fills.get(name, 0)) for name in model.inputs}
    takes_names = "batch" not in inspect.signature(model.__call__).parameters
    with torch.no_grad():
        outputs = model(**batch) if takes_names else model(batch)
    return {name: tensor_digest(outputs[name]) for name in model.output_names}


def padded(rows: list[list[int]], fill: int) -> torch.Tensor:
    """Return rows of token ids as one tensor, filled up on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=fill)


def export(model: Any, file: Path, runtime: str) -> None:
    """Write an ONNX file, whatever the function and its option for the runtime are called."""
    write_onnx = getattr(octavo, "export_onnx", None) or octavo.export
    option = "runtime" if "runtime" in inspect.signature(write_onnx).parameters else "backend"
    write_onnx(model, file, force=True, **{option: runtime})


def onnx_digests(file: Path) -> Digests:
    """Digest nodes in their order, initializers by name, inputs and outputs; no metadata."""
    import onnx

    model = onnx.load(file)
    graph = model.graph
    nodes = b"".join(_framed(node.SerializeToString(deterministic=True)) for node in graph.node)
    opsets = sorted((entry.domain, entry.version) for entry in model.opset_import)
    return {
        "nodes": {f"all {len(graph.node)}": digest(nodes)},
        "initializers": {
            tensor.name: digest(tensor.SerializeToString(deterministic=True)) for tensor in graph.initializer
        },
        "order of initializers": {"all": digest(repr([t.name for t in graph.initializer]).encode())},
        "inputs": {value.name: digest(value.SerializeToString(deterministic=True)) for value in graph.input},
        "outputs": {
            value.name: digest(value.SerializeToString(deterministic=True)) for value in graph.output
        },
        "versions": {"ir": model.ir_version, "opsets": repr(opsets)},
    }


def tensor_digest(tensor: torch.Tensor) -> str:
    """Digest the type, shape and bytes of a tensor."""
    described = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    return digest(
        described + tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    )


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def digest(data: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
