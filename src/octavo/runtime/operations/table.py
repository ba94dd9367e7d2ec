"""The table of ATen operations that can be written as ONNX, filled by the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import fx

if TYPE_CHECKING:
    from octavo.runtime.translate import Translator, Value

    Translation = Callable[[Translator, fx.Node], "Value | list[Value]"]

TABLE: dict[str, Translation] = {}
"""Bare name of an operation, as `operation` of a captured graph gives it, and the function that writes it."""


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register a function as the translation of the operations called `names`."""

    def register(function: Translation) -> Translation:
        for name in names:
            TABLE[name] = function
        return function

    return register
