"""The names that `import octavo` offers: a change here is a change of the interface, and meant."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import octavo

PUBLIC = [
    "AdaRound",
    "AllMinMax",
    "AllocateBits",
    "AverageBits",
    "BiasCorrection",
    "Classification",
    "ClipTokens",
    "CrossEntropy",
    "Distillation",
    "E4M3",
    "E5M2",
    "Encoder",
    "Equalize",
    "FixedRanges",
    "Fold",
    "Gptq",
    "Hyperparameters",
    "Integer",
    "IntegerFunctions",
    "LearnedRanges",
    "Megabytes",
    "MigrateGamma",
    "MinMax",
    "Mse",
    "MultiLabel",
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
    "QuestionAnswering",
    "Recipe",
    "Regression",
    "Reranking",
    "Retrieval",
    "RunOptions",
    "RunningMinMax",
    "RunningRanges",
    "ShiftAndScale",
    "Similarity",
    "SmoothQuant",
    "Spill",
    "SplitGroups",
    "TensorSpec",
    "TokenClassification",
    "TokenQuantile",
    "TrainableEncoder",
    "TuneRanges",
    "__version__",
    "allocate_bits",
    "cross_encoder",
    "demo_texts",
    "diagnose",
    "distill",
    "evaluate",
    "export",
    "export_onnx",
    "finetune",
    "integer_only",
    "load",
    "open",
    "qat",
    "quantize",
    "recipe",
    "save_encoder",
    "sentence_transformer",
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


# -- every package's exports ---------------------------------------------------------------------------------

PACKAGES = [
    "octavo",
    "octavo.diagnosis",
    "octavo.graph",
    "octavo.methods",
    "octavo.runtime",
    "octavo.spec",
    "octavo.tasks",
]
CHANGING = """
import sys
from importlib import import_module
from pkgutil import iter_modules

names = [given.rpartition(".") for given in sys.argv[1:]]

def look_up():
    return [getattr(import_module(package), name) for package, _, name in names]

first, again = look_up(), look_up()
for package in {import_module(package) for package, _, _ in names}:
    for module in iter_modules(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
found = zip(sys.argv[1:], first, again, look_up(), strict=True)
print(*[name for name, one, two, three in found if not one is two is three])
"""
"""Looks up every name twice, and again when all submodules are imported; prints the names that change."""


def package_exports(package: str) -> list[str]:
    """Return what a package re-exports: `import name as name`, or the names of its `__all__`."""
    module = import_module(package)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    return sorted({*exported(tree), *getattr(module, "__all__", ())})


@pytest.mark.parametrize("package", PACKAGES)
def test_no_export_has_the_name_of_a_submodule(package: str) -> None:
    modules = {module.name for module in iter_modules(import_module(package).__path__)}
    assert modules.isdisjoint(package_exports(package))


def test_every_export_stays_the_same_object() -> None:
    names = [f"{package}.{name}" for package in PACKAGES for name in package_exports(package)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    result = subprocess.run(
        [sys.executable, "-c", CHANGING, *names], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
