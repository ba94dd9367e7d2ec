"""The presets that are in no table of the paper: ours."""

from __future__ import annotations

from dataclasses import replace

from octavo.spec.equalization import Equalize, Spill
from octavo.spec.estimator import AllMinMax, MinMax, Mse
from octavo.spec.format import E4M3
from octavo.spec.granularity import PerChannel, PerGroup, PerTensor
from octavo.spec.passes import BiasCorrection, ClipTokens, Pass
from octavo.spec.recipe import Override, Recipe
from octavo.spec.rounding import Gptq
from octavo.spec.tensor import TensorSpec

ATTENTION_OPERANDS = ("query", "key", "value", "attention_probs")
_NORM_OUTPUTS = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")

# What linear layers read beside these: of bottlenecks (MobileBERT), and where factors of depths that share
# their weights (ALBERT) begin; without it none of those depths could take any.
_ENTRIES = ("norm", "embedding_projection", "embedding_lookup")

_FACTORED = (*_NORM_OUTPUTS, *_ENTRIES, "value", "attention_context")

_INT8 = Recipe(
    name="int8",
    description="static W8A8 for CPUs, what we recommend to deploy; in no table of the paper",
    placement="linear-inputs",
    weights=TensorSpec(bits=8, symmetric=True, granularity=PerChannel()),
    activations=TensorSpec(bits=8, estimator=AllMinMax()),
    overrides=(
        Override(roles=("norm_weight",), off=True, optional=True),
        # Signed bytes around zero are what fused attention kernels take.
        Override(roles=ATTENTION_OPERANDS, symmetric=True, optional=True),
    ),
    passes=(
        Equalize(roles=_FACTORED, optional=True),
        Spill(roles=("ffn_hidden",), optional=True),
        # Errors of weights that all depths share add up; elsewhere this rounds nothing and costs nothing.
        Gptq(only_shared=True),
        # An odd token ([CLS] in MobileBERT reaches 4e7) ruins every range; healthy models skip the search.
        ClipTokens(above=0.05),
        BiasCorrection(guarded=True),
    ),
)

# What is as wide as the residual stream. A layer has one order and one cut, so that it can be split.
_STREAM = (
    *_NORM_OUTPUTS,
    "embedding_sum",
    "embedding_projection",
    "attention_output",
    "attention_residual",
    "ffn_output",
    "ffn_residual",
)

_INT8_FULL = Recipe(
    name="int8-full",
    description="static W8A8 of every tensor, in groups of optimal sizes; in no table of the paper",
    weights=TensorSpec(bits=8, symmetric=True, granularity=PerChannel()),
    activations=TensorSpec(bits=8, estimator=AllMinMax()),
    overrides=(
        # A scale for every entry would be no quantization at all.
        Override(roles=("norm_weight",), granularity=PerTensor(), optional=True),
        Override(
            roles=_STREAM,
            granularity=PerGroup(groups=6, permute=True, at_most=True, sizes="optimal"),
            optional=True,
        ),
    ),
    # Groups would need the range of every one of thousands of channels, which 64 texts do not show.
    passes=(Spill(roles=("ffn_hidden",), optional=True),),
)

_NORMS_FLOAT = Override(roles=("norm_weight",), off=True, optional=True)

_INT8_WEIGHTS = Recipe(
    name="int8-weights",
    description="8-bit weights alone, a scale for every row; needs no texts; in no table of the paper",
    placement="linear-inputs",
    weights=TensorSpec(bits=8, symmetric=True, granularity=PerChannel()),
    activations=None,
    overrides=(_NORMS_FLOAT,),
)

# Rows of a table differ in range and centre: with 16 steps both matter. GPTQ rounds tables by their sum.
# Tables of relative positions are small, and attention reads them unsummed.
_TABLES_4_BITS = Override(
    sites=("embeddings.token*", "embeddings.position*"),
    optional=True,
    bits=4,
    symmetric=False,
    granularity=PerChannel(),
    estimator=Mse(),
)

# A few tokens are far larger than all others; alike, they leave the others their say. Beside quantized
# activations fewer correlations hold than beside float ones.
_GPTQ = Gptq(relative=True, shrinkage=0.9)

_INT8_GPTQ = tuple(_GPTQ if isinstance(entry, Gptq) else entry for entry in _INT8.passes)

_INT8_SMALL = replace(
    _INT8,
    name="int8-small",
    description="int8 with embedding tables in 4 bits, a grid for every row; in no table of the paper",
    overrides=(*_INT8.overrides, _TABLES_4_BITS),
    # Fewer extra channels: beside tables this small, 1.5 % of the hidden layers count.
    passes=tuple(
        replace(entry, share=1 / 256) if isinstance(entry, Spill) else entry for entry in _INT8_GPTQ
    ),
)

_W4A8 = replace(
    _INT8,
    name="w4a8",
    description="int8 with 4-bit weights, rounded by GPTQ without training; in no table of the paper",
    weights=TensorSpec(bits=4, symmetric=True, granularity=PerChannel(), estimator=Mse()),
    overrides=(*_INT8.overrides, _TABLES_4_BITS),
    # Factors would go into weights that have 16 steps. Ranges of rows follow what their layers read. Tokens
    # count by their size: alike, a classifier lost a point (one seed), perhaps as it reads the large [CLS].
    passes=tuple(
        Gptq(weighted=True) if isinstance(entry, Gptq) else entry
        for entry in _INT8.passes
        if not isinstance(entry, Equalize)
    ),
)


def _few_bits(bits: int, *passes: Pass) -> Recipe:
    """Return linear layers of few bits, weights and inputs alike, by the passes that keep most."""
    return Recipe(
        name=f"w{bits}a{bits}",
        description=f"{bits}-bit weights and inputs of linear layers, for research; in no table of the paper",
        placement="linear-inputs",
        weights=TensorSpec(bits=bits, symmetric=True, granularity=PerChannel(), estimator=Mse()),
        activations=TensorSpec(bits=bits, estimator=AllMinMax()),
        overrides=(
            _NORMS_FLOAT,
            Override(roles=("embedding_weight",), bits=8, estimator=MinMax(), optional=True),
        ),
        passes=passes,
    )


_W6A6 = _few_bits(
    6,
    Equalize(roles=_FACTORED, optional=True),
    Spill(roles=("ffn_hidden",), optional=True),
    _GPTQ,
    BiasCorrection(guarded=True),
)

# Copies of channels spread outliers over ranges of 16 steps, which are too few even so: tokens are clipped.
_W4A4 = _few_bits(
    4,
    Equalize(roles=(*_FACTORED, "ffn_hidden"), optional=True),
    _GPTQ,
    ClipTokens(),
    BiasCorrection(guarded=True),
)

_FP8_WEIGHTS = TensorSpec(symmetric=True, granularity=PerChannel(), format=E4M3())
_FP8_ACTIVATIONS = TensorSpec(symmetric=True, estimator=AllMinMax(), format=E4M3())

_FP8 = Recipe(
    name="fp8",
    description="inputs of matrix products in FP8 E4M3, simulated; in no table of the paper",
    placement="linear-inputs",
    weights=_FP8_WEIGHTS,
    activations=_FP8_ACTIVATIONS,
    overrides=(Override(roles=("norm_weight",), off=True, optional=True),),
)

_FP8_FULL = replace(
    _FP8,
    name="fp8-full",
    description="every tensor in FP8 E4M3, simulated; in no table of the paper",
    placement="full",
)

OWN = (
    _INT8,
    _INT8_FULL,
    _INT8_SMALL,
    _INT8_WEIGHTS,
    _W4A8,
    _W6A6,
    _W4A4,
    _FP8,
    _FP8_FULL,
)
"""Those to deploy first, then those for research."""
