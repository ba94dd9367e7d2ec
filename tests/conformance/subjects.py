"""What is tried: tiny models with weights of ordinary size, texts of every length, recipes and presets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import octavo
from octavo.graph import Head
from octavo.spec import AllMinMax, Equalize, Override, Pass, PerGroup
from octavo.spec.presets import PRESETS
from tests.graph import families

Batch = dict[str, Tensor]

LENGTHS = (3, 64, 65, 130, 300)
LONGEST = 320
FEW = ("3 tokens, padded", "65 tokens, padded", "300 tokens")
"""What every pass, every head and every file runs on."""
FEW_OF_PRESETS = ("3 tokens, padded", "65 tokens, padded", "130 tokens")
"""What every preset runs on."""
IN_OPENVINO = ("int8", "int8-small", "int8-weights", "w4a8", "w8a8", "w8a8-mp")
"""Presets whose files run in OpenVINO as well."""
ALL_OF_INT8 = "all of `int8`"
NAME = "a tiny model"
"""The same for every family, so that equal refusals read alike."""

# A window narrower than the longest text and wider than the shortest, where a family has one.
_CHANGES: dict[str, dict[str, Any]] = {"modernbert": {"local_attention": 40}}

HEADS: dict[Head, str] = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "masked-lm": "AutoModelForMaskedLM",
}
"""Every head, and the class by which transformers finds a family's."""


def batches(family: str) -> dict[str, Batch]:
    """Return three pairs of texts of each length, ended and padded by the family's own tokens.

    Ranges come from them too, so that nothing is clipped that 16 bits should keep.
    """
    config = families.config(family)
    padding = getattr(config, "pad_token_id", None) or 0
    found = {}
    for length in LENGTHS:
        for padded in (False, True):
            batch = families.batch((3, length), padded)
            ids, mask = batch["input_ids"], batch["attention_mask"]
            # T5's classifiers read the hidden state there, and want as many in every text of a batch; BigBird
            # tells questions from answers by it
            if isinstance(config.eos_token_id, int):
                tokens = mask.sum(1)
                for end in (tokens - 1,) if int(tokens.min()) == 1 else (tokens // 2 - 1, tokens - 1):
                    ids[torch.arange(len(ids)), end] = config.eos_token_id
            batch["input_ids"] = ids.masked_fill(mask == 0, padding)
            found[f"{length} tokens{', padded' if padded else ''}"] = batch
    return found


def heads_of(family: str) -> list[Head]:
    """Return the heads that transformers has for a family."""
    config = type(families.config(family))
    return [head for head, name in HEADS.items() if config in getattr(transformers, name)._model_mapping]


def network(family: str, head: Head = "encoder") -> nn.Module:
    """Return an untrained network whose matrices keep the size of what they multiply, as trained ones do.

    Hugging Face's initial weights are so small that a wrong mask or a lost factor hardly shows.
    """
    made = families.network(family, head, length=LONGEST, **_CHANGES.get(family, {}))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:  # tables of sinusoids are no weights
                ordinary = parameter[0].numel() ** -0.5
                parameter.mul_(ordinary / parameter.std().clamp(min=1e-6))
    return made


# -- recipes -------------------------------------------------------------------------------------------------

_WEIGHTS = octavo.TensorSpec(bits=16, symmetric=True)
_ACTIVATIONS = octavo.TensorSpec(bits=16, estimator=AllMinMax())
_WIDE = octavo.Recipe(name="16 bits", weights=_WEIGHTS, activations=_ACTIVATIONS)
_GROUPS = Override(roles=("ffn_input", "ffn_output", "ffn_residual"), granularity=PerGroup(groups=2))
_INT8 = octavo.recipe("int8")
_AT: dict[str, Any] = {
    "roles": tuple(
        role for done in _INT8.passes if isinstance(done, Equalize | octavo.Spill) for role in done.roles
    ),
    "optional": True,
}


def _with(*passes: Pass, **changes: Any) -> octavo.Recipe:
    return replace(_WIDE, passes=passes, **changes)


def _int8_wide(*passes: Pass) -> octavo.Recipe:
    """Return `int8` at 16 bits, with these passes in place of its own."""
    return replace(_INT8, weights=replace(_INT8.weights, bits=16), activations=_ACTIVATIONS, passes=passes)


AT_16_BITS: dict[str, octavo.Recipe] = {
    "plain quantizers": _WIDE,
    "fold": _int8_wide(octavo.Fold(**_AT)),
    "smooth-quant": _int8_wide(octavo.SmoothQuant(**_AT)),
    "migrate-gamma": _int8_wide(octavo.MigrateGamma(**_AT)),
    # where norms or linear layers with a bias make the tensor, which can take a shift
    "shift-and-scale": _int8_wide(
        octavo.ShiftAndScale(roles=("attention_input", "ffn_input", "layer_output", "value"), optional=True)
    ),
    "equalize": _int8_wide(Equalize(**_AT)),
    "spill": _int8_wide(octavo.Spill(**_AT)),
    "adaround": _with(octavo.AdaRound(iterations=3)),
    "gptq": _with(octavo.Gptq()),
    "bias-correction": _with(octavo.BiasCorrection()),
    "clip-tokens": _with(octavo.ClipTokens()),
    "tune-ranges": _with(octavo.TuneRanges(steps=2)),
    "split-groups": _with(octavo.SplitGroups(), overrides=(_GROUPS,)),
    ALL_OF_INT8: _int8_wide(*_INT8.passes),
}
"""Recipes that lose nothing: what is left is what a pass does wrong."""

NO_IDENTITY = {
    octavo.AllocateBits: "it chooses bits and leaves plain quantizers",
    octavo.IntegerFunctions: "its polynomials are not the functions that they stand for",
    octavo.LearnedRanges: "it needs labels",
    octavo.FixedRanges: "it needs labels",
    octavo.RunningRanges: "it needs labels",
}
"""Passes that are not tried at 16 bits, and why."""


def _quick(done: Pass) -> Pass:
    return replace(done, iterations=5) if isinstance(done, octavo.AdaRound) else done


def _distinct() -> dict[str, octavo.Recipe]:
    """Return every preset once: those for training differ from others in their name only."""
    found: dict[octavo.Recipe, tuple[str, octavo.Recipe]] = {}
    for name, preset in PRESETS.items():
        quick = replace(preset, passes=tuple(map(_quick, preset.passes)))
        found.setdefault(replace(quick, name="any", description=""), (name, quick))
    return dict(found.values())


RECIPES = _distinct()
"""Every preset that differs from the others, with a few steps of rounding where it learns that."""

NEED_A_HEAD = {"w8a8-mp-output"}
"""Presets that name the pooler and the logits of a classifier."""


# -- how much of a family is tried ---------------------------------------------------------------------------

THOROUGH = (
    "bert",
    "mobilebert",
    "albert",
    "mpnet",
    "deberta-v2",
    "modernbert",
    "squeezebert",
    "roberta-prelayernorm",
    "nomic-bert",
    "convbert",
    "t5",
)
"""One family of every kind: post-norm and pre-norm, shared layers, bottlenecks, relative positions, windows,
gates, no biases, convolutions, norms written out. Others are much like one of them, and run a part."""

CORE_AT_16_BITS = ("plain quantizers", "split-groups", ALL_OF_INT8)
CORE = (
    "w8a8",
    "w32a8",
    "w4a32",
    "w8a8-mp",
    "w8a8-peg6",
    "q8bert",
    "ibert",
    "int8",
    "int8-full",
    "int8-weights",
    "w4a8",
    "fp8-full",
)
"""What the others run of passes and of presets."""


def recipes_at_16_bits(family: str, every: bool = False) -> dict[str, octavo.Recipe]:
    """Return what is tried of a family at 16 bits."""
    names = AT_16_BITS if every or family in THOROUGH else CORE_AT_16_BITS
    return {name: AT_16_BITS[name] for name in names}


def presets(family: str, every: bool = False) -> dict[str, octavo.Recipe]:
    """Return the presets that are tried of a family."""
    return {name: RECIPES[name] for name in (RECIPES if every or family in THOROUGH else CORE)}


def quantized_heads(family: str, every: bool = False) -> list[Head]:
    """Return the heads that a family is quantized with."""
    found = heads_of(family)
    if every or family in THOROUGH:
        return found
    return [head for head in found if head == "token-classification"] or found[:1]
