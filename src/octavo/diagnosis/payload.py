"""The numbers behind the interactive maps: packed as half floats and bytes, to keep the report small."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.diagnosis.attention import Head
from octavo.diagnosis.collect import Collected
from octavo.diagnosis.text_view import TextView

MAP_ROLES = (
    "ffn_output",
    "ffn_residual",
    "ffn_input",
    "layer_output",
    "attention_output",
    "attention_residual",
)
_LARGEST_HALF = 65504.0


def payload(collected: Collected, view: TextView, worst: str) -> str:
    """A JSON document for a script element; `worst` is the site whose tokens are shown first.

    No character of it can end the element.
    """
    document = {
        "texts": collected.texts,
        "maps": [found for role in MAP_ROLES for found in _map(collected, role)],
        "tokens": {**_tokens(collected, view), "worst": worst},
        "attention": _attention(collected.heads, view),
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def halves(x: Tensor) -> str:
    """A tensor as base64 of little-endian half floats."""
    clipped = x.detach().float().cpu().numpy().clip(-_LARGEST_HALF, _LARGEST_HALF)
    return _encode(clipped.astype("<f2"))


def bytes_of(x: Tensor) -> str:
    """A tensor of numbers from 0 to 1 as base64 of bytes."""
    return _encode((x.detach().float().cpu().numpy().clip(0, 1) * 255).round().astype(np.uint8))


def _encode(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _map(collected: Collected, role: str) -> list[dict[str, Any]]:
    """Range of each dimension and share of texts it is an outlier in, (sites, width) each; one per width."""
    by_width: dict[int, list[str]] = {}
    for name, statistics in collected.statistics.items():
        if statistics.role == role and name in collected.channels:
            by_width.setdefault(len(collected.channels[name].minimum), []).append(name)
    return [
        {
            "role": role,
            "rows": names,
            "width": width,
            "min": _rows(collected, names, "minimum"),
            "max": _rows(collected, names, "maximum"),
            "texts": _shares(collected, names),
        }
        for width, names in by_width.items()
    ]


def _rows(collected: Collected, names: list[str], part: str) -> str:
    return halves(torch.stack([getattr(collected.channels[name], part) for name in names]))


def _shares(collected: Collected, names: list[str]) -> str:
    return bytes_of(torch.stack([collected.channels[name].texts for name in names]) / collected.texts)


def _tokens(collected: Collected, view: TextView) -> dict[str, Any]:
    return {
        "labels": view.tokens,
        "kinds": view.kinds,
        "sites": [
            {
                "name": name,
                "width": values.shape[1],
                "std": collected.statistics[name].std,
                "mean": collected.statistics[name].mean,
                "values": halves(values),
            }
            for name, values in view.values.items()
        ],
    }


def _attention(heads: list[Head], view: TextView) -> dict[str, Any]:
    layers = []
    for layer, pattern in sorted(view.patterns.items()):
        entry: dict[str, Any] = {"layer": layer, "heads": len(pattern), "pattern": bytes_of(pattern)}
        if (
            layer in view.queries
            and layer in view.keys
            and view.queries[layer].shape == view.keys[layer].shape
        ):
            entry |= {
                "width": view.queries[layer].shape[-1],
                "queries": halves(view.queries[layer]),
                "keys": halves(view.keys[layer]),
            }
        layers.append(entry)
    described = {
        head.name: {
            "shares": head.shares,
            "special": head.special,
            "noop": head.no_op,
            "keys": [[share.dimension, share.share] for share in head.key_dimensions],
            "inputs": [[share.dimension, share.share, share.outlier] for share in head.input_dimensions],
        }
        for head in heads
    }
    return {"layers": layers if heads else [], "heads": described}
