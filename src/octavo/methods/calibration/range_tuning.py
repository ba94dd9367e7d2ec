"""Learning the ranges of activations on the error of the model's outputs, without labels.

Quantizers learn as in quantization-aware training (`Quantizer.learn`, straight through rounding), but weights
stay as they are and the float model is the teacher. Texts that are held out say which state is kept.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

import torch
from torch import Tensor

from octavo.errors import OctavoWarning
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.batches import of_equal_length
from octavo.ledger import Ledger, fingerprint
from octavo.methods.calibration.output_error import OutputError, spread_texts
from octavo.methods.context import Context
from octavo.spec import TuneRanges, recipe_to_dict

_MOST_BITS = 8
_HELD_OUT = 4  # one text in so many
_LOOKS = 10  # how often the error on held-out texts is asked for
_KEY = "state"

Text = Mapping[str, Tensor]


def run(model: QuantizedEncoder, done: TuneRanges, context: Context) -> QuantizedEncoder:
    """Learn the static activation ranges of at most 8 bits of a calibrated model."""
    quantizers = {name: q for name, q in model.quantizers.items() if _is_learned(q)}
    if not quantizers:
        warnings.warn(
            f"recipe {model.recipe.name!r}: tune-ranges does nothing, as no activation has a static range of "
            f"at most {_MOST_BITS} bits; drop the pass",
            OctavoWarning,
            stacklevel=2,
        )
        return model.rewritten(done)
    texts = [row for batch in spread_texts(context.batches, done.texts) for row in _single(batch)]
    held = texts[::_HELD_OUT]
    learning = [text for place, text in enumerate(texts) if place % _HELD_OUT] or held
    folder = None if context.work is None else context.work / done.variant_name
    about = {
        **asdict(done),
        "seed": context.seed,
        "recipe": recipe_to_dict(model.recipe),
        "data": fingerprint(*texts),
        "ranges": fingerprint(*(q.scale for q in quantizers.values())),
    }
    ledger = Ledger(folder, about, noun="an interrupted run of tune-ranges")
    with _learning(quantizers):
        tuning = _Tuning(model, quantizers, done, context, learning, held)
        tuning.train(ledger)
        before, after = tuning.first, tuning.least
    context.findings[done.variant_name] = {"error": {"before": before, "after": after}}
    return model.rewritten(done)


def _is_learned(quantizer: Quantizer) -> bool:
    static = quantizer.site.kind == "activation" and not quantizer.spec.dynamic
    return static and quantizer.spec.bits <= _MOST_BITS


def _single(batch: Text) -> Iterator[dict[str, Tensor]]:
    for row in range(len(batch["input_ids"])):
        yield {name: tensor[row : row + 1] for name, tensor in batch.items()}


@contextmanager
def _learning(quantizers: Mapping[str, Quantizer]) -> Iterator[None]:
    """Let quantizers learn inside the block, and quantize with what they learned afterwards."""
    try:
        for quantizer in quantizers.values():
            quantizer.learn()
        yield
    finally:
        for quantizer in quantizers.values():
            quantizer.fix()


class _Tuning:
    """The parameters that are learned, with Adam's moments, and the best of them so far."""

    def __init__(
        self,
        model: QuantizedEncoder,
        quantizers: Mapping[str, Quantizer],
        settings: TuneRanges,
        context: Context,
        texts: Sequence[Text],
        held: Sequence[Text],
    ) -> None:
        self._model, self._settings, self._context = model, settings, context
        found = [p for q in quantizers.values() for p in (q.log_scale, q.shift)]
        self._parameters = [parameter for parameter in found if parameter is not None]
        self._moments = [[torch.zeros_like(p) for p in self._parameters] for _ in range(2)]
        self._texts = _alike(texts)
        self._error = OutputError(context.encoder, self._texts)
        self._judge = OutputError(context.encoder, _alike(held))
        self._best = self._copy()
        self.first = self.least = float("inf")

    def train(self, ledger: Ledger) -> None:
        """Take all steps, from where an interrupted run stopped, and leave the best state."""
        step = self._resume(ledger)
        if step == 0:
            self.first = self.least = self._judge.of(self._model)
        order = self._order()
        every = max(1, self._settings.steps // _LOOKS)
        for number in range(self._settings.steps):
            chosen = next(order)
            if number < step:
                continue
            self._step(number, chosen)
            if (number + 1) % every == 0 or number + 1 == self._settings.steps:
                self._look()
                self._keep(ledger, number + 1)
            self._context.progress(number + 1, self._settings.steps)
        self._restore(self._best)

    def _order(self) -> Iterator[list[int]]:
        """Yield the batches of each step: as many as make up its texts, all before any comes again."""
        chooser = random.Random(self._context.seed)
        waiting: list[int] = []
        while True:
            chosen: list[int] = []
            while sum(len(self._texts[i]["input_ids"]) for i in chosen) < self._settings.batch_size:
                if not waiting:
                    waiting = list(range(len(self._texts)))
                    chooser.shuffle(waiting)
                chosen.append(waiting.pop())
                if len(chosen) >= len(self._texts):
                    break
            yield chosen

    def _step(self, number: int, chosen: Sequence[int]) -> None:
        total = [torch.zeros_like(p) for p in self._parameters]
        items = 0
        for place in chosen:
            with torch.enable_grad():
                results = self._model.graph(*self._model.arguments(self._texts[place]))
                outputs = dict(zip(self._model.output_names, results, strict=True))
                errors = self._error.of_batch(place, outputs)
                # not backward(): the float encoder shares the weights, and must not collect gradients
                found = torch.autograd.grad(errors.sum(), self._parameters, allow_unused=True)
            items += len(errors)
            for sum_, gradient in zip(total, found, strict=True):
                if gradient is not None:
                    sum_ += gradient
        rate = self._settings.learning_rate * 0.5 * (1 + math.cos(math.pi * number / self._settings.steps))
        self._update([gradient / items for gradient in total], number + 1, rate)

    def _update(self, gradients: Sequence[Tensor], step: int, rate: float) -> None:
        """Take a step of Adam."""
        for parameter, gradient, first, second in zip(
            self._parameters, gradients, *self._moments, strict=True
        ):
            gradient = torch.nan_to_num(gradient, posinf=0.0, neginf=0.0)
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient.square(), 0.001)
            mean, spread = first / (1 - 0.9**step), second / (1 - 0.999**step)
            with torch.no_grad():
                parameter -= rate * mean / (spread.sqrt() + 1e-12)

    def _look(self) -> None:
        error = self._judge.of(self._model)
        if error < self.least:
            self.least, self._best = error, self._copy()

    def _copy(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self._parameters]

    def _restore(self, values: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)

    # -- an interrupted run ----------------------------------------------------------------------------------

    def _keep(self, ledger: Ledger, step: int) -> None:
        if ledger.folder is None:
            return
        groups = {
            "now": self._copy(),
            "best": self._best,
            "first": self._moments[0],
            "second": self._moments[1],
        }
        tensors = {f"{name}.{i}": t for name, group in groups.items() for i, t in enumerate(group)}
        ledger.put(_KEY, {"step": step, "first": self.first, "least": self.least}, tensors)

    def _resume(self, ledger: Ledger) -> int:
        kept = ledger.get_tensors(_KEY)
        if kept is None:
            return 0
        plain, tensors = kept
        groups = [
            [tensors[f"{name}.{i}"].to(p.device) for i, p in enumerate(self._parameters)]
            for name in ("now", "best", "first", "second")
        ]
        self._restore(groups[0])
        self._best, self._moments = groups[1], groups[2:]
        self.first, self.least = plain["first"], plain["least"]
        return int(plain["step"])


def _alike(texts: Sequence[Text]) -> list[dict[str, Tensor]]:
    """Return texts of one length together, at most as many as a small step has."""
    return of_equal_length(texts, rows=8)
