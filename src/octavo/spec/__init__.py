"""Specs: frozen descriptions of how tensors are quantized, recipes made of them, presets and YAML.

The function `recipe` stays in `octavo.spec.presets`: here the name is that of the module with `Recipe`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from octavo.spec.document import recipe_from_dict as recipe_from_dict
from octavo.spec.document import recipe_to_dict as recipe_to_dict
from octavo.spec.equalization import Equalization as Equalization
from octavo.spec.equalization import Equalize as Equalize
from octavo.spec.equalization import Fold as Fold
from octavo.spec.equalization import MigrateGamma as MigrateGamma
from octavo.spec.equalization import ShiftAndScale as ShiftAndScale
from octavo.spec.equalization import SmoothQuant as SmoothQuant
from octavo.spec.equalization import Spill as Spill
from octavo.spec.estimator import AllMinMax as AllMinMax
from octavo.spec.estimator import CrossEntropy as CrossEntropy
from octavo.spec.estimator import Estimator as Estimator
from octavo.spec.estimator import MinMax as MinMax
from octavo.spec.estimator import Mse as Mse
from octavo.spec.estimator import Percentile as Percentile
from octavo.spec.estimator import RunningMinMax as RunningMinMax
from octavo.spec.estimator import TokenQuantile as TokenQuantile
from octavo.spec.format import E4M3 as E4M3
from octavo.spec.format import E5M2 as E5M2
from octavo.spec.format import Format as Format
from octavo.spec.format import Integer as Integer
from octavo.spec.granularity import Granularity as Granularity
from octavo.spec.granularity import PerChannel as PerChannel
from octavo.spec.granularity import PerEmbedding as PerEmbedding
from octavo.spec.granularity import PerGroup as PerGroup
from octavo.spec.granularity import PerTensor as PerTensor
from octavo.spec.granularity import PerToken as PerToken
from octavo.spec.passes import AllocateBits as AllocateBits
from octavo.spec.passes import AverageBits as AverageBits
from octavo.spec.passes import BiasCorrection as BiasCorrection
from octavo.spec.passes import Budget as Budget
from octavo.spec.passes import ClipTokens as ClipTokens
from octavo.spec.passes import FixedRanges as FixedRanges
from octavo.spec.passes import IntegerFunctions as IntegerFunctions
from octavo.spec.passes import LearnedRanges as LearnedRanges
from octavo.spec.passes import Megabytes as Megabytes
from octavo.spec.passes import Pass as Pass
from octavo.spec.passes import RangeTraining as RangeTraining
from octavo.spec.passes import RunningRanges as RunningRanges
from octavo.spec.passes import SplitGroups as SplitGroups
from octavo.spec.passes import Stage as Stage
from octavo.spec.passes import TuneRanges as TuneRanges
from octavo.spec.presets import preset_names as preset_names
from octavo.spec.recipe import Kind as Kind
from octavo.spec.recipe import Override as Override
from octavo.spec.recipe import Placement as Placement
from octavo.spec.recipe import Recipe as Recipe
from octavo.spec.rounding import AdaRound as AdaRound
from octavo.spec.rounding import Gptq as Gptq
from octavo.spec.rounding import WeightRounding as WeightRounding
from octavo.spec.tensor import TensorSpec as TensorSpec

if TYPE_CHECKING:
    from octavo.spec.yaml import dump_recipe as dump_recipe
    from octavo.spec.yaml import load_recipe as load_recipe
    from octavo.spec.yaml import parse_recipe as parse_recipe


def __getattr__(name: str) -> Any:
    # YAML takes longer to import than everything else here, and presets do not need it
    if name in ("dump_recipe", "load_recipe", "parse_recipe"):
        return getattr(import_module("octavo.spec.yaml"), name)
    raise AttributeError(f"module 'octavo.spec' has no attribute {name!r}")
