from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

import octavo
from octavo.graph.capture.source import make_encoder
from octavo.runtime.backends.onnxruntime import ONNXRUNTIME

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 99,
    "max_position_embeddings": 64,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("RobertaConfig", {}),
    "electra": ("ElectraConfig", {"embedding_size": 16}),
    "albert": ("AlbertConfig", {"embedding_size": 16}),
    "mobilebert": ("MobileBertConfig", {"embedding_size": 16, "intra_bottleneck_size": 16}),
    "mpnet": ("MPNetConfig", {}),
    "deberta": ("DebertaConfig", {"relative_attention": True, "pos_att_type": "p2c|c2p"}),
    "deberta-v2": (
        "DebertaV2Config",
        {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 16},
    ),
    "roformer": ("RoFormerConfig", {"embedding_size": 32}),
    "modernbert": (
        "ModernBertConfig",
        {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1},
    ),
}


# transformers scripts parts of DeBERTa when it is imported
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.filterwarnings("ignore:.*sites are not folded")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("recipe", [None, "int8"], ids=["float", "int8"])
def test_an_encoder_of_any_family_exports(family: str, recipe: str | None) -> None:
    name, options = FAMILIES[family]
    torch.manual_seed(0)
    config = (
        getattr(transformers, name)(**SIZES, **options, sep_token_id=2) if family == "modernbert" else None
    )
    config = config or getattr(transformers, name)(**SIZES, **options)
    network = transformers.AutoModel.from_config(config, attn_implementation="eager")
    encoder = make_encoder(family, network, None, "encoder")
    if recipe is not None:
        data = [{"input_ids": torch.randint(3, 99, (2, 9))} for _ in range(3)]
        encoder = octavo.quantize(encoder, octavo.recipe(recipe), calibration=data)
    ids = torch.randint(3, 99, (3, 11))
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    session = onnxruntime.InferenceSession(ONNXRUNTIME.onnx_model(encoder).SerializeToString())
    found = session.run(None, {name: batch[name].numpy() for name in encoder.inputs})[0]
    expected = encoder({name: batch[name] for name in encoder.inputs})["last_hidden_state"].numpy()
    kept = mask.bool().numpy()
    np.testing.assert_allclose(found[kept], expected[kept], atol=2e-3 if recipe is None else 0.1)
