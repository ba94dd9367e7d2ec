"""Hypothesis strategies for every part of a recipe."""

from __future__ import annotations

from hypothesis import strategies as st

from octavo.spec.estimator import AllMinMax, CrossEntropy, Estimator, MinMax, Mse, Percentile, RunningMinMax
from octavo.spec.granularity import Granularity, PerChannel, PerEmbedding, PerGroup, PerTensor, PerToken
from octavo.spec.recipe import Override, Recipe
from octavo.spec.tensor import TensorSpec

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = TEXTS.filter(bool)
BITS = st.integers(2, 16)

GROUPS: st.SearchStrategy[Granularity] = st.one_of(
    st.builds(PerGroup, groups=st.integers(1, 10**6), permute=st.booleans(), at_most=st.booleans()),
    st.builds(PerGroup, groups=st.integers(1, 768), permute=st.just(True), shared=st.booleans()),
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
        "estimator": ONE_TENSOR | SEVERAL_TENSORS | CROSS_ENTROPY,
        "dynamic": st.booleans(),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(fields)), min_size=1))
    return Override(**where, **{name: draw(fields[name]) for name in sorted(chosen)})


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Draw a recipe that quantizes something."""
    weights = draw(st.none() | WEIGHTS)
    activations = draw(st.none() | WEIGHTS | DYNAMIC if weights else WEIGHTS | DYNAMIC)
    return Recipe(
        name=draw(NAMES),
        description=draw(TEXTS),
        placement=draw(st.sampled_from(["full", "linear-inputs"])),
        weights=weights,
        activations=activations,
        overrides=tuple(draw(st.lists(overrides(), max_size=3))),
        integer_functions=draw(st.booleans()),
    )
