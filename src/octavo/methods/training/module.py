"""A quantized model as a module that anyone's loop can train: `transformers.Trainer`, Lightning, your own."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from octavo.errors import ModelError
from octavo.graph import QuantizedEncoder
from octavo.graph.calling import model_output
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.quantized import begin, finish
from octavo.spec import RangeTraining

if TYPE_CHECKING:
    from transformers.utils.generic import ModelOutput

IGNORED = -100
"""The label of a token that counts nowhere, as transformers has it."""


class TrainableEncoder(nn.Module):
    """A quantized model that learns: weights and ranges are parameters, gradients pass through rounding.

    It is called as Hugging Face's models are, and given labels it returns their loss, as those do. When
    training is over, `finish` gives an ordinary quantized model.

    >>> import octavo
    >>> model = octavo.quantize(octavo.load("demo:minilm"), octavo.recipe("w8a8"), octavo.demo_texts()[:16])
    >>> module = octavo.TrainableEncoder(model)
    >>> optimizer = torch.optim.Adam(module.parameters(), lr=1e-4)

    Arguments:
        model: a calibrated model; it stays as it is, the module has a copy.
        training: what happens to ranges; by default what the recipe says, which is to learn them.
        dropout: rate of every dropout; None takes the configuration's.
    """

    def __init__(
        self, model: QuantizedEncoder, training: RangeTraining | None = None, dropout: float | None = 0.0
    ) -> None:
        super().__init__()
        # together, so that the quantizers of the copy are those in its graph
        graph, quantizers = deepcopy((model.graph, model.quantizers))
        self._model = model.with_parts(graph=graph, quantizers=quantizers, config=deepcopy(model.config))
        begin(self._model, training or model.recipe.training)
        set_dropout(self._model, dropout, dropout)
        self.graph = self._model.graph
        self.config = self._model.config
        self._finished = False

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> ModelOutput:
        """Return what transformers' model of this head returns, with gradients; its `loss` given labels.

        Arguments:
            input_ids, attention_mask, token_type_ids: (batch, length).
            labels: (batch,) classes or numbers, (batch, labels) ones and zeros where the configuration says
                so, (batch, length) for tokens, of which -100 counts nowhere.
            start_positions, end_positions: (batch,) first and last token of an answer.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        batch = {name: value for name, value in given.items() if value is not None}
        if input_ids is None:
            raise ModelError(f"{self._model.name} was called without input_ids; call it as module(**batch)")
        found = self.graph(*self._model.arguments(batch))
        results = dict(zip(self._model.output_names, found, strict=True))
        targets = [target for target in (labels, start_positions, end_positions) if target is not None]
        loss = {"loss": self._loss(results, targets)} if targets else {}
        return model_output(self._model.head, {**loss, **results})

    def embed(self, batch: dict[str, Tensor], output: ModelOutput) -> Tensor:
        """Return the embeddings (batch, width) of a bare encoder's output, with gradients."""
        return self._model.embed(batch, output)

    def finish(self) -> QuantizedEncoder:
        """Return the trained model, fixed: it saves, loads and exports as any; the module is used up."""
        if self._finished:
            raise ModelError(f"{self._model.name}: this training was finished before; make another module")
        self._finished = True
        self.eval()
        finish(self._model)
        return self._model

    def _loss(self, results: dict[str, Tensor], targets: list[Tensor]) -> Tensor:
        """Return the loss that transformers' model of this head computes."""
        functional, head = nn.functional, self._model.head
        if head == "question-answering":
            if len(targets) != 2:
                raise ModelError("a reader learns from start_positions and end_positions; give both")
            spans = (results["start_logits"], results["end_logits"])
            parts = [functional.cross_entropy(x.float(), y) for x, y in zip(spans, targets, strict=True)]
            return torch.stack(parts).mean()
        if head == "encoder":
            raise ModelError(
                f"{self._model.name} has no head that labels could teach; compute a loss of its outputs"
            )
        logits, labels = results["logits"].float(), targets[0]
        if head != "sequence-classification":
            return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        if getattr(self.config, "problem_type", None) == "multi_label_classification":
            return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        if logits.shape[-1] == 1:
            return functional.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
        return functional.cross_entropy(logits, labels)
