"""Export: a calibrated model as an artifact that a backend executes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import SpecError
from octavo.runtime.backends import DEFAULT, find_backend
from octavo.runtime.integers import check_integers
from octavo.runtime.targets import DEFAULT_TARGET, find_target

if TYPE_CHECKING:
    from octavo.graph.encoder import Encoder


def export(
    model: Encoder,
    path: str | Path,
    *,
    backend: str = DEFAULT,
    opset: int | None = None,
    force: bool = False,
    check: bool = False,
    inspect: Callable[[Path], object] | None = None,
    target: str = DEFAULT_TARGET,
    reduce_range: bool = False,
) -> Path:
    """Write a model as an artifact that computes in integers.

    For ONNX Runtime and OpenVINO that is one ONNX file. It takes `input_ids`, `attention_mask` and
    `token_type_ids` (those the model knows), int64 (batch, length) with both sizes free, and returns the
    model's outputs, the last hidden state first. Weights are stored once, as integers. A float encoder is
    written as it is.

    Arguments:
        backend: what the artifact is tuned for; both of these load the files of either.
        opset: the ONNX operator set, 21 if left out; 16-bit activations and 4-bit weights need it.
        force: replace a file that exists.
        check: also open the artifact in the backend, before it takes its place; a quantized layer that would
            still run in float is an error then, and nothing is written.
        inspect: called with the finished artifact before it takes its place, instead of `check`.
        target: the processors that the file is for. x86 processors without VNNI (`avx2`) add two products of
            bytes in 16 bits, which 8-bit weights overflow without a word; files for them store weights as
            unsigned bytes, which are the same numbers, and OpenVINO's have weights of 7 bits. In files for
            browsers (`web`) floats are computed to the same bit everywhere, so that they give the vectors of
            Python; outside of browsers they take two to four times as long. `any` is both; `vnni`, the
            default, is the fastest where it is right: x86 with VNNI, and Arm.
        reduce_range: round 8-bit weights of linear layers again, to 7 bits, for kernels that need it on x86
            without VNNI. This changes the numbers: the file is that of another model, which is less faithful
            and which only `octavo.runtime.narrowed_weights` simulates.
    """
    chosen, made_for = find_backend(backend), find_target(target)
    if target not in chosen.targets:
        raise SpecError(f"{backend} has no files for the target {target}; use {' or '.join(chosen.targets)}")
    options = {} if target == DEFAULT_TARGET else {"target": made_for}
    if check and inspect is None:
        inspect = partial(check_integers, backend=backend)
    with ExitStack() as stack:
        if reduce_range or (made_for.without_vnni and not chosen.multiplies_unsigned):
            # brings torch, which who only lists or runs files does without
            from octavo.runtime.narrowing import narrowed_weights

            stack.enter_context(narrowed_weights(model))
        return chosen.write(model, Path(path), opset=opset, force=force, inspect=inspect, **options)


def export_onnx(
    model: Encoder,
    path: str | Path,
    *,
    runtime: str = DEFAULT,
    opset: int = 21,
    force: bool = False,
) -> Path:
    """Write an ONNX file: the old name of `export`, which new code should use (deprecated)."""
    return export(model, path, backend=runtime, opset=opset, force=force)


def check_exportable(model: Encoder) -> None:
    """Refuse a model that cannot be written as ONNX, before any calibration: the error names the operation.

    The graph is walked as for export, but nothing is stored, so that this takes seconds and no memory. What
    only ranges decide (several scales for one activation, say) is found by `export` itself.
    """
    from octavo.runtime.translate.dry import dry_run

    dry_run(model)
