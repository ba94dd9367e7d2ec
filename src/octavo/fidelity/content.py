"""What a model's outputs and tokens mean, as far as fidelity asks: labels, and tokens of the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def label_names(model: Any) -> tuple[str, ...]:
    """Return the names of a tagger's outputs in their order; none where its configuration has none."""
    named: dict[Any, Any] = getattr(getattr(model, "config", None), "id2label", None) or {}
    return tuple(str(named[index]) for index in sorted(named, key=int))


def content_mask(model: Any, batch: Mapping[str, Tensor]) -> Tensor | None:
    """Return which tokens (B, T) are of the text, not special and no padding; None without a tokenizer."""
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        return None
    ids = batch["input_ids"]
    # an unknown word is of the text, and so is what a language model is asked for
    kept = {getattr(tokenizer, f"{kind}_token_id", None) for kind in ("unk", "mask")}
    special = torch.tensor(sorted(set(tokenizer.all_special_ids) - kept), device=ids.device)
    mask = batch.get("attention_mask")
    content = ~torch.isin(ids, special)
    return content if mask is None else content & (mask == 1)
