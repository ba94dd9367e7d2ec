"""Octavo quantizes transformer encoders to 8 bits and below.

>>> import octavo
>>> encoder = octavo.load("demo:minilm")
>>> model = octavo.quantize(encoder, octavo.recipe("w8a8-mp"), calibration=texts)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from octavo.errors import OctavoError as OctavoError
from octavo.errors import OctavoWarning as OctavoWarning
from octavo.spec import AdaRound as AdaRound
from octavo.spec import AllMinMax as AllMinMax
from octavo.spec import CrossEntropy as CrossEntropy
from octavo.spec import Folded as Folded
from octavo.spec import MinMax as MinMax
from octavo.spec import Mse as Mse
from octavo.spec import Nearest as Nearest
from octavo.spec import Override as Override
from octavo.spec import Percentile as Percentile
from octavo.spec import PerChannel as PerChannel
from octavo.spec import PerEmbedding as PerEmbedding
from octavo.spec import PerGroup as PerGroup
from octavo.spec import PerTensor as PerTensor
from octavo.spec import PerToken as PerToken
from octavo.spec import Recipe as Recipe
from octavo.spec import RunningMinMax as RunningMinMax
from octavo.spec import TensorSpec as TensorSpec
from octavo.spec.presets import recipe as recipe
from octavo.versions import __version__ as __version__

if TYPE_CHECKING:
    from octavo.diagnose import diagnose as diagnose
    from octavo.graph import Encoder as Encoder
    from octavo.graph import QuantizedEncoder as QuantizedEncoder
    from octavo.graph.integer import integer_only as integer_only
    from octavo.graph.load import load as load
    from octavo.graph.split import split_groups as split_groups
    from octavo.methods import quantize as quantize
    from octavo.methods.bits import AverageBits as AverageBits
    from octavo.methods.bits import Megabytes as Megabytes
    from octavo.methods.bits import allocate_bits as allocate_bits
    from octavo.methods.finetune import finetune as finetune
    from octavo.methods.finetune import save_encoder as save_encoder
    from octavo.methods.hyperparameters import Hyperparameters as Hyperparameters
    from octavo.methods.labelled import tokenize_labelled as tokenize_labelled
    from octavo.methods.qat import qat as qat
    from octavo.runtime.export import export_onnx as export_onnx
    from octavo.tasks.evaluate import evaluate as evaluate

# Imported on first use: torch takes seconds, and `octavo --help` should not.
_LAZY = {
    "Encoder": "octavo.graph",
    "QuantizedEncoder": "octavo.graph",
    "load": "octavo.graph",
    "diagnose": "octavo.diagnose",
    "quantize": "octavo.methods",
    "AverageBits": "octavo.methods.bits",
    "Megabytes": "octavo.methods.bits",
    "allocate_bits": "octavo.methods.bits",
    "integer_only": "octavo.graph.integer",
    "split_groups": "octavo.graph.split",
    "Hyperparameters": "octavo.methods.hyperparameters",
    "finetune": "octavo.methods.finetune",
    "save_encoder": "octavo.methods.finetune",
    "tokenize_labelled": "octavo.methods.labelled",
    "qat": "octavo.methods.qat",
    "evaluate": "octavo.tasks.evaluate",
    "export_onnx": "octavo.runtime.export",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    module = import_module(_LAZY[name])
    # `octavo.diagnose` is its package, which can be called: the same object at the first use and after it
    return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
