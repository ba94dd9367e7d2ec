"""The folder laid out as the hub's tools expect it.

onnx/model.onnx                                   what text-embeddings-inference loads; transformers.js `fp32`
onnx/model_quantized.onnx                         transformers.js `q8`, Infinity
openvino/openvino_model_qint8_quantized.xml       sentence-transformers' and optimum's OpenVINO (and .bin)
config.json, tokenizer files                      Hugging Face's
modules.json, 1_Pooling/, ...                     sentence-transformers', where the model has them
recipe.yaml                                       how the model was quantized
README.md                                         the model card
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import ModelError, OctavoWarning
from octavo.fidelity import Quality
from octavo.files import check_output, write_folder
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.capture.source import quiet_transformers
from octavo.graph.encoder import Text
from octavo.progress import Progress, silent
from octavo.runtime.artifacts import TORCH, Artifact, open_artifact, torch_runner
from octavo.runtime.backends import BACKENDS
from octavo.runtime.backends.openvino import OPENVINO, save_own_format
from octavo.runtime.exporting import export
from octavo.runtime.hub.card import Card, FileEntry, model_card
from octavo.runtime.quality import measure_quality
from octavo.runtime.targets import DEFAULT_TARGET, Target, find_target
from octavo.sentence import write_files
from octavo.spec import dump_recipe

PLAIN = "onnx/model.onnx"
QUANTIZED = "onnx/model_quantized.onnx"
OPENVINO_FLOAT = "openvino/openvino_model.xml"
OPENVINO_QUANTIZED = "openvino/openvino_model_qint8_quantized.xml"
README = "README.md"
RECIPE = "recipe.yaml"


@dataclass(frozen=True, kw_only=True)
class HubFolder:
    """A folder that was written.

    Arguments:
        files: the models in it, by their path, with their size and, where texts were given, their fidelity.
    """

    folder: Path
    files: tuple[FileEntry, ...]


def write_hub_folder(
    model: Encoder,
    folder: str | Path,
    *,
    texts: Sequence[Text] = (),
    against: Encoder | None = None,
    float_onnx: bool = False,
    for_browsers: bool = True,
    target: str = DEFAULT_TARGET,
    reduce_range: bool = False,
    check: bool = True,
    force: bool = False,
    progress: Progress = silent,
) -> HubFolder:
    """Write a folder that text-embeddings-inference, Infinity, transformers.js and others open as it is.

    Arguments:
        model: a quantized model, or a float one, which is written without the quantized files.
        texts: to measure fidelity on, for the model card; without them it says that nothing was measured.
        against: the float model, which files are measured against.
        float_onnx: write `onnx/model.onnx` from the float model; otherwise it is the quantized one again.
        for_browsers: make `onnx/model_quantized.onnx` for browsers (`web`, or `any` where the others have to
            do without VNNI); otherwise it is for the target of `onnx/model.onnx`, and as fast on servers.
        target: as in `octavo.export`.
        reduce_range: as in `octavo.export`.
        check: open what was written, and refuse a quantized layer that would run in float.
        force: replace a folder of this kind.
    """
    output = Path(folder)
    check_output(output, force, PLAIN)
    made_for = find_target(target)
    reference = against if isinstance(model, QuantizedEncoder) else model
    if reference is None and (texts or float_onnx):
        wanted = "measure fidelity" if texts else "write onnx/model.onnx in float"
        raise ModelError(f"to {wanted}, the float model is needed; give it as against (--against MODEL)")
    if reference is not None and reference.head != model.head:
        raise ModelError(
            f"{reference.name} has the head {reference.head} and {model.name} the head {model.head}; "
            "give the float model that was quantized"
        )
    with write_folder(output, force, PLAIN) as draft:
        options: dict[str, Any] = {
            "check": check and isinstance(model, QuantizedEncoder),
            "reduce_range": reduce_range,
        }
        plain = reference if float_onnx else None
        written = _write_models(model, plain, draft, made_for, for_browsers, options, progress)
        qualities = _measure(draft, list(written), reference, texts)
        files = tuple(
            FileEntry(path=path, megabytes=_megabytes(draft / path), quality=quality, target=written[path])
            for path, quality in zip(written, qualities, strict=True)
        )
        _write_beside(model, draft)
        card = Card(
            model=model,
            reference=reference,
            files=files,
            texts=len(texts),
            reduce_range=reduce_range,
        )
        (draft / README).write_text(model_card(card), encoding="utf-8")
    progress(len(written) + 1, len(written) + 1)
    return HubFolder(folder=output, files=files)


def _write_models(
    model: Encoder,
    plain: Encoder | None,
    draft: Path,
    target: Target,
    for_browsers: bool,
    options: dict[str, Any],
    progress: Progress,
) -> dict[str, str | None]:
    """Write the models and return their paths, the plain one first, with the target of those of integers."""
    quantized = isinstance(model, QuantizedEncoder)
    written: dict[str, str | None] = {PLAIN: target.name if quantized and plain is None else None}
    for name in ("onnx", "openvino"):
        (draft / name).mkdir()
    if quantized:
        web = "any" if target.without_vnni else "web"
        chosen = web if for_browsers else target.name
        export(model, draft / QUANTIZED, target=chosen, **options)
        written[QUANTIZED] = chosen
    progress(1, 4)
    if quantized and plain is not None:
        export(plain, draft / PLAIN)
    else:
        export(model, draft / PLAIN, target=target.name, **options)
    progress(2, 4)
    if OPENVINO.is_installed:
        name = OPENVINO_QUANTIZED if quantized else OPENVINO_FLOAT
        made_for = "avx2" if target.without_vnni else "vnni"
        _write_openvino(model, draft / name, options | {"target": made_for})
        written[name] = made_for if quantized else None
    else:
        (draft / "openvino").rmdir()
    progress(3, 4)
    return written


def _write_openvino(model: Encoder, path: Path, options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = export(model, Path(folder) / "model.onnx", backend=OPENVINO.name, **options)
        save_own_format(file, path)


def _measure(
    draft: Path, written: Sequence[str], reference: Encoder | None, texts: Sequence[Text]
) -> Sequence[Quality | None]:
    if reference is None or not texts:
        return [None] * len(written)
    first = Artifact(
        name=reference.name,
        kind="float",
        backend=TORCH,
        size=None,
        run=torch_runner(reference),
        encoder=reference,
    )
    files = [open_artifact(str(draft / path), _backend(path)) for path in written]
    return measure_quality([first, *files], texts, reference)[1:]


def _backend(path: str) -> str:
    return next(name for name, backend in BACKENDS.items() if path.endswith(backend.endings))


def _megabytes(path: Path) -> float:
    files = [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]
    return sum(file.stat().st_size for file in files) / 1e6


def _write_beside(model: Encoder, draft: Path) -> None:
    """Write what the tools read beside the models: configuration, tokenizer, modules, recipe."""
    with quiet_transformers():
        model.config.save_pretrained(draft)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(draft)
        else:
            warnings.warn(
                f"{model.name} has no tokenizer, without which others' tools read no texts; add its files to "
                "the folder",
                OctavoWarning,
                stacklevel=3,
            )
    write_files(model.sentence, draft)
    if isinstance(model, QuantizedEncoder):
        (draft / RECIPE).write_text(dump_recipe(model.recipe), encoding="utf-8")
