"""The model card: what the model is, what was measured and on which machine, and how to use it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from octavo.fidelity import Quality
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.targets import find_target
from octavo.spec import dump_recipe
from octavo.versions import processor, versions

NOT_MEASURED = "Fidelity was not measured when this folder was written."
"""How a card says that there is nothing to say; `octavo push` looks for it."""

_TASKS = {
    "encoder": "feature-extraction",
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "masked-lm": "fill-mask",
}


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A model of a folder: its path in there, its size, its fidelity where measured, and its target.

    Arguments:
        target: the processors that integers are made for; None for a float model.
    """

    path: str
    megabytes: float
    quality: Quality | None
    target: str | None


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card is made from.

    Arguments:
        reference: the float model that files were measured against; None where there was none.
        files: the models of the folder.
        texts: how many texts fidelity was measured on.
        reduce_range: whether weights were rounded to 7 bits.
    """

    model: Encoder
    reference: Encoder | None
    files: Sequence[FileEntry]
    texts: int
    reduce_range: bool = False


def model_card(card: Card) -> str:
    """Return the README.md of a folder, with the header that the hub reads."""
    parts = [_header(card), _title(card), "## Files\n\n" + _files(card)]
    parts.append("## Fidelity\n\n" + _fidelity(card))
    parts.append("## Use it\n\n" + _use(card))
    if isinstance(card.model, QuantizedEncoder):
        parts.append("## How it was made\n\n" + _made(card.model))
    parts.append("## Made with\n\n" + _made_with(card))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def shown(name: str) -> str:
    """Return a name without folders of this machine, and without what Markdown and HTML would read."""
    path = Path(name)
    short = path.name if path.is_absolute() or path.exists() or name.startswith((".", "~")) else name
    return re.sub(r"[^\w\-./:+ ]", "_", short) or "model"


def _header(card: Card) -> str:
    embeds = card.model.sentence.embeds
    about: dict[str, Any] = {
        "library_name": "sentence-transformers" if embeds else "transformers",
        "pipeline_tag": "sentence-similarity" if embeds else _TASKS[card.model.head],
        "tags": ["octavo", "onnx", "openvino", "transformers.js"],
    }
    if isinstance(card.model, QuantizedEncoder):
        about["tags"] = ["int8", *about["tags"]]
    source = _source(card)
    if re.fullmatch(r"[\w\-.]+/[\w\-.]+", source) and not Path(source).exists():
        about |= {"base_model": source, "base_model_relation": "quantized"}
    return f"---\n{yaml.safe_dump(about, sort_keys=False)}---"


def _source(card: Card) -> str:
    """The name of the float model."""
    if card.reference is not None:
        return card.reference.name
    provenance = getattr(card.model, "provenance", {})
    return str(provenance.get("model", card.model.name))


def _title(card: Card) -> str:
    source = shown(_source(card))
    if not isinstance(card.model, QuantizedEncoder):
        return f"# {source}\n\n`{source}` in float, written by Octavo for ONNX Runtime and OpenVINO."
    recipe = shown(card.model.recipe.name)
    return (
        f"# {source}, quantized by {recipe}\n\n"
        f"`{source}` by Octavo's recipe `{recipe}`, as files that compute in integers."
    )


def _files(card: Card) -> str:
    lines = ["| file | MB |", "|---|---|"]
    return "\n".join(lines + [f"| `{file.path}` | {file.megabytes:.1f} |" for file in card.files])


def _fidelity(card: Card) -> str:
    if not any(file.quality for file in card.files):
        return (
            f"{NOT_MEASURED} Give texts of your own to `octavo export --layout hub --texts FILE`, "
            "or measure a file with `octavo evaluate`."
        )
    reference = "" if card.reference is None else f" `{shown(card.reference.name)}` in torch"
    rows = [(f"`{file.path}`", _measures(file.quality)) for file in card.files if file.quality]
    columns = [name for name in rows[0][1] if any(measured[name] for _, measured in rows)]
    lines = [f"Against{reference}, on {card.texts} texts, {processor()}:", ""]
    lines += ["| file | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for file, measured in rows:
        lines.append(f"| {file} | " + " | ".join(measured[name] for name in columns) + " |")
    return "\n".join(lines)


def _measures(quality: Quality) -> dict[str, str]:
    """The measures as they are shown; "" for one that the model does not have."""
    cosine = quality.cosine
    return {
        "cosine, mean": f"{cosine.mean:.4f}" if cosine else "",
        "cosine, worst": f"{cosine.worst:.4f}" if cosine else "",
        "agreement": "" if quality.agreement is None else f"{quality.agreement:.3f}",
        "correlation": "" if quality.correlation is None else f"{quality.correlation:.4f}",
        "SQNR, dB": f"{quality.sqnr:.1f}",
    }


def _use(card: Card) -> str:
    head = card.model.head
    ours = {
        "encoder": 'octavo.sentence_transformer("FOLDER").encode(["a text", "another"])',
        "sequence-classification": 'octavo.runtime.Classifier("FOLDER").predict("a text")',
        "token-classification": 'octavo.runtime.Tagger("FOLDER").tag("a text")',
        "question-answering": 'octavo.runtime.Reader("FOLDER").answer("a question?", "its context")',
        "masked-lm": 'octavo.open("FOLDER")  # called as models of transformers are',
    }[head]
    options, remark = _options_in_js(card.model) if head == "encoder" else ("", "")
    theirs = (
        "import { pipeline } from '@huggingface/transformers';\n\n"
        f"const run = await pipeline('{_TASKS[head]}', 'REPOSITORY', {{ dtype: 'q8' }});\n"
        f"const found = await run('a text'{options});{remark}"
    )
    served = "text-embeddings-router --model-id REPOSITORY        # reads onnx/model.onnx"
    parts = [f"```python\nimport octavo\n\n{ours}\n```", f"```js\n{theirs}\n```"]
    if head in ("encoder", "sequence-classification"):
        parts.append(f"```\n{served}\n```")
    return "\n\n".join(parts)


def _options_in_js(model: Encoder) -> tuple[str, str]:
    """What transformers.js is told to make an embedding, and a remark on what it cannot be told."""
    steps = model.sentence.step_names
    if model.pooling not in ("mean", "cls") or "Dense" in steps:
        after = " and ".join(["pooling by " + model.pooling, *(step for step in steps if step == "Dense")])
        return "", f"  // hidden states; {after} is up to you"
    return f", {{ pooling: '{model.pooling}', normalize: {str('Normalize' in steps).lower()} }}", ""


def _made(model: QuantizedEncoder) -> str:
    calibration = model.provenance.get("calibration", {}).get("texts")
    texts = f"{calibration} texts" if calibration else "texts"
    source = shown(str(model.provenance.get("model", model.name)))
    return (
        f"Calibrated on {texts}.\n\n"
        "```\n"
        f"octavo quantize {quote(source)} --recipe recipe.yaml --calibration texts.txt -o model\n"
        "octavo export model -o folder --layout hub --texts texts.txt\n"
        "```\n\n"
        f"`recipe.yaml`:\n\n```yaml\n{dump_recipe(model.recipe).rstrip()}\n```"
    )


def _made_with(card: Card) -> str:
    listed = ", ".join(f"{name} {version}" for name, version in versions().items())
    if not isinstance(card.model, QuantizedEncoder):
        return f"{listed}; {processor()}."
    said = [
        f"* `{file.path}` (`--target {file.target}`): {find_target(file.target).sentence}."
        for file in card.files
        if file.target is not None
    ]
    if card.reduce_range:
        said.append("\nWeights were rounded to 7 bits (`--reduce-range`).")
    return "\n".join([f"{listed}; {processor()}.\n", *said])
