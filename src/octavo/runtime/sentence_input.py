"""The first module of a sentence-transformers model that Octavo runs: texts in, hidden states or scores out.

Importing this module needs the package sentence-transformers; `octavo.runtime.drop_in` says so first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import InputModule

from octavo.errors import ModelError

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.runtime.file_model import FileModel

_FEATURES = {"encoder": "token_embeddings", "sequence-classification": "scores"}


class OctavoInput(InputModule):
    """Tokenizes texts or pairs and runs them in a model of Octavo.

    Arguments:
        model: a captured model, or an exported file.
        opened: the arguments by which `octavo.runtime.drop_in.open_any` makes the model again in another
            process; None for a model that is in memory only.
    """

    tokenizer: Any

    def __init__(self, model: Encoder | FileModel, opened: Mapping[str, Any] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model = model
        self.opened = opened
        self.tokenizer = model.tokenizer
        self.max_seq_length: int | None = getattr(model, "text_length", model.max_length)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the tokens of texts or pairs, with a prompt before the (first) text of each."""
        start = prompt or ""
        texts = [start + t if isinstance(t, str) else (start + t[0], *t[1:]) for t in inputs]
        batch = dict(
            self.tokenizer(
                texts, padding=True, truncation=True, max_length=self.max_seq_length, return_tensors="pt"
            )
        )
        if prompt:
            batch["prompt_length"] = self._length_of(prompt)
        return batch

    def _length_of(self, prompt: str) -> int:
        """The tokens that a prompt takes, without a special one at its end: some models do not pool them."""
        ids = self.tokenizer(prompt, truncation=True, max_length=self.max_seq_length)["input_ids"]
        return len(ids) - (ids[-1] in self.tokenizer.all_special_ids)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add the hidden states (batch, length, width) or the scores (batch, labels) to the features."""
        device = features["input_ids"].device
        batch = {name: features[name] for name in self.model.inputs if name in features}
        first = self.model.output_names[0]
        features[_FEATURES[self.model.head]] = self.model(batch)[first].to(device)
        return features

    def get_embedding_dimension(self) -> int:
        """Return the width of the hidden states."""
        return int(self.model.config.hidden_size)

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Refuse: the model was opened from Octavo's files, which others can open as they are."""
        raise ModelError(
            f"{self.model.name} is not saved by sentence-transformers; share the folder or file that it was "
            "opened from, or write one for the hub with octavo export --layout hub"
        )

    def __reduce__(self) -> Any:
        """Let worker processes open the model anew, by the same arguments."""
        if self.opened is None:
            raise ModelError(
                f"{self.model.name} is in memory only, where other processes cannot open it; save or "
                "export it, and give that folder or file"
            )
        return _opened_anew, (dict(self.opened), self.max_seq_length)


def _opened_anew(opened: dict[str, Any], max_seq_length: int | None) -> OctavoInput:
    from octavo.runtime.drop_in import open_any

    module = OctavoInput(open_any(**opened), opened)
    module.max_seq_length = max_seq_length
    return module


class OctavoCrossEncoder(CrossEncoder):
    """A cross-encoder whose labels and configuration are those of Octavo's model."""

    @property
    def transformers_model(self) -> Any:
        """The model itself, which is called as those of transformers are."""
        first: Any = self[0]
        return first.model

    @property
    def num_labels(self) -> int:
        """How many scores a pair gets."""
        return int(self.transformers_model.config.num_labels)
