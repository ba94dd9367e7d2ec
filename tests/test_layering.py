"""Reads the imports and calls of every source file: layers point one way, and dangerous calls are absent."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "octavo"
SOURCES = sorted(PACKAGE.rglob("*.py"))

RANK = {
    "errors": 0,
    "versions": 0,
    "files": 1,
    "progress": 1,
    "sentence": 1,
    "drawing": 2,
    "ledger": 2,
    "spec": 3,
    "numerics": 4,
    "graph": 5,
    "methods": 6,
    "fidelity": 7,
    "diagnosis": 8,
    "runtime": 8,
    "tasks": 8,
    "experiments": 9,
    "": 10,
    "cli": 11,
}
"""A layer may import itself and layers of a lower rank; layers of one rank do not know each other.

The package itself, "", re-exports every layer but cli; to import it from below would close a circle.
"""

FORBIDDEN_CALLS = {"print", "eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def imported_modules(tree: ast.AST, module: str) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every import, at the top of a file or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def called_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.lineno, ast.unparse(node.func)


def module_name(path: Path) -> str:
    """Return the module in a file; a package's own file counts as `package.__init__`."""
    return ".".join(("octavo", *path.relative_to(PACKAGE).with_suffix("").parts))


def layer(module: str) -> str:
    """Return the layer of a module, "" for the package itself."""
    first = [*module.split("."), ""][1]
    return "cli" if first == "__main__" else first if first in RANK else ""


def backward_arrows(source: str, module: str) -> list[str]:
    """Return a line for every import of a higher layer or of a neighbour."""
    own = layer(module)
    return [
        f"{module}:{line}: {own or 'octavo'} may not import {target}"
        for line, target in imported_modules(ast.parse(source), module)
        if target.split(".")[0] == "octavo" and layer(target) != own and RANK[layer(target)] >= RANK[own]
    ]


def forbidden_uses(source: str, module: str) -> list[str]:
    """Return a line for every call or import that a source file may not have."""
    tree = ast.parse(source)
    calls = [(line, name) for line, name in called_names(tree) if name in FORBIDDEN_CALLS]
    imports = [
        (line, name)
        for line, name in imported_modules(tree, module)
        if name.split(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS
    ]
    return [f"{module}:{line}: {name}" for line, name in calls + imports]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_lower_layers(path: Path) -> None:
    assert backward_arrows(path.read_text(encoding="utf-8"), module_name(path)) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_unpickled_evaluated_or_printed(path: Path) -> None:
    assert forbidden_uses(path.read_text(encoding="utf-8"), module_name(path)) == []


def test_every_package_is_a_layer() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert folders | files <= set(RANK)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from octavo.graph import capture", "octavo.spec.recipe"),
        ("import octavo.numerics.affine", "octavo.spec.recipe"),
        ("def late():\n    from octavo.cli import main", "octavo.graph.sites.site"),
        ("from octavo.runtime import onnx", "octavo.tasks.glue"),
        ("from ..graph import sites", "octavo.numerics.layout"),
        ("from .. import load", "octavo.numerics.layout"),
        ("from octavo import load", "octavo.methods.pipeline"),
        ("import octavo", "octavo.methods.pipeline"),
        ("from octavo.cli import main", "octavo.__init__"),
    ],
    ids=lambda text: text.replace("\n", " "),
)
def test_a_backward_arrow_is_found(source: str, module: str) -> None:
    assert len(backward_arrows(source, module)) == 1


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from octavo.errors import SpecError", "octavo.spec.recipe"),
        ("from octavo.spec.tensor import TensorSpec", "octavo.spec.recipe"),
        ("from .tensor import TensorSpec", "octavo.spec.__init__"),
        ("from octavo import errors", "octavo.spec.recipe"),
        ("from octavo.tasks import evaluate", "octavo.__init__"),
        ("import octavo", "octavo.cli.demo.steps"),
        ("from octavo.cli import main", "octavo.__main__"),
        ("import torch", "octavo.numerics.affine"),
    ],
    ids=lambda text: text.replace("\n", " "),
)
def test_a_forward_arrow_is_allowed(source: str, module: str) -> None:
    assert backward_arrows(source, module) == []


@pytest.mark.parametrize(
    "source",
    ["print(1)", "eval('1')", "torch.load('f')", "yaml.load(t)", "import pickle", "from torch import load"],
)
def test_a_forbidden_use_is_found(source: str) -> None:
    assert len(forbidden_uses(source, "octavo.graph.saved")) == 1


def test_a_method_of_the_same_name_is_no_forbidden_use() -> None:
    assert forbidden_uses("model.eval()\nconsole.print('x')\nyaml.safe_load(t)", "octavo.cli") == []
