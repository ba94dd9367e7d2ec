"""Called as Hugging Face's models are: `model(**tokenizer(...))`, and what its pipelines ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, overload

import torch
from torch import Tensor

from octavo.errors import ModelError

if TYPE_CHECKING:
    from transformers.utils.generic import ModelOutput

_OUTPUTS = {
    "encoder": "BaseModelOutput",
    "sequence-classification": "SequenceClassifierOutput",
    "token-classification": "TokenClassifierOutput",
    "question-answering": "QuestionAnsweringModelOutput",
    "masked-lm": "MaskedLMOutput",
}
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_TABLES = ("SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "QUESTION_ANSWERING", "MASKED_LM")


class CalledAsHuggingFace:
    """What transformers and its users expect of a model; the model itself runs batches in `outputs`."""

    head: Any
    name: str

    def outputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run a batch of token ids (batch, length) without gradients; the results by name."""
        raise NotImplementedError

    @overload
    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]: ...

    @overload
    def __call__(self, *input_ids: Tensor, **inputs: Any) -> ModelOutput: ...

    def __call__(self, *given: Any, **inputs: Any) -> Any:
        """Run token ids (batch, length) without gradients: `model(batch)` gives a dict of the results,
        `model(**batch)` a `ModelOutput` of transformers, and with `return_dict=False` a tuple.

        A `ModelOutput` has its results as `outputs.logits`, `outputs["logits"]` and `outputs[0]`.
        """
        batch = given[0] if given else inputs.pop("batch", None)
        if isinstance(batch, Mapping):
            if inputs or len(given) > 1:
                raise ModelError("give token ids as one mapping or by name, not both")
            return self.outputs(batch)
        inputs = dict(zip(_INPUTS, given, strict=False)) | inputs
        as_tuple = inputs.pop("return_dict", None) is False
        results = self.outputs(_checked(inputs, self.name))
        return tuple(results.values()) if as_tuple else model_output(self.head, results)

    def forward(self, *given: Any, **inputs: Any) -> Any:
        """Run token ids as calling does, under torch's name for it."""
        return self(*given, **inputs)

    def eval(self) -> Self:
        """Return the model itself: it always runs for inference, without dropout and gradients."""
        return self

    @property
    def dtype(self) -> torch.dtype:
        """What the outputs are: float32, whatever is inside."""
        return torch.float32

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """What the model reads, for transformers: text."""
        return ("text",)

    def can_generate(self) -> bool:
        """Tell transformers that an encoder generates no text."""
        return False


def model_output(head: str, results: Mapping[str, Tensor]) -> ModelOutput:
    """Return results by name as the `ModelOutput` that transformers' models with this head return."""
    from transformers import modeling_outputs

    made: ModelOutput = getattr(modeling_outputs, _OUTPUTS[head])(**results)
    return made


def _checked(inputs: Mapping[str, Any], name: str) -> dict[str, Tensor]:
    """Return the tensors; further arguments of transformers' models may be there if they ask for nothing."""
    batch = {key: value for key, value in inputs.items() if key in _INPUTS and value is not None}
    extra = [
        key for key, value in inputs.items() if key not in _INPUTS and not (value is None or value is False)
    ]
    if extra:
        raise ModelError(
            f"{name} cannot be called with {', '.join(sorted(extra))}; it takes {', '.join(_INPUTS)} and "
            "return_dict (for losses and gradients, train with octavo.qat)"
        )
    if "input_ids" not in batch:
        raise ModelError(f"{name} was called without input_ids; call it as model(**tokenizer(texts, ...))")
    for key, value in batch.items():
        if not isinstance(value, Tensor):
            raise ModelError(
                f"{name} was called with a {type(value).__name__} for {key}, which must be a tensor; "
                'call it as model(**tokenizer(texts, padding=True, return_tensors="pt"))'
            )
    return batch


def known_to_pipelines(*names: str) -> None:
    """Enter names of classes in transformers' tables, whose pipelines log an error for a class not in them.

    The tables list class names by the kind of a configuration; no configuration is of the kind "octavo", so
    nothing but that check reads the entry.
    """
    from transformers.models.auto import modeling_auto

    for task in _TABLES:
        table = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", None)
        if table is not None:
            table["octavo"] = tuple(sorted({*table.get("octavo", ()), *names}))
