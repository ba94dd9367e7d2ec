"""Distilling: a recipe's own model, trained without labels to answer as the float model does."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from octavo.errors import DataError, OctavoWarning, SpecError
from octavo.graph import Encoder, QuantizedEncoder, Text, attach
from octavo.graph.sites.site import Site
from octavo.graph.taps import layer_ends, tapped
from octavo.ledger import Ledger, fingerprint
from octavo.methods.context import Context
from octavo.methods.distillation.blocks import train_blocks
from octavo.methods.distillation.objective import Objective
from octavo.methods.distillation.settings import Distillation
from octavo.methods.distillation.taught import Taught, texts_to_learn
from octavo.methods.pipeline import carry_out
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.finetuning import own_copy
from octavo.methods.training.half import in_half
from octavo.methods.training.loop import RunOptions, TrainingResult, train
from octavo.methods.training.quantized import begin, check_static, finish, learned_ranges
from octavo.sentence import Dense
from octavo.spec import FixedRanges, LearnedRanges, Recipe, recipe_to_dict

FEWEST = 16
"""Texts below which nothing can be learned that holds for others."""
FEW = 64
"""Texts below which those may be learned by heart."""
_ABOUT = "distillation.json"
_MOST_HELD = 256
_PRECISE = 8
"""Bits from which on a table needs no training."""


@dataclass(kw_only=True)
class DistillationResult:
    """What a distillation did: the error on texts held out before and after, and how it went.

    Attributes:
        measure: what the error is: `1 - cosine` for embeddings, `KL divergence` for logits, ...
        trainings: one training end to end, or one of every block.
    """

    measure: str
    texts: int
    held_out: int
    error_before: float
    error_after: float
    trainings: list[TrainingResult] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long training took."""
        return sum(training.seconds for training in self.trainings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "seconds": self.seconds}


def distill(
    encoder: Encoder,
    recipe: Recipe,
    texts: Sequence[Text],
    settings: Distillation | None = None,
    *,
    seed: int = 0,
    work: str | Path | None = None,
    options: RunOptions | None = None,
) -> tuple[QuantizedEncoder, DistillationResult]:
    """Quantize an encoder by a recipe with all its passes, then train it to answer as the encoder does.

    No labels are needed, and any head will do. Texts that are held out judge every epoch and the start; the
    best is kept, so that the result is never worse than the start on them. The encoder itself stays as it is.

    Arguments:
        texts: strings or pairs of strings like those the model will see, a few hundred to a few thousand.
        work: a folder that keeps what passes and training have finished; the same call resumes.
        options: how the training is run (progress, time limit); its checkpoint is `work`'s.
    """
    settings, options = settings or Distillation(), options or RunOptions()
    check_texts(texts)
    shuffled = list(dict.fromkeys(texts))  # a text held out is nowhere else
    random.Random(seed).shuffle(shuffled)
    held = max(FEWEST // 4, min(_MOST_HELD, round(settings.held_out * len(shuffled))))
    learning, judging = shuffled[held:], shuffled[:held]
    folder = None if work is None else Path(work)
    _check_recipe(encoder, recipe, settings)
    ledger = _ledger(folder, encoder, recipe, texts, settings, seed)
    model, teacher = _quantized(
        encoder, recipe, learning[: settings.calibration], settings, seed, folder, options
    )
    sites = _looked_at(model, settings)
    objective = Objective(encoder, settings, hidden=len(sites[0]), attention=len(sites[1]))
    judge = _examples(encoder, encoder.graph, judging, objective, settings)
    judge.keep()
    objective.see([results[0] for results in judge.kept])
    before, start = judge.error(model.graph), _Snapshot(model)
    _begin(model, settings)
    inside = [*sites[0], *sites[1]]
    data = _examples(encoder, tapped(teacher, inside), learning, objective, settings)
    if settings.blocks:
        trainings = train_blocks(model, teacher, data, judge, settings, seed, ledger, options)
    else:
        options = replace(options, record=options.record and _can_be_recorded(encoder))
        data = replace(data, replayed=options.record)
        if not data.replayed:
            data.keep()
        student = in_half(tapped(model, inside))
        trainings = [
            train(
                student,
                data,
                settings.hyperparameters(),
                seed=seed,
                ranges=learned_ranges(model),
                score=lambda: -judge.error(student),
                options=_with_checkpoint(options, folder),
                start=ledger.about,
                keep_start=True,
            )
        ]
    finish(model)
    after = judge.error(model.graph)
    if after > before:  # what is float in training, such as integer functions, is not what is judged here
        start.restore(model)
        after = judge.error(model.graph)
    result = DistillationResult(
        measure=judge.objective.measure,
        texts=len(learning),
        held_out=held,
        error_before=before,
        error_after=after,
        trainings=trainings,
    )
    model.provenance = {**model.provenance, "distilled": _provenance(result, settings, texts)}
    return model, result


def check_texts(texts: Sequence[Text]) -> None:
    """Refuse texts that nothing can be learned from, and warn of those that are few."""
    if isinstance(texts, str) or not texts:
        raise DataError("no texts were given; give a list of a few hundred or more")
    different = len(set(texts))
    if different < FEWEST:
        raise DataError(
            f"{different} different texts are too few to learn from; give at least {FEWEST}, "
            "better a few hundred"
        )
    if different < FEW:
        warnings.warn(
            f"{different} different texts may be learned by heart; give a few hundred or more",
            OctavoWarning,
            stacklevel=2,
        )


def discard_work(folder: Path) -> None:
    """Remove the folder of a finished distillation; one of anything else stays."""
    if (folder / _ABOUT).is_file():
        shutil.rmtree(folder)


def _check_recipe(encoder: Encoder, recipe: Recipe, settings: Distillation) -> None:
    """Refuse a recipe that cannot be trained before its passes take their time."""
    check_static(attach(encoder, recipe))
    if settings.learn == "ranges" and not isinstance(recipe.training, LearnedRanges):
        raise SpecError(
            f"recipe {recipe.name!r} ends with {recipe.training.variant_name}, so ranges alone leave nothing "
            "to train; learn all or weights, or drop that pass"
        )


def _quantized(
    encoder: Encoder,
    recipe: Recipe,
    calibration: Sequence[Text],
    settings: Distillation,
    seed: int,
    folder: Path | None,
    options: RunOptions,
) -> tuple[QuantizedEncoder, Encoder]:
    """Return the recipe's model and its teacher: the float model before rounding.

    The teacher of tensors inside the model went through the same rewrites as the student.
    """
    context = Context(
        encoder=own_copy(encoder),
        calibration=calibration,
        seed=seed,
        max_length=settings.max_length,
        work=None if folder is None else folder / "passes",
        progress=options.progress,
        keep_float=settings.looks_inside,
    )
    model = carry_out(recipe, context)
    teacher = encoder
    if settings.looks_inside:
        assert model.float_model is not None
        teacher, model.float_model = own_copy(model.float_model), None
    return model, teacher


class _Snapshot:
    """The parameters and grids of a model at one moment."""

    def __init__(self, model: QuantizedEncoder) -> None:
        self._parameters = {name: p.detach().clone() for name, p in model.graph.named_parameters()}
        self._grids = {name: quantizer.affine() for name, quantizer in model.quantizers.items()}

    def restore(self, model: QuantizedEncoder) -> None:
        """Make a finished model what it was."""
        with torch.no_grad():
            for name, parameter in model.graph.named_parameters():
                parameter.copy_(self._parameters[name])
        for name, quantizer in model.quantizers.items():
            quantizer.fix(self._grids[name])
        model.refresh_weights()


def _begin(model: QuantizedEncoder, settings: Distillation) -> None:
    """Let gradients pass, and reach only what is to be learned."""
    begin(model, FixedRanges() if settings.learn == "weights" else model.recipe.training)
    set_dropout(model, 0.0, 0.0)
    if settings.learn == "ranges":
        apart = {id(parameter) for parameter in learned_ranges(model)}
        for parameter in model.graph.parameters():
            parameter.requires_grad_(id(parameter) in apart)
    # Rows that the texts lack would stay behind those that move, and with so many bits nothing has to.
    for site in model.weight_sites:
        quantizer = model.quantizers.get(site.name)
        precise = quantizer is None or quantizer.spec.bits >= _PRECISE
        if site.role == "embedding_weight" and precise:
            model.parameter(site).requires_grad_(False)
            if quantizer is not None:
                quantizer.fix()
    model.refresh_weights()


def _looked_at(model: QuantizedEncoder, settings: Distillation) -> tuple[list[Site], list[Site]]:
    """Return the sites of hidden states and of attention probabilities that the settings ask for."""
    hidden = layer_ends(model) if settings.hidden else []
    attention = (
        [s for s in model.activation_sites if s.role == "attention_probs"] if settings.attention else []
    )
    for wanted, sites, what in (
        (settings.hidden, hidden, "layers"),
        (settings.attention, attention, "attention probabilities (attention may be fused)"),
    ):
        if wanted and not sites:
            raise SpecError(f"{model.name}: no {what} were found to compare; leave out that loss")
    return hidden, attention


def _examples(
    encoder: Encoder, teacher: Any, texts: Sequence[Text], objective: Objective, settings: Distillation
) -> Taught:
    inputs, lengths = texts_to_learn(encoder, texts, settings.max_length)
    data = Taught(
        inputs=inputs,
        lengths=lengths,
        max_length=settings.max_length,
        teacher=teacher,
        objective=objective,
    )
    return data.to(encoder.device)


def _ledger(
    folder: Path | None,
    encoder: Encoder,
    recipe: Recipe,
    texts: Sequence[Text],
    settings: Distillation,
    seed: int,
) -> Ledger:
    """Return the ledger of this distillation; a folder of another one is refused before any work."""
    about: Mapping[str, Any] = {
        "parameters": fingerprint(dict(encoder.graph.named_parameters())),
        "recipe": {"name": recipe.name, "sha256": fingerprint(recipe_to_dict(recipe))},
        "texts": {
            "count": len(texts),
            "sha256": fingerprint([list(t) if isinstance(t, tuple) else t for t in texts]),
        },
        **settings.to_dict(),
        "seed": seed,
    }
    ledger = Ledger(
        folder,
        about,
        name=_ABOUT,
        noun="an interrupted distillation",
        remedy="run that one again, or delete the folder",
    )
    ledger.put("started", {})
    return ledger


def _with_checkpoint(options: RunOptions, folder: Path | None) -> RunOptions:
    return replace(options, checkpoint=None if folder is None else folder / "training")


def _can_be_recorded(encoder: Encoder) -> bool:
    """Return whether a step can be a CUDA graph: dense layers after pooling are copied from the host."""
    dense = any(isinstance(step, Dense) for step in encoder.sentence.steps)
    return encoder.device.type == "cuda" and not dense


def _provenance(result: DistillationResult, settings: Distillation, texts: Sequence[Text]) -> dict[str, Any]:
    return {
        "texts": len(texts),
        "settings": settings.to_dict(),
        "measure": result.measure,
        "error": {"before": result.error_before, "after": result.error_after},
    }
