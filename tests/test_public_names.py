"""The names that `import octavo` offers: a change here is a change of the interface, and meant."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import octavo

PUBLIC = [
    "AdaRound",
    "AllMinMax",
    "AverageBits",
    "CrossEntropy",
    "Encoder",
    "Folded",
    "Hyperparameters",
    "Megabytes",
    "MinMax",
    "Mse",
    "Nearest",
    "OctavoError",
    "OctavoWarning",
    "Override",
    "PerChannel",
    "PerEmbedding",
    "PerGroup",
    "PerTensor",
    "PerToken",
    "Percentile",
    "QuantizedEncoder",
    "Recipe",
    "RunningMinMax",
    "TensorSpec",
    "__version__",
    "allocate_bits",
    "demo_texts",
    "diagnose",
    "evaluate",
    "export_onnx",
    "finetune",
    "integer_only",
    "load",
    "qat",
    "quantize",
    "recipe",
    "save_encoder",
    "split_groups",
    "tokenize_labelled",
]


def exported(tree: ast.AST) -> list[str]:
    """Return the names that a module re-exports: imported as themselves, `from x import name as name`."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return sorted(alias.name for node in imports for alias in node.names if alias.name == alias.asname)


def source() -> ast.Module:
    assert octavo.__file__ is not None
    return ast.parse(Path(octavo.__file__).read_text(encoding="utf-8"))


def test_the_public_names_are_these() -> None:
    assert exported(source()) == PUBLIC


def test_names_for_type_checkers_are_those_loaded_on_first_use() -> None:
    checked = [node for node in source().body if isinstance(node, ast.If)]
    assert exported(ast.Module(body=list(checked), type_ignores=[])) == sorted(octavo._LAZY)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(octavo, name) is not None


def test_a_name_is_the_same_object_at_the_first_use_and_after_it() -> None:
    code = "import octavo; assert octavo.diagnose is octavo.diagnose and callable(octavo.diagnose)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        octavo.quantise  # noqa: B018 - looking it up is the test
