"""An encoder: a captured graph with its tokenizer, its sites and the few things users do with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, fx, nn

from octavo.errors import ModelError, OctavoWarning
from octavo.graph import batches
from octavo.graph.calling import CalledAsHuggingFace, known_to_pipelines
from octavo.graph.capture.export import move
from octavo.graph.embedding import embed
from octavo.graph.sites.site import Site, find_sites
from octavo.sentence import Pooling, SentenceModules

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

Head = Literal[
    "encoder", "sequence-classification", "token-classification", "question-answering", "masked-lm"
]
Text = str | tuple[str, str]
Batch = dict[str, Tensor]


@dataclass(eq=False, kw_only=True)
class Encoder(CalledAsHuggingFace):
    """A Hugging Face encoder as a graph.

    Arguments:
        name: what the user called it.
        config: Hugging Face's configuration.
        tokenizer: None if the folder has none; then texts cannot be given, only batches.
        head: which head the graph ends with.
        graph: the captured graph; its inputs are `inputs`, its results `output_names`, both in order.
        max_length: most tokens the model takes.
        sentence: how a bare encoder makes one embedding of a text's tokens, and where it cuts texts.
    """

    name: str
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase | None
    head: Head
    graph: fx.GraphModule
    inputs: tuple[str, ...]
    output_names: tuple[str, ...]
    max_length: int
    sentence: SentenceModules = field(default_factory=SentenceModules)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        known_to_pipelines(type(self).__name__)

    @cached_property
    def _sites(self) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
        return find_sites(self.graph)

    @property
    def activation_sites(self) -> tuple[Site, ...]:
        """Every activation site, in the order of computation."""
        return self._sites[0]

    @property
    def weight_sites(self) -> tuple[Site, ...]:
        """Every weight site, each parameter once."""
        return self._sites[1]

    @property
    def pooling(self) -> Pooling:
        """How a bare encoder makes one vector of a text's tokens."""
        return self.sentence.pooling

    @property
    def text_length(self) -> int:
        """Tokens at which texts are cut: what sentence-transformers' files say, or all the model takes."""
        return min(self.sentence.max_length or self.max_length, self.max_length)

    @property
    def layers(self) -> int:
        """How many layers were found."""
        return 1 + max((site.layer for site in self.activation_sites if site.layer is not None), default=-1)

    def used_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that the graph reads, each once, by the path it reads them at."""
        found: dict[int, tuple[str, nn.Parameter]] = {}
        named = dict(self.graph.named_parameters(remove_duplicate=False))
        for node in self.graph.graph.nodes:
            path = str(node.target)
            if node.op == "get_attr" and path in named:
                found.setdefault(id(named[path]), (path, named[path]))
        return dict(found.values())

    def outputs(self, batch: Mapping[str, Tensor]) -> Batch:
        """Run a batch of token ids (batch, length) without gradients; the results by name."""
        with torch.no_grad():
            results = self.graph(*self.arguments(batch))
        return dict(zip(self.output_names, results, strict=True))

    def arguments(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The graph's inputs in order; a missing mask is all ones, missing token types are all zeros."""
        ids = batch["input_ids"]
        if ids.shape[-1] > self.max_length:
            raise ModelError(
                f"{self.name} takes at most {self.max_length} tokens, got {ids.shape[-1]}; truncate the texts"
            )
        fill = {"attention_mask": torch.ones_like, "token_type_ids": torch.zeros_like}
        found = [batch[name] if name in batch else fill[name](ids) for name in self.inputs]
        return tuple(tensor.to(self.device) for tensor in found)

    def batches(
        self,
        texts: Sequence[Text],
        batch_size: int = 32,
        max_length: int | None = None,
        pad: bool = True,
        order: Sequence[int] | None = None,
    ) -> Iterator[tuple[list[int], Batch]]:
        """Batches of texts of similar length, each with the texts' places.

        `pad=False` batches only equal lengths; `order` lists the texts' places in another order.
        """
        length = min(max_length or self.text_length, self.max_length)
        self._warn_of_pairs(texts)
        return batches.from_texts(self._tokenizer(), texts, self.inputs, batch_size, length, pad, order)

    def _warn_of_pairs(self, texts: Sequence[Text]) -> None:
        """A file of queries and documents for a model that embeds each of them alone."""
        if self.sentence.embeds and len(texts) > 1 and not any(isinstance(text, str) for text in texts):
            warnings.warn(
                f"all {len(texts)} texts are pairs; {self.name} embeds single texts and reads a pair as one; "
                "write the two texts of a pair on lines of their own",
                OctavoWarning,
                stacklevel=3,
            )

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ModelError(
                f"{self.name} has no tokenizer files; add them to its folder or give token batches"
            )
        return self.tokenizer

    def embed(self, batch: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> Tensor:
        """One embedding per text, (batch, width), from a bare encoder's hidden states.

        Pooling, dense layers and normalization are those of sentence-transformers' files; without such files
        the embedding is the normalized mean of the tokens.
        """
        if self.head != "encoder":
            raise ModelError(f"{self.name} has a {self.head} head; only a bare encoder makes embeddings")
        hidden = outputs["last_hidden_state"]
        mask = batch.get("attention_mask")
        return embed(hidden, torch.ones(hidden.shape[:2]) if mask is None else mask, self.sentence)

    def to(self, device: str | torch.device) -> Self:
        """Move the graph, with the devices written into it, and return self."""
        self.device = torch.device(device)
        move(self.graph, self.device)
        return self

    def parts(self) -> dict[str, Any]:
        """The constructor's arguments, to make another encoder of the same model."""
        return {name: getattr(self, name) for name in Encoder.__dataclass_fields__}
