"""The table of ATen operations that can be written as ONNX, filled by the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from octavo.runtime.translate.context import Translation, Value

Write = Callable[[Translation, fx.Node], Value | list[Value]]

TABLE: dict[str, Write] = {}
"""Bare name of an operation, as `operation` of a captured graph gives it, and the function that writes it."""


def translates(*names: str) -> Callable[[Write], Write]:
    """Register a function as the translation of the operations called `names`."""

    def register(function: Write) -> Write:
        for name in names:
            assert name not in TABLE, f"{name} has two translations: {TABLE[name]} and {function}"
            TABLE[name] = function
        return function

    return register
