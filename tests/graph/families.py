"""Tiny untrained models of every encoder family that the tests capture, each once per process."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from octavo.graph import Encoder, Head
from octavo.graph.capture.source import make_encoder, network_from_config

VOCABULARY = 100
LENGTH = 64
_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": LENGTH,
}
_POSITIONS_FROM_2 = {"pad_token_id": 1, "max_position_embeddings": LENGTH + 2, "type_vocab_size": 1}
_MOBILE = {"embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 3}
_DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
_DEBERTA = {
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": VOCABULARY}

# family -> (configuration class, what it sets beside the sizes)
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {}),
    "roberta": ("RobertaConfig", _POSITIONS_FROM_2),
    "distilroberta": ("RobertaConfig", {**_POSITIONS_FROM_2, "num_hidden_layers": 6}),
    "mobilebert": ("MobileBertConfig", _MOBILE),
    "distilbert": ("DistilBertConfig", _DISTILBERT),
    "electra": ("ElectraConfig", {"embedding_size": 16}),
    "albert": ("AlbertConfig", {"embedding_size": 16}),
    "xlm-roberta": ("XLMRobertaConfig", _POSITIONS_FROM_2),
    "mpnet": ("MPNetConfig", {"max_position_embeddings": LENGTH + 2}),
    "camembert": ("CamembertConfig", _POSITIONS_FROM_2),
    "deberta-v2": ("DebertaV2Config", _DEBERTA),
    "modernbert": (
        "ModernBertConfig",
        {"pad_token_id": 0, "global_attn_every_n_layers": 2, "local_attention": 8},
    ),
    "roformer": ("RoFormerConfig", {}),
    "squeezebert": ("SqueezeBertConfig", {"embedding_size": 32}),
    "roberta-prelayernorm": ("RobertaPreLayerNormConfig", _POSITIONS_FROM_2),
    "megatron-bert": ("MegatronBertConfig", {}),
    "rembert": ("RemBertConfig", {"input_embedding_size": 16, "output_embedding_size": 24}),
    "xlm-roberta-xl": ("XLMRobertaXLConfig", _POSITIONS_FROM_2),
    "ernie": ("ErnieConfig", {}),
    "nomic-bert": ("NomicBertConfig", {}),
    "eurobert": ("EuroBertConfig", {"num_key_value_heads": 2, "pad_token_id": 0}),
    "convbert": ("ConvBertConfig", {"embedding_size": 32}),
    "fnet": ("FNetConfig", {}),
    "t5": ("T5Config", T5),
}
REQUIRED = (
    "bert",
    "roberta",
    "distilroberta",
    "mobilebert",
    "distilbert",
    "electra",
    "albert",
    "xlm-roberta",
    "mpnet",
)
EVERY = tuple(_FAMILIES)
# Their graphs equal those of BERT, RoBERTa, ALBERT or RoBERTa-PreLayerNorm.
TWINS = ("camembert", "ernie", "rembert", "xlm-roberta-xl", "megatron-bert")


def usual_head(family: str) -> Head:
    """Sequence classification, or none where the family has no such head."""
    return "encoder" if family == "t5" else "sequence-classification"


def config(family: str, **changes: Any) -> Any:
    """The tiny configuration of a family."""
    name, settings = _FAMILIES[family]
    own_sizes = family in ("distilbert", "t5")
    special = dict.fromkeys(
        ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "mask_token_id"), 3
    )
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH} if own_sizes else _SIZES
    return getattr(transformers, name)(**{**sizes, **special, **settings, **changes})


def network(family: str, head: Head = "sequence-classification", seed: int = 0, **changes: Any) -> nn.Module:
    """An untrained Hugging Face network whose biases and norms are random too, so that nothing cancels."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # DeBERTa's file uses torch.jit.script
        made = _t5_encoder() if family == "t5" else network_from_config(config(family, **changes), head)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def _t5_encoder() -> nn.Module:
    """`AutoModel` makes encoder and decoder of a T5 configuration; the encoder has a class of its own."""
    return transformers.T5EncoderModel._from_config(config("t5"), attn_implementation="eager").eval()


def captured(family: str, head: Head = "sequence-classification") -> tuple[nn.Module, Encoder]:
    """A network and its captured encoder, made once; tests leave both as they are."""
    return _captured(family, head)


@cache
def _captured(family: str, head: Head) -> tuple[nn.Module, Encoder]:
    made = network(family, head)
    return made, make_encoder(f"tiny {family}", made, None, head)


def fresh(family: str, head: Head = "sequence-classification", **changes: Any) -> Encoder:
    """An encoder of its own for a test that changes it."""
    return make_encoder(f"tiny {family}", network(family, head, **changes), None, head)


def batch(shape: tuple[int, int], padded: bool = False, seed: int = 0) -> dict[str, Tensor]:
    """Random token ids (batch, length); padded ones end in every row but the last at another place."""
    generator = torch.Generator().manual_seed(seed)
    rows, length = shape
    ids = torch.randint(5, VOCABULARY - 5, shape, generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        for row in range(rows - 1):
            mask[row, max(1, length - 1 - row % length) :] = 0
    return {"input_ids": ids, "attention_mask": mask}
