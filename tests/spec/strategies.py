"""Hypothesis strategies for every part of a recipe."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from octavo.spec.equalization import Equalize, Fold, MigrateGamma, ShiftAndScale, SmoothQuant, Spill
from octavo.spec.estimator import (
    AllMinMax,
    CrossEntropy,
    Estimator,
    MinMax,
    Mse,
    Percentile,
    RunningMinMax,
    TokenQuantile,
)
from octavo.spec.format import E4M3, E5M2, Integer
from octavo.spec.granularity import Granularity, PerChannel, PerEmbedding, PerGroup, PerTensor, PerToken
from octavo.spec.passes import (
    AllocateBits,
    AverageBits,
    BiasCorrection,
    ClipTokens,
    FixedRanges,
    IntegerFunctions,
    LearnedRanges,
    Megabytes,
    Pass,
    RangeTraining,
    RunningRanges,
    SplitGroups,
    TuneRanges,
)
from octavo.spec.recipe import Override, Recipe
from octavo.spec.rounding import AdaRound, Gptq, WeightRounding
from octavo.spec.tensor import TensorSpec

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = TEXTS.filter(bool)
BITS = st.integers(2, 16)

GROUPS: st.SearchStrategy[Granularity] = st.one_of(
    st.builds(PerGroup, groups=st.integers(1, 10**6), permute=st.booleans(), at_most=st.booleans()),
    st.builds(
        PerGroup,
        groups=st.integers(1, 768),
        permute=st.just(True),
        shared=st.booleans(),
        sizes=st.sampled_from(["even", "optimal"]),
    ),
)
STATIC: st.SearchStrategy[Granularity] = st.one_of(
    st.builds(PerTensor), st.builds(PerChannel, axis=st.integers(0, 3)), st.builds(PerEmbedding), GROUPS
)
ONE_TENSOR: st.SearchStrategy[Estimator] = st.one_of(
    st.builds(MinMax),
    st.builds(Percentile, percent=st.floats(50, 100, exclude_min=True)),
    st.builds(Mse, candidates=st.integers(1, 10**6)),
)
SEVERAL_TENSORS: st.SearchStrategy[Estimator] = st.one_of(
    st.builds(RunningMinMax, momentum=st.floats(0, 1, exclude_max=True)), st.builds(AllMinMax)
)
TOKENS: st.SearchStrategy[Estimator] = st.one_of(
    st.builds(TokenQuantile, keep=st.floats(0, 1, exclude_min=True)), st.just(Mse(weighted=True))
)
CROSS_ENTROPY = st.builds(CrossEntropy, candidates=st.integers(1, 1000))

WEIGHTS = st.one_of(
    st.builds(
        TensorSpec,
        bits=BITS,
        symmetric=st.booleans(),
        granularity=STATIC,
        estimator=ONE_TENSOR | SEVERAL_TENSORS,
    ),
    st.builds(TensorSpec, bits=BITS, symmetric=st.booleans(), estimator=CROSS_ENTROPY),
)
DYNAMIC = st.builds(
    TensorSpec,
    bits=BITS,
    symmetric=st.booleans(),
    granularity=STATIC | st.builds(PerToken),
    estimator=ONE_TENSOR,
    dynamic=st.just(True),
)


FLOAT8 = st.builds(
    TensorSpec,
    symmetric=st.just(True),
    granularity=STATIC,
    estimator=SEVERAL_TENSORS,
    format=st.sampled_from([E4M3(), E5M2()]),
)
BY_TOKEN = st.builds(TensorSpec, bits=BITS, symmetric=st.booleans(), granularity=STATIC, estimator=TOKENS)
POSITIVE = st.floats(1e-6, 1e6)
NAMED = st.lists(NAMES, max_size=2).map(tuple)
CHOSEN: dict[str, st.SearchStrategy[Any]] = {
    "sites": st.lists(NAMES, min_size=1, max_size=2).map(tuple),
    "roles": NAMED,
    "skip_sites": NAMED,
    "skip_roles": NAMED,
    "optional": st.booleans(),
}
PASSES: dict[type[Pass], st.SearchStrategy[Pass]] = {
    AllocateBits: st.builds(
        AllocateBits,
        budget=st.builds(AverageBits, bits=POSITIVE) | st.builds(Megabytes, size=POSITIVE),
        choices=st.lists(BITS, min_size=1, max_size=4).map(tuple),
        parts=st.integers(1, 100),
    ),
    Fold: st.builds(Fold, **CHOSEN, power=st.floats(0, 1, exclude_min=True)),
    SmoothQuant: st.builds(SmoothQuant, **CHOSEN, alpha=st.floats(0, 1)),
    MigrateGamma: st.builds(MigrateGamma, **CHOSEN),
    ShiftAndScale: st.builds(
        ShiftAndScale,
        **CHOSEN,
        shift=st.booleans(),
        thresholds=st.integers(1, 100),
        tokens=st.integers(2, 10**4),
    ),
    Equalize: st.builds(
        Equalize,
        **CHOSEN,
        powers=st.lists(st.floats(0, 1), max_size=3).map(tuple),
        alphas=st.lists(st.floats(0, 1), max_size=3).map(tuple),
        thresholds=st.integers(0, 100),
        tokens=st.integers(2, 10**4),
        worth=st.floats(0, 1, exclude_min=True),
    ),
    Spill: st.builds(
        Spill,
        sites=st.lists(NAMES, min_size=1, max_size=2).map(tuple),
        roles=NAMED,
        skip_sites=NAMED,
        skip_roles=NAMED,
        optional=st.booleans(),
        share=st.floats(0, 1, exclude_min=True),
        margin=st.floats(1, 10),
    ),
    AdaRound: st.builds(
        AdaRound,
        iterations=st.integers(1, 10**6),
        learning_rate=st.none() | st.floats(1e-6, 10),
        weight=st.floats(1e-6, 10),
        warmup=st.floats(0, 1, exclude_max=True),
        beta=st.tuples(st.floats(5, 30), st.floats(2, 5)),
        flips=st.booleans(),
        asymmetric=st.booleans(),
        shrinkage=st.floats(0, 1),
    ),
    Gptq: st.builds(
        Gptq,
        order=st.booleans(),
        damping=st.floats(1e-6, 10),
        block=st.integers(1, 1000),
        asymmetric=st.booleans(),
        sweeps=st.integers(0, 9),
        shrinkage=st.floats(0, 1),
    ),
    BiasCorrection: st.builds(BiasCorrection, robust=st.booleans(), guarded=st.booleans()),
    ClipTokens: st.builds(
        ClipTokens,
        above=st.floats(0, 1, exclude_max=True),
        texts=st.integers(1, 1000),
        lowest=st.none() | st.floats(0, 1, exclude_min=True),
        per_site=st.booleans(),
    ),
    TuneRanges: st.builds(
        TuneRanges,
        steps=st.integers(1, 1000),
        learning_rate=st.floats(1e-6, 1),
        batch_size=st.integers(1, 64),
        texts=st.integers(2, 1000),
    ),
    IntegerFunctions: st.builds(IntegerFunctions),
    SplitGroups: st.builds(SplitGroups, narrow=st.none() | st.integers(1, 1000), in_place=st.booleans()),
    LearnedRanges: st.builds(LearnedRanges, gradient_scaling=st.booleans()),
    FixedRanges: st.builds(FixedRanges),
    RunningRanges: st.builds(RunningRanges, momentum=st.floats(0, 1, exclude_max=True)),
}
"""A strategy for every pass; a test names the one that is missing."""


ONCE = (RangeTraining, WeightRounding)
"""Kinds of passes of which a recipe has one at most."""


def _order(entry: Pass) -> tuple[int, bool]:
    return entry.stage, entry.rewrites


@st.composite
def passes(draw: st.DrawFn) -> tuple[Pass, ...]:
    """Draw passes in an order that can be carried out."""
    drawn = draw(st.lists(st.one_of(*PASSES.values()), max_size=4))
    once = [[entry for entry in drawn if isinstance(entry, kind)][:1] for kind in ONCE]
    rest = [entry for entry in drawn if not isinstance(entry, ONCE)]
    return tuple(sorted((*rest, *(entry for kept in once for entry in kept)), key=_order))


@st.composite
def overrides(draw: st.DrawFn) -> Override:
    """Draw an override that names sites or roles and that turns them off or changes something."""
    sites = draw(st.lists(NAMES, max_size=3))
    roles = draw(st.lists(NAMES, min_size=0 if sites else 1, max_size=3))
    where = {"sites": tuple(sites), "roles": tuple(roles), "optional": draw(st.booleans())}
    if draw(st.booleans()):
        return Override(**where, off=True)
    fields = {
        "bits": BITS,
        "symmetric": st.booleans(),
        "granularity": STATIC | st.builds(PerToken),
        "estimator": ONE_TENSOR | SEVERAL_TENSORS | CROSS_ENTROPY | TOKENS,
        "dynamic": st.booleans(),
        "format": st.sampled_from([Integer(), E4M3(), E5M2()]),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(fields)), min_size=1))
    return Override(**where, **{name: draw(fields[name]) for name in sorted(chosen)})


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Draw a recipe that quantizes something."""
    weights = draw(st.none() | WEIGHTS | FLOAT8)
    covered = WEIGHTS | DYNAMIC | BY_TOKEN | FLOAT8
    activations = draw(st.none() | covered if weights else covered)
    return Recipe(
        name=draw(NAMES),
        description=draw(TEXTS),
        placement=draw(st.sampled_from(["full", "linear-inputs"])),
        weights=weights,
        activations=activations,
        overrides=tuple(draw(st.lists(overrides(), max_size=3))),
        passes=draw(passes()),
    )
