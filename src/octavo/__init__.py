"""Octavo quantizes transformer encoders to 8 bits and below.

>>> import octavo
>>> encoder = octavo.load("demo:minilm")
>>> model = octavo.quantize(encoder, octavo.recipe("w8a8-mp"), calibration=octavo.demo_texts())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from octavo.errors import OctavoError as OctavoError
from octavo.errors import OctavoWarning as OctavoWarning
from octavo.spec import E4M3 as E4M3
from octavo.spec import E5M2 as E5M2
from octavo.spec import AdaRound as AdaRound
from octavo.spec import AllMinMax as AllMinMax
from octavo.spec import AllocateBits as AllocateBits
from octavo.spec import AverageBits as AverageBits
from octavo.spec import BiasCorrection as BiasCorrection
from octavo.spec import ClipTokens as ClipTokens
from octavo.spec import CrossEntropy as CrossEntropy
from octavo.spec import Equalize as Equalize
from octavo.spec import FixedRanges as FixedRanges
from octavo.spec import Fold as Fold
from octavo.spec import Gptq as Gptq
from octavo.spec import Integer as Integer
from octavo.spec import IntegerFunctions as IntegerFunctions
from octavo.spec import LearnedRanges as LearnedRanges
from octavo.spec import Megabytes as Megabytes
from octavo.spec import MigrateGamma as MigrateGamma
from octavo.spec import MinMax as MinMax
from octavo.spec import Mse as Mse
from octavo.spec import Override as Override
from octavo.spec import Percentile as Percentile
from octavo.spec import PerChannel as PerChannel
from octavo.spec import PerEmbedding as PerEmbedding
from octavo.spec import PerGroup as PerGroup
from octavo.spec import PerTensor as PerTensor
from octavo.spec import PerToken as PerToken
from octavo.spec import Recipe as Recipe
from octavo.spec import RunningMinMax as RunningMinMax
from octavo.spec import RunningRanges as RunningRanges
from octavo.spec import ShiftAndScale as ShiftAndScale
from octavo.spec import SmoothQuant as SmoothQuant
from octavo.spec import Spill as Spill
from octavo.spec import SplitGroups as SplitGroups
from octavo.spec import TensorSpec as TensorSpec
from octavo.spec import TokenQuantile as TokenQuantile
from octavo.spec import TuneRanges as TuneRanges
from octavo.spec.presets import recipe as recipe
from octavo.versions import __version__ as __version__

if TYPE_CHECKING:
    from octavo.diagnosis import diagnose as diagnose
    from octavo.graph import Encoder as Encoder
    from octavo.graph import QuantizedEncoder as QuantizedEncoder
    from octavo.graph.rewrites.integer import integer_only as integer_only
    from octavo.graph.rewrites.split import split_groups as split_groups
    from octavo.methods import load as load
    from octavo.methods import quantize as quantize
    from octavo.methods.allocation.budget import allocate_bits as allocate_bits
    from octavo.methods.distillation.distilling import distill as distill
    from octavo.methods.distillation.settings import Distillation as Distillation
    from octavo.methods.training.finetuning import finetune as finetune
    from octavo.methods.training.finetuning import save_encoder as save_encoder
    from octavo.methods.training.hyperparameters import Hyperparameters as Hyperparameters
    from octavo.methods.training.labelled import tokenize_labelled as tokenize_labelled
    from octavo.methods.training.loop import RunOptions as RunOptions
    from octavo.methods.training.module import TrainableEncoder as TrainableEncoder
    from octavo.methods.training.quantized import qat as qat
    from octavo.runtime.drop_in import cross_encoder as cross_encoder
    from octavo.runtime.drop_in import sentence_transformer as sentence_transformer
    from octavo.runtime.exporting import export as export
    from octavo.runtime.exporting import export_onnx as export_onnx
    from octavo.runtime.file_model import open as open
    from octavo.tasks.demo import demo_texts as demo_texts
    from octavo.tasks.evaluation import evaluate as evaluate
    from octavo.tasks.kinds import Classification as Classification
    from octavo.tasks.kinds import MultiLabel as MultiLabel
    from octavo.tasks.kinds import QuestionAnswering as QuestionAnswering
    from octavo.tasks.kinds import Regression as Regression
    from octavo.tasks.kinds import Reranking as Reranking
    from octavo.tasks.kinds import Retrieval as Retrieval
    from octavo.tasks.kinds import Similarity as Similarity
    from octavo.tasks.kinds import TokenClassification as TokenClassification

# Imported on first use: torch takes seconds, and `octavo --help` should not.
_LAZY = {
    "Encoder": "octavo.graph",
    "QuantizedEncoder": "octavo.graph",
    "load": "octavo.methods",
    "diagnose": "octavo.diagnosis",
    "quantize": "octavo.methods",
    "allocate_bits": "octavo.methods.allocation.budget",
    "integer_only": "octavo.graph.rewrites.integer",
    "split_groups": "octavo.graph.rewrites.split",
    "Hyperparameters": "octavo.methods.training.hyperparameters",
    "distill": "octavo.methods.distillation.distilling",
    "Distillation": "octavo.methods.distillation.settings",
    "RunOptions": "octavo.methods.training.loop",
    "TrainableEncoder": "octavo.methods.training.module",
    "finetune": "octavo.methods.training.finetuning",
    "save_encoder": "octavo.methods.training.finetuning",
    "tokenize_labelled": "octavo.methods.training.labelled",
    "qat": "octavo.methods.training.quantized",
    "demo_texts": "octavo.tasks.demo",
    "evaluate": "octavo.tasks.evaluation",
    "Classification": "octavo.tasks.kinds",
    "MultiLabel": "octavo.tasks.kinds",
    "QuestionAnswering": "octavo.tasks.kinds",
    "Regression": "octavo.tasks.kinds",
    "Reranking": "octavo.tasks.kinds",
    "Retrieval": "octavo.tasks.kinds",
    "Similarity": "octavo.tasks.kinds",
    "TokenClassification": "octavo.tasks.kinds",
    "cross_encoder": "octavo.runtime.drop_in",
    "sentence_transformer": "octavo.runtime.drop_in",
    "export": "octavo.runtime.exporting",
    "export_onnx": "octavo.runtime.exporting",
    "open": "octavo.runtime.file_model",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
