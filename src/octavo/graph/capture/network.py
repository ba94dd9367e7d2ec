"""Hugging Face networks: which head a checkpoint has, and what it lacks or has too much of."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import nn

from octavo.errors import ModelError, OctavoWarning, did_you_mean
from octavo.graph.encoder import Encoder, Head

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# Which head a checkpoint has, by the ending of its architecture's name, and how it is loaded.
_HEADS: dict[str, Head] = {
    "ForSequenceClassification": "sequence-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "masked-lm",
    "ForPreTraining": "masked-lm",
    "WithLMHeadModel": "masked-lm",
}
_LOADERS: dict[Head, str] = {
    "encoder": "AutoModel",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "masked-lm": "AutoModelForMaskedLM",
}
_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A network with the weights of a checkpoint.

    Arguments:
        module: Hugging Face's module.
        head: the head it has, which need not be the one that was looked for.
        missing: parameters that the checkpoint lacks; they are random.
        left_over: tensors of the checkpoint that the network has no place for.
    """

    module: nn.Module
    head: Head
    missing: tuple[str, ...]
    left_over: tuple[str, ...]


def load_config(model: str, place: str, trust_remote_code: bool = False) -> PretrainedConfig:
    """Return the configuration of a folder or hub id that the user calls `model`."""
    from transformers import AutoConfig

    if Path(place).is_dir() and not (Path(place) / "config.json").is_file():
        raise ModelError(f"{model} has no config.json; give a folder that save_pretrained wrote")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        if Path(place).is_dir():
            raise ModelError(f"{model}: config.json cannot be read: {first_line(error)}") from error
        raise ModelError(
            f"{model} is neither a local folder nor a model the hub hands out here ({first_line(error)}); "
            "check the name or the connection, or use demo:minilm"
        ) from error
    return config


def choose_head(model: str, config: PretrainedConfig, asked: Head | None, embeds: bool) -> Head:
    """Return the head to load: the one asked for, none for an embedding model, or the architecture's.

    A model with a decoder is refused, unless its encoder stands alone.
    """
    if asked is not None and asked not in get_args(Head):
        raise ModelError(f"unknown head {asked!r}{did_you_mean(asked, get_args(Head))}")
    architecture = _architecture(config)
    named = next((head for ending, head in _HEADS.items() if architecture.endswith(ending)), None)
    chosen: Head = asked or ((not embeds and named) or "encoder")
    described = f"{model} ({config.model_type}) has a decoder; Octavo quantizes encoders"
    if getattr(config, "is_decoder", False):
        raise ModelError(described)
    if getattr(config, "is_encoder_decoder", False):
        if not _has_encoder_class(config):
            raise ModelError(described)
        alone = asked == "encoder" or embeds or architecture.endswith("EncoderModel")
        if not alone or chosen != "encoder":
            raise ModelError(f"{described}: load its encoder alone with head='encoder'")
    return chosen


def load_network(
    model: str,
    place: str,
    head: Head,
    labels: int | None = None,
    trust_remote_code: bool = False,
    *,
    config: PretrainedConfig,
    asked: bool,
) -> Network:
    """Load a network; a head that nobody `asked` for and that the checkpoint lacks is left out."""
    if Path(place).is_dir():
        _check_weights(model, Path(place))
    options: dict[str, Any] = {"num_labels": labels} if labels is not None else {}
    found = _load(model, place, config, head, trust_remote_code, options)
    lacking = [] if asked or head == "encoder" else _outside_body(found.module, found.missing)
    if lacking:
        warnings.warn(
            f"{model}: config.json names {_architecture(config)}, but the checkpoint lacks "
            f"{counted(lacking)} of the {head} head ({listed(lacking)}); it is loaded as a bare encoder; "
            "name a head to add one and train it",
            OctavoWarning,
            stacklevel=2,
        )
        found = _load(model, place, config, "encoder", trust_remote_code, {})
    _check_finite(found.module, model)
    return found


def _load(
    model: str,
    place: str,
    config: PretrainedConfig,
    head: Head,
    trust_remote_code: bool,
    options: dict[str, Any],
) -> Network:
    try:
        module, report = _loader(head, config).from_pretrained(
            place,
            output_loading_info=True,
            attn_implementation="eager",
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            ignore_mismatched_sizes=True,
            **options,
        )
    except Exception as error:  # safetensors, transformers and torch each raise their own
        raise ModelError(f"{model}: its weights cannot be loaded: {first_line(error)}") from error
    other = _of_another_shape(model, module, report["mismatched_keys"], new_head="num_labels" in options)
    return Network(
        module=module,
        head=head,
        missing=tuple(sorted({*report["missing_keys"], *other})),
        left_over=tuple(sorted(report["unexpected_keys"])),
    )


def _of_another_shape(
    model: str, module: nn.Module, found: Iterable[tuple[str, Any, Any]], *, new_head: bool
) -> list[str]:
    """Return the weights that a new head has in another shape, which are random now; others are an error."""
    shapes = {name: (list(stored), list(wanted)) for name, stored, wanted in sorted(found)}
    replaced = _outside_body(module, shapes) if new_head else []
    broken = [name for name in shapes if name not in replaced]
    if broken:
        stored, wanted = shapes[broken[0]]
        raise ModelError(
            f"{model}: config.json and the checkpoint do not fit together: {broken[0]} has the shape "
            f"{stored}, not {wanted}{f', and {len(broken) - 1} more differ' if broken[1:] else ''}; "
            "give the config.json that was saved with these weights"
        )
    return replaced


def warn_of_weights(encoder: Encoder, network: Network, asked: bool, new_head: bool) -> None:
    """Name the weights that the checkpoint lacks and those that were left out.

    Where a head was `asked` for, the checkpoint's own is left out on purpose. One that is new (its labels
    were given) is to be trained: of either only the weights of the body count.
    """
    missing = [name for name in network.missing if name in encoder.used_parameters()]
    left_over = list(network.left_over)
    if asked:
        outside = _outside_body(network.module, missing)
        missing = [name for name in missing if name not in outside]
        left_over = _of_body(network.module, left_over)
        if outside and not new_head:
            warnings.warn(
                f"{encoder.name}: the checkpoint lacks {counted(outside)} of the {network.head} head, random "
                f"now: {listed(outside)}; what the head gives means nothing before it is trained",
                OctavoWarning,
                stacklevel=2,
            )
    if missing:
        warnings.warn(
            f"{encoder.name}: the checkpoint lacks {counted(missing)}, random now: "
            f"{listed(missing)}; give a complete checkpoint, or train the model",
            OctavoWarning,
            stacklevel=2,
        )
    if left_over:
        warnings.warn(
            f"{encoder.name}: the checkpoint has {counted(left_over)} that this model has no place for, "
            f"left out: {listed(left_over)}",
            OctavoWarning,
            stacklevel=2,
        )


def _outside_body(module: nn.Module, names: Iterable[str]) -> list[str]:
    """The names that do not belong to the body: those of the head, and the pooler that only heads read."""
    prefix = str(getattr(module, "base_model_prefix", ""))
    if not hasattr(module, prefix):  # there is no head
        return []
    pooler = f"{prefix}.pooler."
    return [name for name in names if not name.startswith(f"{prefix}.") or name.startswith(pooler)]


def _of_body(module: nn.Module, names: Iterable[str]) -> list[str]:
    """The names of a checkpoint, with the prefix of a body or without, that belong to a part of the body."""
    prefix = str(getattr(module, "base_model_prefix", ""))
    parts = {name for name, _ in getattr(module, prefix, module).named_children()}
    return [name for name in names if name.removeprefix(f"{prefix}.").partition(".")[0] in parts - {"pooler"}]


def counted(names: Sequence[str]) -> str:
    """Return how many weights there are, as a noun."""
    return "1 weight" if len(names) == 1 else f"{len(names)} weights"


def listed(names: Sequence[str]) -> str:
    """Return at most five names, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def network_from_config(config: PretrainedConfig, head: Head, trust_remote_code: bool = False) -> nn.Module:
    """An untrained network of a configuration, for weights that come from elsewhere."""
    with quiet_transformers():
        network: nn.Module = _loader(head, config).from_config(
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


def _loader(head: Head, config: PretrainedConfig) -> Any:
    import transformers

    if head == "encoder" and _has_encoder_class(config):
        return transformers.AutoModelForTextEncoding  # T5's encoder without its decoder
    return getattr(transformers, _LOADERS[head])


def _has_encoder_class(config: PretrainedConfig) -> bool:
    """Whether the family has a decoder and a class for its encoder alone, such as T5EncoderModel."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES as classes

    return str(classes.get(config.model_type, "")).endswith("EncoderModel")


def _architecture(config: PretrainedConfig) -> str:
    return str((getattr(config, "architectures", None) or [""])[0])


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
                f"{model}: {file.name} is corrupt or truncated ({first_line(error)}); "
                "copy or download it again"
            ) from error


def _check_finite(network: nn.Module, model: str) -> None:
    for name, parameter in network.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ModelError(f"{model}: the weight {name} holds NaN or infinity; the checkpoint is broken")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
