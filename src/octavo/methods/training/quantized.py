"""Quantization-aware training on the captured graph (section 4): weights and ranges, through rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from octavo.errors import SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.rewrites.ties import tie_norms, untie_norms
from octavo.ledger import fingerprint
from octavo.methods.context import Calibration, Context
from octavo.methods.pipeline import carry_out
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.examples import Examples
from octavo.methods.training.finetuning import own_copy, remember_length
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.loop import RunOptions, Scorer, TrainingResult, train
from octavo.spec import FixedRanges, LearnedRanges, RangeTraining, Recipe, RunningRanges, recipe_to_dict


def qat(
    encoder: Encoder,
    recipe: Recipe,
    data: Examples,
    hyper: Hyperparameters,
    *,
    calibration: Calibration | None = None,
    batch_size: int = 1,
    seed: int = 0,
    score: Callable[[QuantizedEncoder], float] | None = None,
    options: RunOptions | None = None,
) -> tuple[QuantizedEncoder, TrainingResult]:
    """Quantize an encoder by a recipe, then train it; the encoder itself stays as it is.

    Arguments:
        data: lies on the encoder's device.
        calibration, batch_size: for the ranges that training starts from, as in `quantize`.
        score: a function of the model, asked after every epoch.
    """
    data.check(encoder)
    start: dict[str, Any] | None = None
    if options is not None and options.checkpoint is not None:
        calibrating: Any = None if calibration is None else list(calibration)
        if calibrating is not None and not isinstance(calibration, Sequence):
            calibration = iter(calibrating)  # it could be read only once
        start = _start(encoder, recipe, [calibrating, batch_size])
    model = prepare(
        encoder,
        recipe,
        calibration=calibration,
        batch_size=batch_size,
        seed=seed,
        max_length=hyper.max_length,
    )
    result = continue_training(
        model, data, hyper, seed=seed, score=_bound(score, model), options=options, start=start
    )
    finish(model)
    return model, result


def prepare(
    encoder: Encoder,
    recipe: Recipe,
    *,
    calibration: Calibration | None = None,
    batch_size: int = 1,
    seed: int = 0,
    max_length: int | None = None,
) -> QuantizedEncoder:
    """Return a calibrated model with parameters of its own whose quantizers pass gradients."""
    context = Context(
        encoder=own_copy(encoder),
        calibration=calibration,
        batch_size=batch_size,
        seed=seed,
        max_length=max_length,
    )
    model = carry_out(recipe, context)
    begin(model, recipe.training)
    return model


def check_static(model: QuantizedEncoder) -> None:
    """Refuse dynamic ranges, which have nothing that could be learned."""
    dynamic = [name for name, quantizer in model.quantizers.items() if quantizer.spec.dynamic]
    if dynamic:
        raise SpecError(
            f"recipe {model.recipe.name!r} has dynamic ranges "
            f"({len(dynamic)} sites, the first is {dynamic[0]}), "
            "which training cannot use; give these sites static ranges"
        )


def begin(model: QuantizedEncoder, training: RangeTraining) -> None:
    """Let gradients pass every quantizer and ranges do what the recipe says."""
    check_static(model)
    for quantizer in model.quantizers.values():
        match training:
            case LearnedRanges(gradient_scaling=scaling):
                quantizer.learn(gradient_scaling=scaling)
            case FixedRanges():
                quantizer.learn(trainable=False)
            case RunningRanges(momentum=momentum):
                quantizer.learn(momentum=0.0 if quantizer.site.kind == "weight" else momentum)
    tie_norms(model)
    model.graph.to(model.device)


def continue_training(
    model: QuantizedEncoder,
    data: Examples,
    hyper: Hyperparameters,
    *,
    seed: int = 0,
    score: Scorer | None = None,
    options: RunOptions | None = None,
    start: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a prepared model in place; `start` says what it was prepared from, as in `train`."""
    set_dropout(model, hyper.attention_dropout, hyper.hidden_dropout)
    remember_length(model, data)
    return train(
        model.graph,
        data,
        hyper,
        seed=seed,
        ranges=learned_ranges(model),
        score=score,
        options=options,
        start=start,
    )


def learned_ranges(model: QuantizedEncoder) -> list[Tensor]:
    """Return the log-scales and shifts that take gradients."""
    ranges = [p for q in model.quantizers.values() for p in (q.log_scale, q.shift)]
    return [parameter for parameter in ranges if parameter is not None and parameter.requires_grad]


def finish(model: QuantizedEncoder) -> None:
    """Take what was trained as the model's fixed ranges and weights: an ordinary quantized encoder."""
    untie_norms(model)
    for quantizer in model.quantizers.values():
        quantizer.fix()
    model.refresh_weights()
    model.provenance = {**model.provenance, "trained": True}


def _start(encoder: Encoder, recipe: Recipe, calibration: object) -> dict[str, Any]:
    """Return what a quantized model is made from.

    These are the float parameters and not the ranges: found anew on another machine, ranges may differ in
    their last bits.
    """
    return {
        "parameters": fingerprint(dict(encoder.graph.named_parameters())),
        "recipe": {"name": recipe.name, "sha256": fingerprint(recipe_to_dict(recipe))},
        "calibration": fingerprint(calibration),
    }


def _bound(score: Callable[[QuantizedEncoder], float] | None, model: QuantizedEncoder) -> Scorer | None:
    return None if score is None else lambda: score(model)
