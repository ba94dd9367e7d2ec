"""The presets: one recipe for each row of the paper's tables, and ours."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

from octavo.errors import SpecError, did_you_mean
from octavo.spec.estimator import AllMinMax, MinMax, Mse, RunningMinMax
from octavo.spec.granularity import Granularity, PerChannel, PerEmbedding, PerGroup
from octavo.spec.own_presets import ATTENTION_OPERANDS, OWN
from octavo.spec.passes import IntegerFunctions, RunningRanges
from octavo.spec.plugins import Table, broken_plugins, known
from octavo.spec.recipe import Override, Recipe
from octavo.spec.rounding import AdaRound
from octavo.spec.tensor import TensorSpec

_FFN = ("layers.*.ffn_input", "layers.*.ffn_output", "layers.*.ffn_residual")
_TOKEN_EMBEDDING = ("embeddings.token.weight",)

_A8 = TensorSpec(bits=8, estimator=RunningMinMax())
_FFN_16_BITS = Override(sites=_FFN, bits=16)
_OUTPUT_16_BITS = (
    Override(sites=("pooler",), bits=16),
    Override(sites=("logits",), bits=16, estimator=Mse()),
)


def _weights(bits: int) -> TensorSpec:
    """Return symmetric per-tensor weights; below 8 bits their ranges come from the MSE (section 5)."""
    return TensorSpec(bits=bits, symmetric=True, estimator=Mse() if bits < 8 else MinMax())


def _embedding(bits: int) -> Override:
    """Return low-bit token embeddings, whose ranges always come from the MSE."""
    return Override(sites=_TOKEN_EMBEDDING, bits=bits, estimator=Mse())


def _ffn(granularity: Granularity) -> Override:
    """Return a finer granularity for FFN input, output and residual sum."""
    # Running ranges are averages and clip the very outliers that a group of their own should keep.
    return Override(sites=_FFN, granularity=granularity, estimator=AllMinMax())


def _preset(
    name: str, description: str, weights: int | None, activations: TensorSpec | None, *overrides: Override
) -> Recipe:
    return Recipe(
        name=name,
        description=description,
        weights=None if weights is None else _weights(weights),
        activations=activations,
        overrides=overrides,
    )


_Q8BERT = Recipe(
    name="q8bert",
    description="Q8BERT, dynamic, only linear and embedding layers in 8 bits: table 6, row Q8BERT W8A8 PTQ",
    placement="linear-inputs",
    weights=_weights(8),
    activations=TensorSpec(bits=8, symmetric=True, dynamic=True),
    overrides=(Override(roles=("norm_weight",), off=True), Override(roles=ATTENTION_OPERANDS, off=True)),
)

_Q8BERT_QAT = replace(
    _Q8BERT,
    name="q8bert-qat",
    description="Q8BERT trained with running ranges: table 6, row Q8BERT W8A8 QAT",
    activations=TensorSpec(bits=8, symmetric=True, estimator=RunningMinMax()),
    passes=(RunningRanges(),),
)

_LAST_LAYER = ("pooler", "head.activation", "logits", "logits.weight")


def _qbert(bits: int) -> Recipe:
    """Return Q-BERT: groups of rows, 8-bit activations, norms and the last layer with its input in float."""
    embeddings = Override(roles=("embedding_weight",), bits=8, estimator=MinMax())  # in Q-BERT always
    return Recipe(
        name=f"qbert-w{bits}a8",
        description=(
            f"Q-BERT without training, {bits}-bit weights in 128 groups: "
            f"table {6 if bits == 8 else 12}, row Q-BERT W{bits}A8"
        ),
        placement="linear-inputs",
        weights=replace(_weights(bits), granularity=PerGroup(groups=128, at_most=True)),
        activations=_A8,
        overrides=(
            Override(roles=("norm_weight",), off=True),
            Override(sites=_LAST_LAYER, off=True, optional=True),
            *([embeddings] if bits < 8 else []),
        ),
    )


# What I-BERT keeps as 32-bit accumulators, for which 16 bits are the widest grid of a spec.
_ACCUMULATORS = ("attention_scores", "attention_output", "attention_residual", "ffn_output", "ffn_residual")

_IBERT = Recipe(
    name="ibert",
    description="I-BERT: symmetric 8 bits, integer GELU, softmax and LayerNorm; in no table of the paper",
    weights=_weights(8),
    activations=TensorSpec(bits=8, symmetric=True, estimator=RunningMinMax()),
    overrides=(
        Override(roles=("linear_weight",), granularity=PerChannel()),
        Override(roles=("norm_weight",), off=True),
        Override(roles=_ACCUMULATORS, bits=16),
        Override(roles=("embedding_sum", "embedding_projection"), bits=16, optional=True),
    ),
    passes=(IntegerFunctions(),),
)

_PRESETS = (
    _preset("w8a8", "8-bit weights and activations: table 1, row W8A8", 8, _A8),
    _preset("w32a8", "8-bit activations only: table 1, row W32A8", None, _A8),
    _preset("w8a32", "8-bit weights only: table 1, row W8A32", 8, None),
    _preset("w6a32", "6-bit weights only: table 7, row W6A32 PTQ", 6, None),
    _preset("w4a32", "4-bit weights only: table 7, row W4A32 PTQ", 4, None),
    replace(
        _preset("w4a32-adaround", "4-bit weights, learned rounding: table 7, row W4A32 AdaRound", 4, None),
        passes=(AdaRound(iterations=1000),),
    ),
    _preset(
        "w8a8-mp",
        "W8A8 with 16-bit FFN input, output and residual sum: table 4, row MP-PTQ*†",
        8,
        _A8,
        _FFN_16_BITS,
    ),
    _preset(
        "w8a8-mp-output",
        "w8a8-mp with 16-bit pooler and logits, for STS-B: table 4, row MP-PTQ*†‡",
        8,
        _A8,
        _FFN_16_BITS,
        *_OUTPUT_16_BITS,
    ),
    _preset(
        "w8a8-per-embedding",
        "W8A8 with per-embedding FFN activations: table 5, row 768 (only FFN)",
        8,
        _A8,
        _ffn(PerEmbedding()),
    ),
    _preset(
        "w8a8-peg3",
        "W8A8 with FFN activations in 3 permuted groups: table 5, row 3 + P",
        8,
        _A8,
        _ffn(PerGroup(groups=3, permute=True)),
    ),
    _preset(
        "w8a8-peg6",
        "W8A8 with FFN activations in 6 permuted groups: table 5, row 6 + P; table 6, row PEG-PTQ",
        8,
        _A8,
        _ffn(PerGroup(groups=6, permute=True)),
    ),
    _preset(
        "w8a8-peg3-noperm",
        "W8A8 with FFN activations in 3 groups: table 5, row 3 (only FFN)",
        8,
        _A8,
        _ffn(PerGroup(groups=3)),
    ),
    _preset(
        "w8a8-peg6-noperm",
        "W8A8 with FFN activations in 6 groups: table 5, row 6 (only FFN)",
        8,
        _A8,
        _ffn(PerGroup(groups=6)),
    ),
    _preset(
        "w8a32-e6",
        "8-bit weights, 6-bit token embeddings: table 12, row 6-bit embd. PTQ",
        8,
        None,
        _embedding(6),
    ),
    _preset(
        "w8a32-e4",
        "8-bit weights, 4-bit token embeddings: table 12, row 4-bit embd. PTQ",
        8,
        None,
        _embedding(4),
    ),
    _preset(
        "w8a32-e2",
        "8-bit weights, 2-bit token embeddings: table 12, row 2-bit embd. PTQ",
        8,
        None,
        _embedding(2),
    ),
    _preset(
        "w4a32-e2",
        "4-bit weights, 2-bit token embeddings: the weights of table 7's last row, without training",
        4,
        None,
        _embedding(2),
    ),
    _Q8BERT,
    _preset("w8a8-qat", "w8a8, trained: table 6, row W8A8 QAT", 8, _A8),
    _preset("w4a32-qat", "4-bit weights only, trained: table 7, row W4A32 QAT", 4, None),
    _preset("w4a8-qat", "4-bit weights, 8-bit activations, trained: table 7, row W4A8 QAT", 4, _A8),
    _preset(
        "w4a8-e2-qat",
        "w4a8-qat with 2-bit token embeddings: table 7, row W4A8, 2-bit embd. QAT",
        4,
        _A8,
        _embedding(2),
    ),
    _Q8BERT_QAT,
    _qbert(8),
    _qbert(4),
    _IBERT,
    *OWN,
)

PRESETS = Table("preset", {preset.name: preset for preset in _PRESETS})
"""Every preset by its name, in the order of the paper."""


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, in the order of the paper."""
    return tuple(PRESETS)


def recipe(name_or_path: str | PathLike[str]) -> Recipe:
    """Return the preset of this name, or else the recipe in this YAML file.

    >>> recipe("w8a8-peg6").overrides[0].granularity
    PerGroup(groups=6, permute=True, shared=True, at_most=False, sizes='even')
    """
    given = fspath(name_or_path)
    if given in PRESETS:
        return PRESETS[given]
    if given.lower().endswith((".yaml", ".yml")) or Path(given).is_file():
        from octavo.spec.yaml import load_recipe

        return load_recipe(given)
    if known(given, PRESETS):
        return PRESETS[given]
    hint = did_you_mean(given, PRESETS) or f"; presets are {', '.join(PRESETS)}"
    raise SpecError(f"no preset '{given}' and no such file{hint}{broken_plugins()}")
