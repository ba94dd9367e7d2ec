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
_DEBERTA_V1 = {
    "relative_attention": True,
    "max_relative_positions": 8,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": VOCABULARY}
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
    "deberta": ("DebertaConfig", _DEBERTA_V1),
}
# Further families that capture; their sites have no snapshot.
_FURTHER: dict[str, tuple[str, dict[str, Any]]] = {
    "mt5": ("MT5Config", T5),
    "umt5": ("UMT5Config", T5),
    "xlm": ("XLMConfig", _XLM),
    "flaubert": ("FlaubertConfig", _XLM),
    "esm": ("EsmConfig", {**_POSITIONS_FROM_2, "position_embedding_type": "rotary", "token_dropout": False}),
    "esm-1": ("EsmConfig", {**_POSITIONS_FROM_2, "position_embedding_type": "absolute"}),
    "layoutlm": ("LayoutLMConfig", {}),
    "markuplm": ("MarkupLMConfig", _POSITIONS_FROM_2),
    "tapas": ("TapasConfig", {}),
    "visual-bert": ("VisualBertConfig", {}),
    "nystromformer": ("NystromformerConfig", {"segment_means_seq_len": 64, "num_landmarks": 64}),
    "yoso": ("YosoConfig", {"use_expectation": True, "hash_code_len": 5}),
    "splinter": ("SplinterConfig", {}),
    "ibert": ("IBertConfig", _POSITIONS_FROM_2),
    "data2vec-text": ("Data2VecTextConfig", _POSITIONS_FROM_2),
    "big-bird": ("BigBirdConfig", {"attention_type": "original_full"}),
    "xmod": ("XmodConfig", {**_POSITIONS_FROM_2, "languages": ["en_XX"], "default_language": "en_XX"}),
    "bert-generation": ("BertGenerationConfig", {}),
    "luke": ("LukeConfig", {**_POSITIONS_FROM_2, "entity_vocab_size": 20}),
    "roc-bert": ("RoCBertConfig", {}),
    "jina-v3": ("JinaEmbeddingsV3Config", _POSITIONS_FROM_2),
    "gte": ("GteConfig", {}),
    "clip-text": ("CLIPTextConfig", {"eos_token_id": 2}),
}
# Families that cannot be captured, or not understood.
_OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mra": ("MraConfig", {}),
    "canine": ("CanineConfig", {}),
    "longformer": ("LongformerConfig", {**_POSITIONS_FROM_2, "attention_window": 8}),
    "big-bird-sparse": ("BigBirdConfig", {"block_size": 4, "num_random_blocks": 1}),
    "reformer": (
        "ReformerConfig",
        {"axial_pos_embds": False, "attention_head_size": 8, "feed_forward_size": 64},
    ),
    "nystromformer-landmarks": ("NystromformerConfig", {"segment_means_seq_len": 8, "num_landmarks": 4}),
    "bros": ("BrosConfig", {}),
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
FURTHER = tuple(_FURTHER)
OTHERS = tuple(_OTHERS)
# Their graphs equal those of BERT, RoBERTa, ALBERT or RoBERTa-PreLayerNorm.
TWINS = ("camembert", "ernie", "rembert", "xlm-roberta-xl", "megatron-bert")
# All tests of theirs are slow; the default run has those of others, and a slice of the conformance matrix.
SELDOM = (*TWINS, "deberta")
_T5 = ("t5", "mt5", "umt5")


def usual_head(family: str) -> Head:
    """Sequence classification, or none where the family has no such head."""
    return "encoder" if family in _T5 else "sequence-classification"


def config(family: str, *, length: int = LENGTH, **changes: Any) -> Any:
    """The tiny configuration of a family, for texts of at most `length` tokens."""
    name, settings = (_FAMILIES | _FURTHER | _OTHERS)[family]
    own_sizes = family in ("distilbert", "xlm", "flaubert", *_T5)
    special = dict.fromkeys(
        ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "mask_token_id"), 3
    )
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH} if own_sizes else _SIZES
    chosen = {**sizes, **special, **settings, **changes}
    chosen["max_position_embeddings"] += length - LENGTH
    return getattr(transformers, name)(**chosen)


def network(family: str, head: Head = "sequence-classification", seed: int = 0, **changes: Any) -> nn.Module:
    """An untrained Hugging Face network whose biases and norms are random too, so that nothing cancels."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # DeBERTa's file uses torch.jit.script
        made = network_from_config(config(family, **changes), head)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


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
